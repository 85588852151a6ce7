"""The status of a GpuStack: revisions, counts, drift, and conditions that name nodes to check."""

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
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.operands import (
    Operand,
    OperandStanding,
    OperandState,
    PartStanding,
    operand_standings,
    part_standing,
)
from upgrader.core.model.phases import NodePhase, is_final
from upgrader.core.node_protocol.node_labels import NodeLabelState as LabelStanding
from upgrader.reconcile.checkpoint_request import abandoned_owners
from upgrader.reconcile.checkpoint_request.abandoned_owners import AbandonedOwner
from upgrader.reconcile.gpu_stack.drift_status import ADOPTION_FAILED, DriftDecision, without_image
from upgrader.reconcile.gpu_stack.unplanned_upgrades import latest_ended_upgrade
from upgrader.reconcile.observe import pod_events
from upgrader.reconcile.observe.other_plans import away_from
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.operands import missing_pods, nondisruptive_operands, operands
from upgrader.reconcile.operands.node_features import Labelling
from upgrader.reconcile.runtime.conditions import ConditionContent, next_condition
from upgrader.reconcile.runtime.context import Context, record_status
from upgrader.reconcile.runtime.isolation import STEP_FAILED

LABELLER = "NodeFeatures"
SHOWN = 10
LONGEST = 400
"""Characters of a failure's message in the condition, from its end, which contains cause and resolution."""


async def write_refusal(context: Context, stack: GpuStack, message: str, left: Sequence[AbandonedOwner]) -> None:
    """Record that the spec gives no revision; `left`: stopped owners that are not restarted yet."""
    told = (
        ConditionContent("Valid", "False", "RevisionNotMade", message),
        *abandoned_owners.stopped_owners_condition(stack, left),
    )
    conditions = [next_condition(stack.status.conditions, wanted, context.clock.now()) for wanted in told]
    if any(wanted not in stack.status.conditions for wanted in conditions):
        await record_status(
            context, GPU_STACKS, stack.metadata, {"conditions": [msgspec.to_builtins(wanted) for wanted in conditions]}
        )


async def write_status(
    context: Context,
    read: StackReading,
    labelling: Labelling,
    answered: DriftDecision,
    faults: Mapping[Operand, str],
    left: Sequence[AbandonedOwner] = (),
) -> None:
    """Write the status if it changes.

    Args:
        context: ports.
        read: inputs of the step.
        labelling: state of the nodes' feature labels.
        answered: the response to drift.
        faults: errors of nondisruptive operands.
        left: stopped owners without a request.
    """
    stack, now_drifted = read.stack, [node for node in read.drift if node.drifted]
    ready = sum(node.revision == read.target.revision and not node.taken for node in read.snapshot.nodes)
    current = stack.status.current_revision
    if current is None or (read.snapshot.nodes and not now_drifted):
        current = read.target.revision
    counts = operands.drift_counts(read.drift)
    drifted = _drifted_condition(read, counts, len(now_drifted))
    standing = await _operand_statuses(context, read, faults)
    labeller = (
        part_standing(labelling.wanted, labelling.pods)
        if labelling.asked
        else PartStanding(state=OperandState.EXTERNAL)
    )
    status: dict[str, Any] = {
        "observedGeneration": stack.metadata.generation,
        "currentRevision": current,
        "updateRevision": read.target.revision,
        "blockedRevision": read.target.revision if away_from(read.plans, read.target.revision) else None,
        "activePlan": read.running.metadata.name if read.running is not None else None,
        "nodes": len(read.snapshot.nodes),
        "ready": ready,
        "drifted": len(now_drifted),
        "drift": [msgspec.to_builtins(count) for count in counts],
        "operands": [_operand_entry(operand) for operand in standing],
        "nodeFeatures": _part_entry(labeller),
        "conditions": [
            msgspec.to_builtins(next_condition(stack.status.conditions, condition, context.clock.now()))
            for condition in (
                ConditionContent("Valid", "True", "RevisionMade", f"revision {read.target.revision} is stored"),
                drifted,
                _Installed(read, answered).condition(),
                _operands_ready(standing, labeller),
                *answered.conditions(read, context.clock.now()),
                *_overlaps_condition(read),
                *_labels_condition(labelling),
                *abandoned_owners.stopped_owners_condition(stack, left),
            )
        ]
        # The end of the step writes this condition.
        + [msgspec.to_builtins(condition) for condition in stack.status.conditions if condition.type == STEP_FAILED],
    }
    present = msgspec.to_builtins(stack.status)
    if any(present.get(key) != value and (present.get(key) or value) for key, value in status.items()):
        await record_status(context, GPU_STACKS, stack.metadata, status)


def _drifted_condition(read: StackReading, counts: Sequence[DriftCount], nodes: int) -> ConditionContent:
    return ConditionContent(
        "Drifted",
        "True" if nodes else "False",
        counts[0].reason if counts else "NoDrift",
        f"{nodes} of {len(read.snapshot.nodes)} node(s) differ from revision {read.target.revision}",
    )


async def _operand_statuses(
    context: Context, read: StackReading, faults: Mapping[Operand, str]
) -> tuple[OperandStanding, ...]:
    """The status of each operand, with the reasons of pods that do not start or cannot be created."""
    wanted = _wanted_nodes(read)
    pods = [*read.snapshot.operands, *missing_pods.operand_pods(context, read, wanted)]
    managed = dict.fromkeys([Operand.DRIVER, *nondisruptive_operands.managed_operands(read.stack)], True)
    managed[Operand.RUNTIME] = bool(read.target.runtime_image)
    managed[Operand.DEVICE_PLUGIN] = bool(read.target.plugin_image)
    return operand_standings(managed, wanted, await pod_events.explain_pods(context, pods), faults)


def _wanted_nodes(read: StackReading) -> dict[Operand, frozenset[str]]:
    """Nodes that should have an operand, by the labels that upgrades write."""
    wanted: dict[Operand, set[str]] = defaultdict(set)
    by_themselves = nondisruptive_operands.managed_operands(read.stack)
    for node in read.snapshot.nodes:
        if node.driver_key not in {"", NO_DRIVER}:
            wanted[Operand.DRIVER].add(node.name)
        keyed = {Operand.RUNTIME: node.runtime_key, Operand.DEVICE_PLUGIN: node.plugin_key}
        on = node.operands == names.ON
        for operand in [*(name for name, key in keyed.items() if key), *by_themselves] if on else []:
            wanted[operand].add(node.name)
    return {key: frozenset(value) for key, value in wanted.items()}


def _operand_entry(standing: OperandStanding) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.to_builtins(OperandStatus(shown=standing.shown, **msgspec.structs.asdict(standing)))
    return entry


def _part_entry(standing: PartStanding) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.to_builtins(PartStatus(shown=standing.shown, **msgspec.structs.asdict(standing)))
    return entry


def _operands_ready(standing: Sequence[OperandStanding], labeller: PartStanding) -> ConditionContent:
    """The condition OperandsReady: operands that are not ready, with the nodes they block; the labeller last."""
    entries = [*((operand.operand.value, operand) for operand in standing), (LABELLER, labeller)]
    missing = [(name, operand) for name, operand in entries if operand.state is OperandState.WAITING]
    if not missing:
        return ConditionContent("OperandsReady", "True", "Ready", "every operand is ready on all its nodes")
    message = "; ".join(f"{name} {operand.shown}: {operand.message}" for name, operand in missing)
    return ConditionContent("OperandsReady", "False", f"{missing[0][0]}NotReady", message)


def _overlaps_condition(read: StackReading) -> Iterator[ConditionContent]:
    """The condition Overlaps: True while other stacks select some of its nodes; absent until that happens once."""
    shared = [node for node in read.snapshot.nodes if node.claimants]
    if shared:
        which = "; ".join(f"{node.name} by {' and '.join(node.claimants)}" for node in shared[:SHOWN])
        told = f"{len(shared)} node(s) are selected by other stacks too, and no upgrade begins on them: {which}"
        yield ConditionContent("Overlaps", "True", "TwoStacks", told)
    elif any(condition.type == "Overlaps" for condition in read.stack.status.conditions):
        yield ConditionContent("Overlaps", "False", "NoOverlap", "no other stack selects a node of this one")


def _labels_condition(labelling: Labelling) -> Iterator[ConditionContent]:
    """The condition NodeFeatures of a stack that labels: True if all labels are of the nodes' present boots."""
    if not labelling.asked:
        return
    counts = [
        f"{labelling.nodes[standing]} {standing.value}" for standing in LabelStanding if standing in labelling.nodes
    ]
    reasons = [labelling.messages[standing] for standing in LabelStanding if labelling.messages.get(standing)]
    message = "; ".join([f"nodes: {', '.join(counts) or 'none'}", *reasons])
    still = labelling.open
    reason = (
        still[0]
        if still
        else next((standing for standing in LabelStanding if standing in labelling.nodes), LabelStanding.LABELLED)
    )
    yield ConditionContent("NodeFeatures", "False" if still else "True", reason.value, message)


class _Installed:
    """The condition Installed: nodes that a stack installs or repairs by itself, and the reasons of failures."""

    def __init__(self, read: StackReading, answered: DriftDecision) -> None:
        self._read, self._goal, self._failed_adoptions = read, answered.goal, answered.failed_adoptions
        self._catalogue = Catalogue(read.snapshot.images)
        self._by_uid = {upgrade.metadata.uid: upgrade for upgrade in read.upgrades}

    def condition(self) -> ConditionContent:
        """The condition."""
        nodes = [node for node in self._read.snapshot.nodes if not node.skip]
        failed = [(node.name, *failure) for node in nodes if (failure := self._explain_failure(node)) is not None]
        if failed:
            which = "; ".join(f"{name}: {message}" for name, _, message in failed[:SHOWN])
            return ConditionContent(
                "Installed",
                "False",
                failed[0][1],
                f"the driver could not be installed on {len(failed)} node(s). {which}",
            )
        if lacking := without_image(self._read, self._goal):
            return ConditionContent("Installed", "False", "NoDriverImage", lacking)
        waiting = sum(self._under_way(node) or self._needs_driver(node) for node in nodes)
        if waiting:
            return ConditionContent(
                "Installed", "False", "Waiting", f"{waiting} of {len(nodes)} node(s) wait for their driver"
            )
        unreadable = [node.unreadable for node in nodes if node.unreadable and self._lacks_driver(node)]
        if unreadable:
            return ConditionContent("Installed", "False", "NodeUnreadable", " ".join(unreadable[:SHOWN]))
        alone = sum(node.left_alone and self._lacks_driver(node) for node in self._read.snapshot.nodes)
        others = f"; {alone} node(s) that need a driver are excluded" if alone else ""
        text = f"no node waits for its first driver, or for a driver for a new kernel{others}"
        return ConditionContent("Installed", "True", "EveryNode", text)

    def _needs_driver(self, node: NodeFacts) -> bool:
        # A node that is left alone gets no upgrade; Overlaps, Adopted and the label skip state why.
        return not node.left_alone and self._lacks_driver(node)

    def _lacks_driver(self, node: NodeFacts) -> bool:
        return not node.claimed_by and unplanned_upgrades.find_need(node, self._catalogue) is not None

    def _under_way(self, node: NodeFacts) -> bool:
        return any(not is_final(upgrade.status.phase) for upgrade in self._read.upgrades_of_node.get(node.uid, ()))

    def _explain_failure(self, node: NodeFacts) -> tuple[str, str] | None:
        """Why a node has no working driver, as a reason and as a sentence."""
        if node.claimed_by in self._read.orphans:
            why = (
                f"the NodeUpgrade with UID {node.claimed_by} was deleted; the driver is installed again when no GPU "
                "pod is left on the node"
            )
            return "UpgradeDeleted", why
        holder = self._by_uid.get(node.claimed_by)
        if holder is not None and is_final(holder.status.phase):
            return _failure_reason(holder)
        last = latest_ended_upgrade(self._read.upgrades_of_node.get(node.uid, ()))
        if stopped := self._failed_adoptions.get(node.name):
            _, message = _failure_reason(stopped)
            return ADOPTION_FAILED, f"{message} (continue with `upgrader adopt {node.name}`)"
        # While the next attempt is in progress, the reason of the previous attempt stays.
        if (
            last is None
            or last.status.phase is not NodePhase.FAILED
            or not (self._needs_driver(node) or self._under_way(node))
        ):
            return None
        reason, message = _failure_reason(last)
        return reason, f"{message} (retried {RETRY.total_seconds() / 60:.0f} min after its end)"


def _failure_reason(upgrade: NodeUpgrade) -> tuple[str, str]:
    reason, message = upgrade.status.reason or "Failed", upgrade.status.message
    short = message if len(message) <= LONGEST else f"…{message[-LONGEST:]}"
    return reason, f"{upgrade.spec.reason.value} {reason}, attempt {upgrade.spec.attempt}: {short}"
