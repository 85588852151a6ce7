"""Steps of a node upgrade that a user may force, and why the others cannot be forced; pure.

An order skips a wait, never a proof: no gang is stopped without its acknowledgement (law 1), no node is touched without
its image (law 2), or released unvalidated.
"""

from collections.abc import Mapping

from upgrader.core.model.phases import NodePhase

FORCEABLE: Mapping[NodePhase, str] = {
    NodePhase.DRAINING: "pods without a declaration, or that a PodDisruptionBudget protects, are deleted",
    NodePhase.RELEASING: "the node is released without waiting for the placement of its gang",
    NodePhase.FAILED: "the node is released as it is and installed again",
}
"""What an order does in each step that can be forced."""

_NOT_STARTED = "nothing is blocked there; see `upgrader why NODE` for what blocks the upgrade of the node."
_REFUSED: Mapping[NodePhase, str] = {
    NodePhase.PENDING: _NOT_STARTED,
    NodePhase.PREPARING: "no node is touched without its image: see why the prepare pod does not end.",
    NodePhase.PREPARED: "no gang is stopped without its acknowledgement: name it expendable in the approval instead "
    "(`upgrader approve PLAN --expendable GANG`).",
    NodePhase.TAINTING: "it ends within a minute, or the upgrade group is released.",
    NodePhase.UNLOADING: "the driver cannot be replaced while operands use it; the upgrade reverts at its deadline.",
    NodePhase.UPGRADING: "a running upgrade Job is never interrupted; the upgrade reverts at its deadline.",
    NodePhase.LOADING: "a node without a working driver is not released; the upgrade reverts at its deadline.",
    NodePhase.VALIDATING: "a node is not released without validation; the upgrade reverts at its deadline.",
    NodePhase.SUCCEEDED: "the upgrade has ended.",
    NodePhase.NODE_DELETED: "the node was deleted, and its upgrade has ended.",
}


def force_refusal(step: NodePhase) -> str:
    """Why a step cannot be forced, as a sentence; empty if it can."""
    return _REFUSED.get(step, "")
