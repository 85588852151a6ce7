"""The laws about what the controller writes down: 6, 7 and 8."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from upgrader.api import names
from upgrader.core import timing
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase, is_final, transition_of
from upgrader_dev.chaos.laws.journal import Entry
from upgrader_dev.chaos.laws.known import (
    LATE_LOOK,
    Known,
    is_closed,
    is_upgrade_job,
    selects_node,
    stopped_by,
    went_off,
)
from upgrader_dev.simulated.apiserver.objects import Object

SLACK = timedelta(minutes=15)
"""From a deadline until its way out must have been taken: crashes, retries, and clocks that differ."""

_PHASES = {"NodeUpgrade": NodePhase, "CheckpointRequest": RequestPhase, "UpgradePlan": PlanPhase}


class EveryStateEnds:
    """Law 6: each phase has a deadline in the object, and is left when that has passed."""

    number = 6

    def look(self, entry: Entry, known: Known) -> Iterator[str]:  # noqa: ARG002 - as every law
        """A phase that is entered has its deadline in the same write."""
        if entry.kind not in {"NodeUpgrade", "CheckpointRequest"} or not entry.by_controller or entry.after is None:
            return
        status = entry.after.get("status") or {}
        phase = status.get("phase")
        if phase is None or is_final(_PHASES[entry.kind](phase)):
            return
        if transition_of(_PHASES[entry.kind](phase)).seconds is not None and not status.get("deadline"):
            yield f"{entry.kind} {entry.key[1]} is {phase} without a deadline"

    def overdue(self, known: Known, now: datetime) -> Iterator[str]:
        """States that should have been left."""
        for kind in ("NodeUpgrade", "CheckpointRequest"):
            for value in known.made_of(kind):
                deadline = (value.get("status") or {}).get("deadline")
                if deadline and not _has_ended(kind, value) and timing.parse_time(deadline) + SLACK < now:
                    phase = value["status"]["phase"]
                    yield f"{kind} {value['metadata']['name']} is {phase} since long after its deadline {deadline}"
        for value in known.made_of("NodeUpgrade"):  # what a gang is asked counts from its batch, not from its own step
            if not (value.get("status") or {}).get("phase") and _created_at(value) + SLACK < now:
                yield f"NodeUpgrade {value['metadata']['name']} was made long ago and has had no step"

    def end(self, known: Known) -> Iterator[str]:
        """What has not come to its end when there was time enough."""
        for kind in _PHASES:
            for value in known.of(kind) if kind == "UpgradePlan" else known.made_of(kind):
                if not _has_ended(kind, value):
                    status = value.get("status") or {}
                    why = f"{status.get('phase')}, {status.get('reason', '')} {status.get('message', '')}".strip()
                    yield f"{kind} {value['metadata']['name']} does not end: {why}"
        yield from _left_of_stacks(known)


class IntentFirst:
    """Law 7: what is intended is written before the act, or in the same write."""

    number = 7

    def __init__(self) -> None:
        self._removed: dict[str, datetime] = {}
        """Uids of upgrades that were removed by force, and when: a slow reader still taints a node for one of them."""

    def look(self, entry: Entry, known: Known) -> Iterator[str]:
        """What of a change breaks the law."""
        if entry.kind == "NodeUpgrade" and entry.after is None and not entry.by_controller:
            self._removed[entry.object["metadata"]["uid"]] = entry.at
        if not entry.by_controller or entry.after is None:
            return
        if went_off(entry):
            yield from self._stopped(entry, known)
        elif is_upgrade_job(entry):
            yield from self._upgraded(entry, known)
        elif entry.kind == "Node" and is_closed(entry.after) and not (entry.before and is_closed(entry.before)):
            claim = (entry.after["metadata"].get("annotations") or {}).get(names.ANNOTATION_CLAIMED_BY)
            written = any(each["metadata"]["uid"] == claim for each in known.when_sent(entry).of("NodeUpgrade"))
            if not written and not self._just_removed(str(claim), entry):
                yield f"node {entry.key[1]} is closed for a node upgrade that nobody has written down"

    def _just_removed(self, claim: str, entry: Entry) -> bool:
        removed = self._removed.get(claim)
        return removed is not None and entry.sent_at - removed <= LATE_LOOK

    def _stopped(self, entry: Entry, known: Known) -> Iterator[str]:
        record = stopped_by(entry.object)
        if record is None:
            yield f"gang {entry.key[1]} is stopped without a record of it"
            return
        request = known.get("CheckpointRequest", str(record.get("request")), entry.key[0])
        if request is not None and request.get("status", {}).get("phase") != RequestPhase.STOPPING.value:
            yield f"gang {entry.key[1]} is stopped while its checkpoint request is {request['status'].get('phase')}"

    def _upgraded(self, entry: Entry, known: Known) -> Iterator[str]:
        name = entry.object["metadata"].get("annotations", {}).get(names.ANNOTATION_NODE_UPGRADE, "")
        upgrade = known.get("NodeUpgrade", name)
        owners = {each["uid"] for each in entry.object["metadata"].get("ownerReferences") or []}
        if upgrade is not None and upgrade["metadata"]["uid"] not in owners:  # removed by force, and made anew
            if not any(self._just_removed(owner, entry) for owner in owners):
                yield f"Job {entry.key[1]} works for a node upgrade that is no more"
            return
        phase = (upgrade or {}).get("status", {}).get("phase")
        if upgrade is not None and phase != NodePhase.UPGRADING.value:
            yield f"{name} works on its node while it is {phase}"


class DoubtHolds:
    """Law 8: nothing begins while the controller cannot know how things stand."""

    number = 8

    def __init__(self) -> None:
        self.in_doubt: Callable[[], str] = lambda: ""
        """Why nothing may begin now; empty: everything can be known."""

    def look(self, entry: Entry, known: Known) -> Iterator[str]:  # noqa: ARG002 - as every law
        """What of a change breaks the law."""
        why = self.in_doubt() if entry.by_controller and entry.at == entry.sent else ""
        if not why:
            return
        begins = entry.before is None and entry.kind in {"NodeUpgrade", "CheckpointRequest"}
        closes = entry.kind == "Node" and entry.after is not None and is_closed(entry.after)
        if begins or went_off(entry) or (closes and not (entry.before and is_closed(entry.before))):
            yield f"{entry.kind} {entry.key[1]}: something begins while {why}"


def _left_of_stacks(known: Known) -> Iterator[str]:
    """Operands of a stack that is gone, which no node of another one has."""
    stacks = {stack["metadata"]["name"]: stack for stack in known.of("GpuStack")}
    nodes = [node for node in known.of("Node") if any(selects_node(stack, node) for stack in stacks.values())]
    needed = {value for node in nodes for value in (node["metadata"].get("labels") or {}).values()}
    for one in known.made_of("DaemonSet"):
        labels = one["metadata"].get("labels") or {}
        if labels.get(names.LABEL_STACK, "") not in {"", *stacks} and labels.get(names.LABEL_IMAGE_KEY) not in needed:
            yield f"DaemonSet {one['metadata']['name']} is left of stack {labels[names.LABEL_STACK]}, which is gone"


def _created_at(value: Object) -> datetime:
    return timing.parse_time(value["metadata"]["creationTimestamp"])


def _has_ended(kind: str, value: Object) -> bool:
    phase = (value.get("status") or {}).get("phase")
    if phase is None:
        return False
    if kind == "UpgradePlan" and phase == PlanPhase.PROPOSED.value:
        return True  # it waits for a person, as one of an older spec does for ever
    return is_final(_PHASES[kind](phase))
