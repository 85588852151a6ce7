"""The laws about what the controller records: 6, 7 and 8."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from upgrader.api import names
from upgrader.core import timing
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase, is_final, transition_of
from upgrader_dev.chaos.laws.cluster_state import (
    LATE_LOOK,
    ClusterState,
    has_maintenance_taint,
    read_stop_record,
    selects_node,
    starts_upgrade_job,
    was_switched_off,
)
from upgrader_dev.chaos.laws.journal import JournalEntry
from upgrader_dev.simulated.apiserver.objects import Object

SLACK = timedelta(minutes=15)
"""The time after a deadline within which the phase must end: for crashes, retries and skewed clocks."""

_PHASES = {"NodeUpgrade": NodePhase, "CheckpointRequest": RequestPhase, "UpgradePlan": PlanPhase}


class EveryStateEnds:
    """Law 6: each phase has a deadline in the object and ends after it."""

    number = 6

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:  # noqa: ARG002 - the signature of every law
        """A phase that begins has its deadline in the same write."""
        if entry.kind not in {"NodeUpgrade", "CheckpointRequest"} or not entry.by_controller or entry.after is None:
            return
        status = entry.after.get("status") or {}
        phase = status.get("phase")
        if phase is None or is_final(_PHASES[entry.kind](phase)):
            return
        if transition_of(_PHASES[entry.kind](phase)).seconds is not None and not status.get("deadline"):
            yield f"{entry.kind} {entry.key[1]} is {phase} without a deadline"

    def check_deadlines(self, state: ClusterState, now: datetime) -> Iterator[str]:
        """A sentence for each phase that should have ended."""
        for kind in ("NodeUpgrade", "CheckpointRequest"):
            for value in state.created_objects(kind):
                deadline = (value.get("status") or {}).get("deadline")
                if deadline and not _has_ended(kind, value) and timing.parse_time(deadline) + SLACK < now:
                    phase = value["status"]["phase"]
                    yield f"{kind} {value['metadata']['name']} is {phase} since long after its deadline {deadline}"
        for value in state.created_objects(
            "NodeUpgrade"
        ):  # the deadline of a request counts from its batch, not from its own first step
            if not (value.get("status") or {}).get("phase") and _created_at(value) + SLACK < now:
                yield f"NodeUpgrade {value['metadata']['name']} was created long ago and has had no step"

    def check_end(self, state: ClusterState) -> Iterator[str]:
        """A sentence for each object that has not ended after enough time."""
        for kind in _PHASES:
            for value in state.objects_of(kind) if kind == "UpgradePlan" else state.created_objects(kind):
                if not _has_ended(kind, value):
                    status = value.get("status") or {}
                    why = f"{status.get('phase')}, {status.get('reason', '')} {status.get('message', '')}".strip()
                    yield f"{kind} {value['metadata']['name']} does not end: {why}"
        yield from _find_orphaned_operands(state)


class IntentFirst:
    """Law 7: an intention is written before the action, or in the same write."""

    number = 7

    def __init__(self) -> None:
        self._removed: dict[str, datetime] = {}
        """Uids of upgrades that were removed by force, and when: a slow read may still lead to a taint for them."""

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        """A sentence for each way in which a change breaks the law."""
        if entry.kind == "NodeUpgrade" and entry.after is None and not entry.by_controller:
            self._removed[entry.object["metadata"]["uid"]] = entry.at
        if not entry.by_controller or entry.after is None:
            return
        if was_switched_off(entry):
            yield from self._check_stop(entry, state)
        elif starts_upgrade_job(entry):
            yield from self._check_upgrade(entry, state)
        elif (
            entry.kind == "Node"
            and has_maintenance_taint(entry.after)
            and not (entry.before and has_maintenance_taint(entry.before))
        ):
            claim = (entry.after["metadata"].get("annotations") or {}).get(names.ANNOTATION_CLAIMED_BY)
            written = any(
                upgrade["metadata"]["uid"] == claim
                for upgrade in state.state_when_sent(entry).objects_of("NodeUpgrade")
            )
            if not written and not self._was_removed_recently(str(claim), entry):
                yield f"node {entry.key[1]} gets the maintenance taint for a node upgrade that is not written"

    def _was_removed_recently(self, claim: str, entry: JournalEntry) -> bool:
        removed = self._removed.get(claim)
        return removed is not None and entry.sent_at - removed <= LATE_LOOK

    def _check_stop(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        record = read_stop_record(entry.object)
        if record is None:
            yield f"gang {entry.key[1]} is stopped without a record of it"
            return
        request = state.find_object("CheckpointRequest", str(record.get("request")), entry.key[0])
        if request is not None and request.get("status", {}).get("phase") != RequestPhase.STOPPING.value:
            yield f"gang {entry.key[1]} is stopped while its checkpoint request is {request['status'].get('phase')}"

    def _check_upgrade(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        name = entry.object["metadata"].get("annotations", {}).get(names.ANNOTATION_NODE_UPGRADE, "")
        upgrade = state.find_object("NodeUpgrade", name)
        owners = {reference["uid"] for reference in entry.object["metadata"].get("ownerReferences") or []}
        if upgrade is not None and upgrade["metadata"]["uid"] not in owners:  # removed by force, and created again
            if not any(self._was_removed_recently(owner, entry) for owner in owners):
                yield f"Job {entry.key[1]} belongs to a node upgrade that no longer exists"
            return
        phase = (upgrade or {}).get("status", {}).get("phase")
        if upgrade is not None and phase != NodePhase.UPGRADING.value:
            yield f"{name} upgrades its node in phase {phase}"


class NoStartOnStaleState:
    """Law 8: nothing begins while the controller cannot read the current state."""

    number = 8

    def __init__(self) -> None:
        self.staleness: Callable[[], str] = lambda: ""
        """Why nothing may begin now; empty: the controller can read the current state."""

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:  # noqa: ARG002 - the signature of every law
        """A sentence for each way in which a change breaks the law."""
        why = self.staleness() if entry.by_controller and entry.at == entry.sent else ""
        if not why:
            return
        begins = entry.before is None and entry.kind in {"NodeUpgrade", "CheckpointRequest"}
        closes = entry.kind == "Node" and entry.after is not None and has_maintenance_taint(entry.after)
        if begins or was_switched_off(entry) or (closes and not (entry.before and has_maintenance_taint(entry.before))):
            yield f"{entry.kind} {entry.key[1]}: something begins while {why}"


def _find_orphaned_operands(state: ClusterState) -> Iterator[str]:
    """Operands of a deleted stack that no node of another stack has."""
    stacks = {stack["metadata"]["name"]: stack for stack in state.objects_of("GpuStack")}
    nodes = [node for node in state.objects_of("Node") if any(selects_node(stack, node) for stack in stacks.values())]
    needed = {value for node in nodes for value in (node["metadata"].get("labels") or {}).values()}
    for daemonset in state.created_objects("DaemonSet"):
        labels = daemonset["metadata"].get("labels") or {}
        if labels.get(names.LABEL_STACK, "") not in {"", *stacks} and labels.get(names.LABEL_IMAGE_KEY) not in needed:
            yield f"DaemonSet {daemonset['metadata']['name']} of deleted stack {labels[names.LABEL_STACK]} still exists"


def _created_at(value: Object) -> datetime:
    return timing.parse_time(value["metadata"]["creationTimestamp"])


def _has_ended(kind: str, value: Object) -> bool:
    phase = (value.get("status") or {}).get("phase")
    if phase is None:
        return False
    if kind == "UpgradePlan" and phase == PlanPhase.PROPOSED.value:
        return True  # it waits for an approval; a proposal for an outdated spec waits without end
    return is_final(_PHASES[kind](phase))
