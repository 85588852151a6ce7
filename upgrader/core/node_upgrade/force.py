"""Steps of a node upgrade that a person may force, and why the others cannot be forced; pure.

An order skips a wait, never a proof: no gang is stopped without its acknowledgement (law 1), no node is touched without
its image (law 2), or released unvalidated.
"""

from collections.abc import Mapping

from upgrader.core.model.phases import NodePhase

FORCEABLE: Mapping[NodePhase, str] = {
    NodePhase.DRAINING: "pods that declare nothing, or that a budget keeps, are deleted",
    NodePhase.RELEASING: "the node is given back without waiting for its gang to be placed",
    NodePhase.FAILED: "the node is given back as it is and installed anew",
}
"""What an order does in each step that can be forced."""

_NOT_STARTED = "nothing is blocked there; see `upgrader why NODE` for what keeps the node from being upgraded."
_REFUSED: Mapping[NodePhase, str] = {
    NodePhase.PENDING: _NOT_STARTED,
    NodePhase.PREPARING: "no node is touched without its image: see why the prepare pod does not end.",
    NodePhase.PREPARED: "no gang is stopped without its acknowledgement: name it expendable in the approval instead "
    "(`upgrader approve PLAN --expendable GANG`).",
    NodePhase.TAINTING: "it ends within a minute by itself, or the upgrade group is let go.",
    NodePhase.UNLOADING: "the driver cannot be swapped under operands that still use it; it goes back at its deadline.",
    NodePhase.UPGRADING: "an upgrade Job that runs is never broken off; it goes back at its deadline.",
    NodePhase.LOADING: "a node without a driver that answers is not given back; it goes back at its deadline.",
    NodePhase.VALIDATING: "a node is not given back unvalidated; it goes back at its deadline.",
    NodePhase.SUCCEEDED: "the upgrade has ended.",
    NodePhase.NODE_DELETED: "the node is gone, and its upgrade has ended.",
}


def refusal(step: NodePhase) -> str:
    """Why a step cannot be forced, as a sentence; empty if it can."""
    return _REFUSED.get(step, "")
