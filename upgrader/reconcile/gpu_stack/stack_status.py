"""The status of a GpuStack: revisions, counts, drift, and conditions that name the nodes a person should look at."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from upgrader.api import names
from upgrader.api.resources import GPU_STACKS
from upgrader.api.v1alpha1 import DriftCount, GpuStack, NodeUpgrade
from upgrader.api.v1alpha1.gpu_stack import OperandStatus, PartStatus
from upgrader.core.driver_image.catalogue import NO_DRIVER, Catalogue
from upgrader.core.gpu_stack import unplanned_upgrades
from upgrader.core.gpu_stack.unplanned_upgrades import RETRY
from upgrader.core.model.fleet import NodeFacts, Target
from upgrader.core.model.operands import Operand, OperandStanding, PartStanding, Standing, beside, standings
from upgrader.core.model.phases import NodePhase, ends
from upgrader.core.node_protocol.node_labels import Standing as LabelStanding
from upgrader.reconcile.checkpoint_request import abandoned_owners
from upgrader.reconcile.checkpoint_request.abandoned_owners import Abandoned
from upgrader.reconcile.gpu_stack.drift_status import Answered, without_image
from upgrader.reconcile.gpu_stack.unplanned_upgrades import latest
from upgrader.reconcile.observe import pod_events
from upgrader.reconcile.observe.other_plans import away_from
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.operands import missing_pods, nondisruptive_operands, operands
from upgrader.reconcile.operands.node_features import Labelling
from upgrader.reconcile.runtime.conditions import Told, condition
from upgrader.reconcile.runtime.context import Context, record
from upgrader.reconcile.runtime.isolation import STEP_FAILED

LABELLER = "NodeFeatures"
SHOWN = 10
LONGEST = 400
"""Characters of a failure's message in the condition: its end, which says what matters and what to do."""


async def refuse(context: Context, stack: GpuStack, message: str, left: Sequence[Abandoned]) -> None:
    """The spec cannot be made a revision of; `left`: stopped owners that are still to be restarted."""
    told = (Told("Valid", "False", "RevisionNotMade", message), *abandoned_owners.conditions(stack, left))
    found = [condition(stack.status.conditions, one, context.clock.now()) for one in told]
    if any(one not in stack.status.conditions for one in found):
        await record(context, GPU_STACKS, stack.metadata, {"conditions": [msgspec.to_builtins(one) for one in found]})


async def write(
    context: Context,
    read: StackReading,
    labelling: Labelling,
    answered: Answered,
    faults: Mapping[Operand, str],
    left: Sequence[Abandoned] = (),
) -> None:
    """Write the status where it says something new.

    Args:
        context: ports.
        read: what the step looked at.
        labelling: how it stands with labels of nodes.
        answered: what is done about drift.
        faults: why a quiet operand is not as it should be.
        left: stopped owners that have no request any more.
    """
    stack, now_drifted = read.stack, [one for one in read.drift if one.drifted]
    ready = sum(node.revision == read.target.revision and not node.taken for node in read.snapshot.nodes)
    current = stack.status.current_revision
    if current is None or (read.snapshot.nodes and not now_drifted):
        current = read.target.revision
    counts = operands.drift_counts(read.drift)
    drifted = _drifted(read, counts, len(now_drifted))
    standing = await _standings(context, read, faults)
    labeller = beside(labelling.wanted, labelling.pods) if labelling.asked else PartStanding(state=Standing.EXTERNAL)
    status: dict[str, Any] = {
        "observedGeneration": stack.metadata.generation,
        "currentRevision": current,
        "updateRevision": read.target.revision,
        "blockedRevision": read.target.revision if away_from(read.plans, read.target.revision) else None,
        "activePlan": read.running.metadata.name if read.running is not None else None,
        "nodes": len(read.snapshot.nodes),
        "ready": ready,
        "drifted": len(now_drifted),
        "drift": [msgspec.to_builtins(one) for one in counts],
        "operands": [_operand(one) for one in standing],
        "nodeFeatures": _part(labeller),
        "conditions": [
            msgspec.to_builtins(condition(stack.status.conditions, one, context.clock.now()))
            for one in (
                Told("Valid", "True", "RevisionMade", "the revision is kept"),
                drifted,
                _Installed(read, answered.goal).told(),
                _operands_ready(standing, labeller),
                *answered.told(read, context.clock.now()),
                *_overlaps(read),
                *_labelled(labelling),
                *abandoned_owners.conditions(stack, left),
            )
        ]
        # What fails is told at the end of the step.
        + [msgspec.to_builtins(one) for one in stack.status.conditions if one.type == STEP_FAILED],
    }
    present = msgspec.to_builtins(stack.status)
    if any(present.get(key) != value and (present.get(key) or value) for key, value in status.items()):
        await record(context, GPU_STACKS, stack.metadata, status)


def _drifted(read: StackReading, counts: Sequence[DriftCount], nodes: int) -> Told:
    return Told(
        "Drifted",
        "True" if nodes else "False",
        counts[0].reason if counts else "NoDrift",
        f"{nodes} of {len(read.snapshot.nodes)} node(s) differ from revision {read.target.revision}",
    )


async def _standings(
    context: Context, read: StackReading, faults: Mapping[Operand, str]
) -> tuple[OperandStanding, ...]:
    """How it stands with each operand, with what is said of pods that do not start or cannot be made."""
    wanted = _wanted(read)
    pods = [*read.snapshot.operands, *missing_pods.operand_pods(context, read, wanted)]
    managed = dict.fromkeys([Operand.DRIVER, *nondisruptive_operands.managed(read.stack)], True)
    managed[Operand.RUNTIME] = bool(read.target.runtime_image)
    managed[Operand.DEVICE_PLUGIN] = bool(read.target.plugin_image)
    return standings(managed, wanted, await pod_events.explained(context, pods), faults)


def _wanted(read: StackReading) -> dict[Operand, frozenset[str]]:
    """Nodes that should have an operand: by their labels, which upgrades write."""
    wanted: dict[Operand, set[str]] = defaultdict(set)
    by_themselves = nondisruptive_operands.managed(read.stack)
    for node in read.snapshot.nodes:
        if node.driver_key not in {"", NO_DRIVER}:
            wanted[Operand.DRIVER].add(node.name)
        keyed = {Operand.RUNTIME: node.runtime_key, Operand.DEVICE_PLUGIN: node.plugin_key}
        on = node.operands == names.ON
        for operand in [*(one for one, key in keyed.items() if key), *by_themselves] if on else []:
            wanted[operand].add(node.name)
    return {key: frozenset(value) for key, value in wanted.items()}


def _operand(one: OperandStanding) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(OperandStatus(shown=one.shown, **msgspec.structs.asdict(one)))
    return found


def _part(one: PartStanding) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(PartStatus(shown=one.shown, **msgspec.structs.asdict(one)))
    return found


def _operands_ready(standing: Sequence[OperandStanding], labeller: PartStanding) -> Told:
    """The condition OperandsReady: the first that is not, by name, with those that it blocks; the labeller last."""
    every = [*((one.operand.value, one) for one in standing), (LABELLER, labeller)]
    missing = [(name, one) for name, one in every if one.state is Standing.WAITING]
    if not missing:
        return Told("OperandsReady", "True", "Ready", "every operand is ready wherever it should be")
    said = "; ".join(f"{name} {one.shown}: {one.message}" for name, one in missing)
    return Told("OperandsReady", "False", f"{missing[0][0]}NotReady", said)


def _overlaps(read: StackReading) -> Iterator[Told]:
    """The condition Overlaps: True while other stacks select some of its nodes too; told where it was ever so."""
    shared = [node for node in read.snapshot.nodes if node.claimants]
    if shared:
        which = "; ".join(f"{node.name} by {' and '.join(node.claimants)}" for node in shared[:SHOWN])
        told = f"{len(shared)} node(s) are selected by other stacks too, and nothing is begun on them: {which}"
        yield Told("Overlaps", "True", "TwoStacks", told)
    elif any(one.type == "Overlaps" for one in read.stack.status.conditions):
        yield Told("Overlaps", "False", "NoOverlap", "no other stack selects a node of this one")


def _labelled(labelling: Labelling) -> Iterator[Told]:
    """The condition NodeFeatures, of a stack that labels: True where the labels are of the nodes' present boots."""
    if not labelling.asked:
        return
    counts = [f"{labelling.nodes[one]} {one.value}" for one in LabelStanding if one in labelling.nodes]
    said = [labelling.said[one] for one in LabelStanding if labelling.said.get(one)]
    message = "; ".join([f"nodes: {', '.join(counts) or 'none'}", *said])
    still = labelling.open
    reason = (
        still[0] if still else next((one for one in LabelStanding if one in labelling.nodes), LabelStanding.LABELLED)
    )
    yield Told("NodeFeatures", "False" if still else "True", reason.value, message)


class _Installed:
    """The condition Installed: the nodes that a stack cares for by itself, and why it could not."""

    def __init__(self, read: StackReading, goal: Target) -> None:
        self._read, self._goal = read, goal
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
        if lacking := without_image(self._read, self._goal):
            return Told("Installed", "False", "NoDriverImage", lacking)
        waiting = sum(self._under_way(node) or self._needs(node) for node in nodes)
        if waiting:
            return Told("Installed", "False", "Waiting", f"{waiting} of {len(nodes)} node(s) wait for their driver")
        unreadable = [node.unreadable for node in nodes if node.unreadable and self._lacks(node)]
        if unreadable:
            return Told("Installed", "False", "NodeUnreadable", " ".join(unreadable[:SHOWN]))
        alone = sum(node.left_alone and self._lacks(node) for node in self._read.snapshot.nodes)
        others = f"; {alone} node(s) that would need one are left alone" if alone else ""
        said = f"no node waits for its first driver, nor for one for a new kernel{others}"
        return Told("Installed", "True", "EveryNode", said)

    def _needs(self, node: NodeFacts) -> bool:
        # What is left alone gets nothing by itself, however long it is waited for: Overlaps, Adopted and skip say why.
        return not node.left_alone and self._lacks(node)

    def _lacks(self, node: NodeFacts) -> bool:
        return not node.claimed_by and unplanned_upgrades.need(node, self._catalogue) is not None

    def _under_way(self, node: NodeFacts) -> bool:
        return any(not ends(one.status.phase) for one in self._read.upgrades_of_node.get(node.uid, ()))

    def _failure(self, node: NodeFacts) -> tuple[str, str] | None:
        """Why a node is not as its stack could have it, as one word and as a sentence."""
        if node.claimed_by in self._read.orphans:
            why = f"NodeUpgrade {node.claimed_by} is no more; the node is installed anew when no GPU pod is left there"
            return "UpgradeDeleted", why
        holder = self._by_uid.get(node.claimed_by)
        if holder is not None and ends(holder.status.phase):
            return _said(holder)
        last = latest(self._read.upgrades_of_node.get(node.uid, ()))
        # While the next attempt is under way the reason of the one before still stands.
        if (
            last is None
            or last.status.phase is not NodePhase.FAILED
            or not (self._needs(node) or self._under_way(node))
        ):
            return None
        reason, message = _said(last)
        return reason, f"{message} (tried again {RETRY.total_seconds() / 60:.0f} min after its end)"


def _said(upgrade: NodeUpgrade) -> tuple[str, str]:
    reason, message = upgrade.status.reason or "Failed", upgrade.status.message
    short = message if len(message) <= LONGEST else f"…{message[-LONGEST:]}"
    return reason, f"{upgrade.spec.reason.value} {reason}, attempt {upgrade.spec.attempt}: {short}"
