"""The world as a log of changes tells it: what the laws look at beside the change itself."""

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
from upgrader_dev.chaos.laws.journal import Entry
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectStore
from upgrader_dev.simulated.cluster.placing import gpus_of
from upgrader_dev.simulated.cluster.trainers import ACK

NAMESPACE = "gpu-upgrader-system"
"""Where our own pods are."""

REMEMBERED = timedelta(minutes=10)
"""Longer than any write is late."""

LATE_LOOK = timedelta(minutes=2)
"""A step whose reads are slow acts by what it saw so long ago; what comes of it has to be taken back (law 9)."""

Key = tuple[str, str]
Files = Mapping[tuple[str, str], bytes | Callable[[], bytes | None]]
Mailbox = Mapping[str, tuple[int, int]]


class Violation(Struct, frozen=True, kw_only=True):
    """A law that was broken: when, by what, and how."""

    law: int
    at: datetime
    sentence: str
    entry: str = ""

    def __str__(self) -> str:
        """In one line, for people."""
        return f"law {self.law} at {self.at:%H:%M:%S}: {self.sentence}{f' [{self.entry}]' if self.entry else ''}"


class Known:
    """All objects, and what lies in the pods' files. `mailbox`: what pods were asked otherwise than by annotation."""

    def __init__(self, files: Files, mailbox: Callable[[], Mailbox]) -> None:
        self.objects: dict[str, dict[Key, Object]] = {}
        self.made: set[str] = set()
        """Uids of what the controller made, or was there at the beginning."""
        self._files, self._mailbox = files, mailbox
        self._lately: deque[Entry] = deque()

    def begin(self, store: ObjectStore) -> None:
        """Take over what is there already."""
        for stored in store.everything():
            meta = stored.value["metadata"]
            self.objects.setdefault(stored.kind.kind, {})[meta.get("namespace", ""), meta["name"]] = stored.value
            self.made.add(meta["uid"])

    def take(self, entry: Entry) -> None:
        """Take in one change."""
        self._lately.append(entry)
        while entry.at - self._lately[0].at > REMEMBERED:
            self._lately.popleft()
        if entry.before is None and entry.by_controller:
            self.made.add(entry.object["metadata"]["uid"])
        objects = self.objects.setdefault(entry.kind, {})
        if entry.after is None:
            objects.pop(entry.key, None)
        else:
            objects[entry.key] = entry.after

    def when_sent(self, entry: Entry) -> "Known":
        """All objects as they were when the controller sent a write: of no more than that could it know."""
        sent = entry.sent
        if sent is None or sent == entry.at:
            return self
        then = Known(self._files, self._mailbox)
        then.made = self.made
        then.objects = {kind: dict(objects) for kind, objects in self.objects.items()}
        for each in reversed(self._lately):
            if each.at <= sent:
                break
            if each.before is None:
                then.objects[each.kind].pop(each.key, None)
            else:
                then.objects[each.kind][each.key] = each.before
        return then

    def changed_since(self, begin: datetime, kind: str, name: str, fact: Callable[[Object], object]) -> bool:
        """Whether a fact of an object became another one after a time, which is no more than `REMEMBERED` ago."""
        mine = (each for each in self._lately if each.at > begin and each.kind == kind and each.key[1] == name)
        return any(each.before and each.after and fact(each.before) != fact(each.after) for each in mine)

    def of(self, kind: str) -> Iterable[Object]:
        """All objects of a kind."""
        return self.objects.get(kind, {}).values()

    def made_of(self, kind: str) -> list[Object]:
        """Objects of a kind that are not somebody else's."""
        return [value for value in self.of(kind) if value["metadata"]["uid"] in self.made]

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """An object by its name."""
        return self.objects.get(kind, {}).get((namespace, name))

    def pool(self, stack: str) -> list[Object]:
        """Nodes of a stack, those among them whose label is away for a moment: all that no other stack selects."""
        others = [one for one in self.of("GpuStack") if one["metadata"]["name"] != stack]
        return [node for node in self.of("Node") if not any(selects_node(one, node) for one in others)]

    def pods_on(self, node: str) -> list[Object]:
        """Pods bound to a node that have not ended."""
        return [pod for pod in self.of("Pod") if pod["spec"].get("nodeName") == node and not has_ended(pod)]

    def members(self, owner: Object) -> list[Object]:
        """Pods of an owner that run and are not on their way out, whatever stands between it and them."""
        uids = {owner["metadata"]["uid"]}
        if owner.get("kind") == "Workload":  # it is its Job's, and not the other way round
            uids |= {each["uid"] for each in owner["metadata"].get("ownerReferences", [])}
        jobs = (job for job in self.of("Job") if _is_owned(job, uids))
        uids |= {job["metadata"]["uid"] for job in jobs}
        return [pod for pod in self.of("Pod") if _is_owned(pod, uids) and is_working(pod)]

    def owners_of(self, pod: Object) -> list[Object]:
        """What made a pod, and what made that; a queue's Workload, which stands beside its Job and switches it."""
        found: list[Object] = []
        waiting = [pod]
        while waiting:
            references = waiting.pop()["metadata"].get("ownerReferences") or []
            for each in references:
                owner = self.get(each["kind"], each["name"], pod["metadata"].get("namespace", ""))
                if owner is not None and owner["metadata"]["uid"] == each["uid"] and owner not in found:
                    found.append(owner)
                    waiting.append(owner)
        uids = {owner["metadata"]["uid"] for owner in found}
        return found + [each for each in self.of("Workload") if _is_owned(each, uids)]

    def expendable(self, pod: Object, at: datetime) -> bool:
        """Whether an approved plan names its gang as one that may be ended, or did until a short time ago."""
        meta = pod["metadata"]
        gangs = {f"{meta['namespace']}/Pod/{meta['name']}"}
        gangs |= {f"{meta['namespace']}/{each['kind']}/{each['metadata']['name']}" for each in self.owners_of(pod)}
        plans = [*self.of("UpgradePlan"), *self.removed("UpgradePlan", at)]
        approved = ((plan["spec"].get("approval") or {}).get("limits", {}) for plan in plans)
        return any(gangs & set(limits.get("expendable", [])) for limits in approved)

    def removed(self, kind: str, at: datetime) -> list[Object]:
        """What was removed so short a time before that a step whose reads are slow may not know it."""
        lately = (each for each in self._lately if each.kind == kind and at - each.at <= LATE_LOOK)
        return [each.object for each in lately if each.after is None]

    def unguaranteed(self) -> bool:
        """Whether an approved plan allows to restart gangs that cannot be steered to upgraded nodes."""
        approved = ((plan["spec"].get("approval") or {}).get("limits", {}) for plan in self.of("UpgradePlan"))
        return any(limits.get("placementUnguaranteed") for limits in approved)

    def not_acknowledged(self, pods: Iterable[Object]) -> str:
        """Why these members have not acknowledged one checkpoint; empty when they have."""
        steps: dict[int, str] = {}
        for pod in pods:
            meta = pod["metadata"]
            ack, asked = self._ack(meta["uid"]), self._asked(pod)
            if ack is None:
                return f"{meta['name']} has acknowledged nothing"
            if ack.get("podUid") != meta["uid"] or ack.get("requestId") != asked or not asked:
                return f"{meta['name']} has acknowledged {ack.get('requestId')}, and was asked {asked}"
            if not ack.get("parked") or ack.get("refused"):
                return f"{meta['name']} trains on"
            steps[ack.get("step", -1)] = meta["name"]
        return f"members have acknowledged different steps: {sorted(steps)}" if len(steps) > 1 else ""

    def _ack(self, uid: str) -> dict[str, Any] | None:
        found = self._files.get((uid, ACK))
        text = found() if callable(found) else found
        try:
            said = json.loads(text) if text else None
        except (ValueError, RecursionError):
            return None
        return said if isinstance(said, dict) else None

    def _asked(self, pod: Object) -> int:
        text = str((pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_REQUEST, "0"))
        by_mark = int(text) if text.isdecimal() and len(text) < 20 else 0
        return max(by_mark, self._mailbox().get(pod["metadata"]["uid"], (0, 0))[0])


def has_ended(pod: Object) -> bool:
    """Whether nothing of a pod runs any more."""
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def is_working(pod: Object) -> bool:
    """Whether a pod works, and is not on its way out."""
    return pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def is_ours(value: Object) -> bool:
    """Whether a pod or Job is of our own making: in our namespace, whatever labels others carry."""
    return bool(value["metadata"].get("namespace") == NAMESPACE)


def of_the_node(pod: Object) -> bool:
    """Whether a pod comes back with its node."""
    return any(each["kind"] in {"DaemonSet", "Node"} for each in pod["metadata"].get("ownerReferences") or [])


def holds_gpus(pod: Object) -> bool:
    """Whether a pod has devices that a node upgrade takes away."""
    return gpus_of(pod) > 0


def declares_checkpoint(value: Object) -> bool:
    """Whether an object says how to ask for a checkpoint."""
    return bool((value["metadata"].get("annotations") or {}).get(names.ANNOTATION_METHOD))


def is_replicated(pod: Object) -> bool:
    """Whether its owner makes another one for a pod that is evicted."""
    return any(
        each["kind"] in {"ReplicaSet", "ReplicationController", "StatefulSet"}
        for each in pod["metadata"].get("ownerReferences") or []
    )


def owner_row(value: Object) -> OwnerKind | None:
    """Its row in the table of owners."""
    return owner_kind(value.get("kind", ""), value.get("apiVersion", ""))


def selects_node(stack: Object, node: Object) -> bool:
    """Whether a node is of a stack's pool."""
    labels, selector = node["metadata"].get("labels") or {}, stack["spec"].get("nodeSelector") or {}
    return all(labels.get(name) == value for name, value in selector.items())


def is_steered(owner: Object) -> bool:
    """Whether the pods of an owner can be led to upgraded nodes when it is restarted."""
    row = owner_row(owner)
    return row is not None and bool(row.templates)


def starts_batch(entry: Entry) -> bool:
    """Whether the controller wrote a batch that a plan starts."""
    if entry.kind != "UpgradePlan" or not entry.by_controller or entry.before is None or entry.after is None:
        return False
    before, after = (len(value.get("status", {}).get("batches") or []) for value in (entry.before, entry.after))
    return before < after


def went_off(entry: Entry) -> bool:
    """Whether an owner was switched off."""
    return _is_switched(entry, off=True)


def went_on(entry: Entry) -> bool:
    """Whether an owner was switched on."""
    return _is_switched(entry, off=False)


def _is_switched(entry: Entry, *, off: bool) -> bool:
    if entry.before is None or entry.after is None or is_ours(entry.after):
        return False
    row = owner_row(entry.after)
    return row is not None and is_off(row, entry.after) is off and is_off(row, entry.before) is not off


def stopped_by(value: Object) -> dict[str, Any] | None:
    """Our record of a stop on an owner."""
    text = (value["metadata"].get("annotations") or {}).get(names.ANNOTATION_STOPPED)
    if text is None:
        return None
    try:
        said = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def taints_of(node: Object) -> list[Object]:
    """A node's taints."""
    return list(node.get("spec", {}).get("taints") or [])


def is_closed(node: Object) -> bool:
    """Whether our own taint keeps pods off a node."""
    return any(taint["key"] == names.TAINT_MAINTENANCE for taint in taints_of(node))


def is_upgrade_job(entry: Entry) -> bool:
    """Whether the controller has just started the Job of a node upgrade, which it makes suspended."""
    if entry.kind != "Job" or entry.after is None or not entry.by_controller or not is_ours(entry.after):
        return False
    if entry.after["spec"].get("suspend") or not (entry.before is None or entry.before["spec"].get("suspend")):
        return False
    return bool(entry.object["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "upgrade")


def is_reboot(entry: Entry) -> bool:
    """Whether the Job of a node upgrade reboots its node."""
    containers = entry.object["spec"]["template"]["spec"].get("containers", [])
    orders = [
        each.get("value", "{}") for one in containers for each in one.get("env", []) if each["name"] == ORDER_VARIABLE
    ]
    return any(json.loads(order).get("reboot") for order in orders)


def _is_owned(value: Object, uids: set[str]) -> bool:
    return any(each["uid"] in uids for each in value["metadata"].get("ownerReferences") or [])
