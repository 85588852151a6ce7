"""The status of a GpuStack: revisions, counts, drift, and conditions that name the nodes a person should look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from upgrader.api.resources import GPU_STACKS
from upgrader.api.v1alpha1 import GpuStack, NodeUpgrade
from upgrader.core import upkeep
from upgrader.core.catalogue import Catalogue
from upgrader.core.fleet import NodeFacts
from upgrader.core.node_labels import Standing
from upgrader.core.phases import NodePhase, PlanPhase, ends
from upgrader.core.rollout import UNDER_WAY
from upgrader.core.upkeep import RETRY
from upgrader.reconcile import operands
from upgrader.reconcile.conditions import Told, condition
from upgrader.reconcile.context import Context, record
from upgrader.reconcile.node_features import Labelling
from upgrader.reconcile.upkeep import latest

if TYPE_CHECKING:
    from upgrader.reconcile.stacks import Read

SHOWN = 10
LONGEST = 400
"""Characters of a failure's message in the condition: its end, which says what matters and what to do."""


async def refuse(context: Context, stack: GpuStack, message: str) -> None:
    """The spec cannot be made a revision of."""
    told = Told("Valid", "False", "RevisionNotMade", message)
    found = condition(stack.status.conditions, told, context.clock.now())
    if found not in stack.status.conditions:
        await record(context, GPU_STACKS, stack.metadata, {"conditions": [msgspec.to_builtins(found)]})


async def write(context: Context, read: Read, labelling: Labelling) -> None:
    """Write the status where it says something new."""
    stack, now_drifted = read.stack, [one for one in read.drift if one.drifted]
    ready = sum(node.revision == read.target.revision and not node.taken for node in read.snapshot.nodes)
    current = stack.status.current_revision
    if current is None or (read.snapshot.nodes and not now_drifted):
        current = read.target.revision
    counts = operands.drift_counts(read.drift)
    drifted = Told(
        "Drifted",
        "True" if now_drifted else "False",
        counts[0].reason if counts else "NoDrift",
        f"{len(now_drifted)} of {len(read.snapshot.nodes)} node(s) differ from revision {read.target.revision}",
    )
    status: dict[str, Any] = {
        "observedGeneration": stack.metadata.generation,
        "currentRevision": current,
        "updateRevision": read.target.revision,
        "blockedRevision": read.target.revision if _rolled_back(read) else None,
        "activePlan": read.running.metadata.name if read.running is not None else None,
        "nodes": len(read.snapshot.nodes),
        "ready": ready,
        "drifted": len(now_drifted),
        "drift": [msgspec.to_builtins(one) for one in counts],
        "conditions": [
            msgspec.to_builtins(condition(stack.status.conditions, one, context.clock.now()))
            for one in (
                Told("Valid", "True", "RevisionMade", "the revision is kept"),
                drifted,
                _Installed(read).told(),
                *_labelled(labelling),
            )
        ],
    }
    present = msgspec.to_builtins(stack.status)
    if any(present.get(key) != value and (present.get(key) or value) for key, value in status.items()):
        await record(context, GPU_STACKS, stack.metadata, status)


def _labelled(labelling: Labelling) -> Iterator[Told]:
    """The condition NodeFeatures, of a stack that labels: True where the labels are of the nodes' present boots."""
    if not labelling.asked:
        return
    counts = [f"{labelling.nodes[one]} {one.value}" for one in Standing if one in labelling.nodes]
    said = [labelling.said[one] for one in Standing if labelling.said.get(one)]
    message = "; ".join([f"nodes: {', '.join(counts) or 'none'}", *said])
    still = labelling.open
    reason = still[0] if still else next((one for one in Standing if one in labelling.nodes), Standing.LABELLED)
    yield Told("NodeFeatures", "False" if still else "True", reason.value, message)


def _rolled_back(read: Read) -> bool:
    """Whether a plan has led, or leads, away from the revision that the stack asks for."""
    return any(
        one.status.phase in {*UNDER_WAY, PlanPhase.COMPLETED}
        and one.spec.target_revision != read.target.revision
        and one.status.stack_revision == read.target.revision
        for one in read.plans
    )


class _Installed:
    """The condition Installed: the nodes that a stack cares for by itself, and why it could not."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._catalogue = Catalogue(read.snapshot.images)
        self._by_uid = {one.metadata.uid: one for one in read.upgrades}

    def told(self) -> Told:
        """The condition as it should be."""
        nodes = [node for node in self._read.snapshot.nodes if not node.skip]
        failed = [(node.name, *found) for node in nodes if (found := self._failure(node)) is not None]
        if failed:
            which = "; ".join(f"{name}: {message}" for name, _, message in failed[:SHOWN])
            return Told(
                "Installed", "False", failed[0][1], f"{len(failed)} node(s) could not be given their driver. {which}"
            )
        waiting = sum(self._under_way(node) or self._needs(node) for node in nodes)
        if waiting:
            return Told("Installed", "False", "Waiting", f"{waiting} of {len(nodes)} node(s) wait for their driver")
        return Told(
            "Installed", "True", "EveryNode", "no node waits for its first driver, nor for one for a new kernel"
        )

    def _needs(self, node: NodeFacts) -> bool:
        return not node.visit and upkeep.need(node, self._catalogue) is not None

    def _under_way(self, node: NodeFacts) -> bool:
        return any(not ends(one.status.phase) for one in self._read.visits_of.get(node.uid, ()))

    def _failure(self, node: NodeFacts) -> tuple[str, str] | None:
        """Why a node is not as its stack could have it, as one word and as a sentence."""
        if node.visit in self._read.orphans:
            why = f"NodeUpgrade {node.visit} is no more; the node is installed anew when no pod with GPUs is left there"
            return "VisitGone", why
        holder = self._by_uid.get(node.visit)
        if holder is not None and ends(holder.status.phase):
            return _said(holder)
        last = latest(self._read.visits_of.get(node.uid, ()))
        # While the next attempt is under way the reason of the one before still stands.
        if (
            last is None
            or last.status.phase is not NodePhase.FAILED
            or not (self._needs(node) or self._under_way(node))
        ):
            return None
        reason, message = _said(last)
        return reason, f"{message} (tried again {RETRY.total_seconds() / 60:.0f} min after its end)"


def _said(visit: NodeUpgrade) -> tuple[str, str]:
    reason, message = visit.status.reason or "Failed", visit.status.message
    short = message if len(message) <= LONGEST else f"…{message[-LONGEST:]}"
    return reason, f"{visit.spec.reason.value} {reason}, attempt {visit.spec.attempt}: {short}"
