"""The state of the cluster according to the journal, which the laws read in addition to the change."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from upgrader.api import names
from upgrader.core.node_protocol.orders import ORDER_VARIABLE
from upgrader.core.workloads.owner_kinds import OwnerKind, owner_kind
from upgrader.core.workloads.suspend_patches import is_off
from upgrader_dev.chaos.laws.journal import JournalEntry
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore
from upgrader_dev.simulated.cluster.placing import gpus_of
from upgrader_dev.simulated.cluster.trainers import ACK

NAMESPACE = "gpu-upgrader-system"
"""The namespace of the operator."""

REMEMBERED = timedelta(minutes=10)
"""Longer than any delay of a write."""

LATE_LOOK = timedelta(minutes=2)
"""A step with slow reads acts on a state that is this old; law 9 requires that its effects are reverted."""

Key = tuple[str, str]
Files = Mapping[tuple[str, str], bytes | Callable[[], bytes | None]]
Mailbox = Mapping[str, tuple[int, int]]


class Violation(Struct, frozen=True, kw_only=True):
    """A violation of a law: when, by which change, and how."""

    law: int
    at: datetime
    sentence: str
    entry: str = ""

    def __str__(self) -> str:
        """One line."""
        return f"law {self.law} at {self.at:%H:%M:%S}: {self.sentence}{f' [{self.entry}]' if self.entry else ''}"


class ClusterState:
    """All objects, and the files of the pods. `mailbox`: requests to pods other than by annotation."""

    def __init__(self, files: Files, mailbox: Callable[[], Mailbox]) -> None:
        self.objects: dict[str, dict[Key, Object]] = {}
        self.created_uids: set[str] = set()
        """Uids of objects that the controller created or that existed at the beginning."""
        self._files, self._mailbox = files, mailbox
        self._recent_entries: deque[JournalEntry] = deque()

    def load_store(self, store: ObjectStore) -> None:
        """Load the objects that exist already."""
        for stored in store.all_objects():
            meta = stored.value["metadata"]
            self.objects.setdefault(stored.kind.kind, {})[meta.get("namespace", ""), meta["name"]] = stored.value
            self.created_uids.add(meta["uid"])

    def record_entry(self, entry: JournalEntry) -> None:
        """Record one change."""
        self._recent_entries.append(entry)
        while entry.at - self._recent_entries[0].at > REMEMBERED:
            self._recent_entries.popleft()
        if entry.before is None and entry.by_controller:
            self.created_uids.add(entry.object["metadata"]["uid"])
        objects = self.objects.setdefault(entry.kind, {})
        if entry.after is None:
            objects.pop(entry.key, None)
        else:
            objects[entry.key] = entry.after

    def state_when_sent(self, entry: JournalEntry) -> "ClusterState":
        """All objects as they were when the controller sent a write: it cannot act on later changes."""
        sent = entry.sent
        if sent is None or sent == entry.at:
            return self
        then = ClusterState(self._files, self._mailbox)
        then.created_uids = self.created_uids
        then.objects = {kind: dict(objects) for kind, objects in self.objects.items()}
        for past in reversed(self._recent_entries):
            if past.at <= sent:
                break
            if past.before is None:
                then.objects[past.kind].pop(past.key, None)
            else:
                then.objects[past.kind][past.key] = past.before
        return then

    def changed_since(self, load_store: datetime, kind: str, name: str, fact: Callable[[Object], object]) -> bool:
        """Whether a fact of an object changed after a time, which is at most `REMEMBERED` ago."""
        mine = (
            past for past in self._recent_entries if past.at > load_store and past.kind == kind and past.key[1] == name
        )
        return any(past.before and past.after and fact(past.before) != fact(past.after) for past in mine)

    def objects_of(self, kind: str) -> Iterable[Object]:
        """All objects of a kind."""
        return self.objects.get(kind, {}).values()

    def created_objects(self, kind: str) -> list[Object]:
        """Objects of a kind that were not created by tenants."""
        return [value for value in self.objects_of(kind) if value["metadata"]["uid"] in self.created_uids]

    def find_object(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """An object by its name."""
        return self.objects.get(kind, {}).get((namespace, name))

    def nodes_of_stack(self, stack: str) -> list[Object]:
        """Nodes of a stack, including nodes without the label for a while: all nodes that no other stack selects."""
        others = [
            stack_object for stack_object in self.objects_of("GpuStack") if stack_object["metadata"]["name"] != stack
        ]
        return [node for node in self.objects_of("Node") if not any(selects_node(other, node) for other in others)]

    def pods_on(self, node: str) -> list[Object]:
        """Pods bound to a node that have not ended."""
        return [pod for pod in self.objects_of("Pod") if pod["spec"].get("nodeName") == node and not has_ended(pod)]

    def running_members(self, owner: Object) -> list[Object]:
        """Pods of an owner, direct or indirect, that run and are not being deleted."""
        uids = {owner["metadata"]["uid"]}
        if owner.get("kind") == "Workload":  # a Workload belongs to its Job, and not the Job to the Workload
            uids |= {reference["uid"] for reference in owner["metadata"].get("ownerReferences", [])}
        jobs = (job for job in self.objects_of("Job") if _is_owned(job, uids))
        uids |= {job["metadata"]["uid"] for job in jobs}
        return [pod for pod in self.objects_of("Pod") if _is_owned(pod, uids) and is_working(pod)]

    def owners_of(self, pod: Object) -> list[Object]:
        """The owners of a pod, their owners, and the queue's Workload, which suspends and resumes its Job."""
        owners: list[Object] = []
        waiting = [pod]
        while waiting:
            references = waiting.pop()["metadata"].get("ownerReferences") or []
            for reference in references:
                owner = self.find_object(reference["kind"], reference["name"], pod["metadata"].get("namespace", ""))
                if owner is not None and owner["metadata"]["uid"] == reference["uid"] and owner not in owners:
                    owners.append(owner)
                    waiting.append(owner)
        uids = {owner["metadata"]["uid"] for owner in owners}
        return owners + [workload for workload in self.objects_of("Workload") if _is_owned(workload, uids)]

    def is_expendable(self, pod: Object, at: datetime) -> bool:
        """Whether an approved plan names its gang as expendable, or did a short time ago."""
        meta = pod["metadata"]
        gangs = {f"{meta['namespace']}/Pod/{meta['name']}"}
        gangs |= {f"{meta['namespace']}/{owner['kind']}/{owner['metadata']['name']}" for owner in self.owners_of(pod)}
        plans = [*self.objects_of("UpgradePlan"), *self.recently_removed("UpgradePlan", at)]
        approved = ((plan["spec"].get("approval") or {}).get("limits", {}) for plan in plans)
        return any(gangs & set(limits.get("expendable", [])) for limits in approved)

    def recently_removed(self, kind: str, at: datetime) -> list[Object]:
        """Objects that were removed so recently that a step with slow reads may still see them."""
        lately = (past for past in self._recent_entries if past.kind == kind and at - past.at <= LATE_LOOK)
        return [past.object for past in lately if past.after is None]

    def allows_unguaranteed_placement(self) -> bool:
        """Whether an approved plan allows to restart gangs that cannot be led to upgraded nodes."""
        approved = ((plan["spec"].get("approval") or {}).get("limits", {}) for plan in self.objects_of("UpgradePlan"))
        return any(limits.get("placementUnguaranteed") for limits in approved)

    def find_missing_acknowledgement(self, pods: Iterable[Object]) -> str:
        """Why these members have not acknowledged the same checkpoint; empty if they have."""
        steps: dict[int, str] = {}
        for pod in pods:
            meta = pod["metadata"]
            ack, requested = self._read_acknowledgement(meta["uid"]), self._requested_id(pod)
            if ack is None:
                return f"{meta['name']} has not acknowledged"
            if ack.get("podUid") != meta["uid"] or ack.get("requestId") != requested or not requested:
                return f"{meta['name']} acknowledged request {ack.get('requestId')} instead of {requested}"
            if not ack.get("parked") or ack.get("refused"):
                return f"{meta['name']} continues to train"
            steps[ack.get("step", -1)] = meta["name"]
        return f"members acknowledged different steps: {sorted(steps)}" if len(steps) > 1 else ""

    def _read_acknowledgement(self, uid: str) -> dict[str, Any] | None:
        content = self._files.get((uid, ACK))
        text = content() if callable(content) else content
        try:
            acknowledgement = json.loads(text) if text else None
        except (ValueError, RecursionError):
            return None
        return acknowledgement if isinstance(acknowledgement, dict) else None

    def _requested_id(self, pod: Object) -> int:
        text = str((pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_REQUEST, "0"))
        by_mark = int(text) if text.isdecimal() and len(text) < 20 else 0
        return max(by_mark, self._mailbox().get(pod["metadata"]["uid"], (0, 0))[0])


def has_ended(pod: Object) -> bool:
    """Whether no container of a pod runs any more."""
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def is_working(pod: Object) -> bool:
    """Whether a pod runs and is not being deleted."""
    return pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def is_of_operator(value: Object) -> bool:
    """Whether a pod or Job is in the operator's namespace, regardless of its labels."""
    return bool(value["metadata"].get("namespace") == NAMESPACE)


def returns_with_node(pod: Object) -> bool:
    """Whether a pod is recreated with its node."""
    return any(reference["kind"] in {"DaemonSet", "Node"} for reference in pod["metadata"].get("ownerReferences") or [])


def holds_gpus(pod: Object) -> bool:
    """Whether a pod holds devices that a node upgrade removes."""
    return gpus_of(pod) > 0


def declares_checkpoint(value: Object) -> bool:
    """Whether an object declares a checkpoint method."""
    return bool((value["metadata"].get("annotations") or {}).get(names.ANNOTATION_METHOD))


def is_replicated(pod: Object) -> bool:
    """Whether its owner replaces a pod that is evicted."""
    return any(
        reference["kind"] in {"ReplicaSet", "ReplicationController", "StatefulSet"}
        for reference in pod["metadata"].get("ownerReferences") or []
    )


def find_owner_kind(value: Object) -> OwnerKind | None:
    """The row of an object in the table of owner kinds."""
    return owner_kind(value.get("kind", ""), value.get("apiVersion", ""))


def selects_node(stack: Object, node: Object) -> bool:
    """Whether a node belongs to a stack's pool."""
    labels, selector = node["metadata"].get("labels") or {}, stack["spec"].get("nodeSelector") or {}
    return all(labels.get(name) == value for name, value in selector.items())


def is_steered(owner: Object) -> bool:
    """Whether the pods of an owner can be led to upgraded nodes when it is restarted."""
    row = find_owner_kind(owner)
    return row is not None and bool(row.templates)


def starts_batch(entry: JournalEntry) -> bool:
    """Whether the controller wrote a new batch of a plan."""
    if entry.kind != "UpgradePlan" or not entry.by_controller or entry.before is None or entry.after is None:
        return False
    before, after = (len(value.get("status", {}).get("batches") or []) for value in (entry.before, entry.after))
    return before < after


def was_switched_off(entry: JournalEntry) -> bool:
    """Whether an owner was switched off."""
    return _is_switched(entry, off=True)


def was_switched_on(entry: JournalEntry) -> bool:
    """Whether an owner was switched on."""
    return _is_switched(entry, off=False)


def _is_switched(entry: JournalEntry, *, off: bool) -> bool:
    if entry.before is None or entry.after is None or is_of_operator(entry.after):
        return False
    row = find_owner_kind(entry.after)
    return row is not None and is_off(row, entry.after) is off and is_off(row, entry.before) is not off


def read_stop_record(value: Object) -> dict[str, Any] | None:
    """The controller's record of a stop on an owner; None if there is no valid record."""
    text = (value["metadata"].get("annotations") or {}).get(names.ANNOTATION_STOPPED)
    if text is None:
        return None
    try:
        record = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def node_taints(node: Object) -> list[Object]:
    """The taints of a node."""
    return list(node.get("spec", {}).get("taints") or [])


def has_maintenance_taint(node: Object) -> bool:
    """Whether a node has the operator's taint, which keeps pods away."""
    return any(taint["key"] == names.TAINT_MAINTENANCE for taint in node_taints(node))


def starts_upgrade_job(entry: JournalEntry) -> bool:
    """Whether the controller started the Job of a node upgrade, which it creates suspended."""
    if entry.kind != "Job" or entry.after is None or not entry.by_controller or not is_of_operator(entry.after):
        return False
    if entry.after["spec"].get("suspend") or not (entry.before is None or entry.before["spec"].get("suspend")):
        return False
    return bool(entry.object["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "upgrade")


def reboots_node(entry: JournalEntry) -> bool:
    """Whether the Job of a node upgrade reboots its node."""
    containers = entry.object["spec"]["template"]["spec"].get("containers", [])
    orders = [
        variable.get("value", "{}")
        for container in containers
        for variable in container.get("env", [])
        if variable["name"] == ORDER_VARIABLE
    ]
    return any(json.loads(order).get("reboot") for order in orders)


def _is_owned(value: Object, uids: set[str]) -> bool:
    return any(reference["uid"] in uids for reference in value["metadata"].get("ownerReferences") or [])
