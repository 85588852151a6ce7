"""The laws about what is done to nodes and to what others set: 2, 3, 4 and 10."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from upgrader.api import names
from upgrader.core.constraints.budget import allowed_gpus
from upgrader_dev.chaos.laws.journal import Author, Entry
from upgrader_dev.chaos.laws.known import (
    Known,
    is_closed,
    is_ours,
    is_upgrade_job,
    starts_batch,
    taints_of,
    went_off,
    went_on,
)
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.devices import RENAMED
from upgrader_dev.simulated.cluster.placing import RESOURCE, gpus_of


class Prepared:
    """Law 2: no node is upgraded, and no gang asked, before the image is on the nodes."""

    number = 2

    def __init__(self) -> None:
        self._made: set[str] = set()
        """Uids of prepare pods that the controller made."""
        self._prepared: dict[str, datetime] = {}
        """NodeUpgrades whose prepare pod has succeeded, and when."""

    def look(self, entry: Entry, known: Known) -> Iterator[str]:
        """What of a change breaks the law; what arrives late is judged by what was there when it was sent."""
        if entry.kind == "Pod" and is_ours(entry.object):
            self._prepares(entry)
        elif is_upgrade_job(entry):
            yield from self._upgraded(entry)
        elif entry.kind == "CheckpointRequest" and entry.by_controller and entry.before is None:
            yield from self._asked(entry, known)

    def _prepares(self, entry: Entry) -> None:
        meta = entry.object["metadata"]
        if meta.get("labels", {}).get(names.LABEL_COMPONENT) != "prepare":
            return
        if entry.by_controller and entry.before is None:
            self._made.add(meta["uid"])
        if entry.object.get("status", {}).get("phase") == "Succeeded" and meta["uid"] in self._made:
            self._prepared.setdefault(meta.get("annotations", {}).get(names.ANNOTATION_NODE_UPGRADE, ""), entry.at)

    def _was_prepared(self, upgrade: str, entry: Entry) -> bool:
        """Whether a node upgrade was prepared when the controller sent a write."""
        since = self._prepared.get(upgrade)
        return since is not None and since <= entry.sent_at

    def _upgraded(self, entry: Entry) -> Iterator[str]:
        meta = entry.object["metadata"]
        upgrade = meta.get("annotations", {}).get(names.ANNOTATION_NODE_UPGRADE, "")
        if not meta["name"].startswith("revert") and not self._was_prepared(upgrade, entry):
            yield f"{upgrade} works on its node, which was not prepared"

    def _asked(self, entry: Entry, known: Known) -> Iterator[str]:
        nodes = {each.get("node", "") for each in entry.object["spec"].get("members", [])}
        group, then = entry.object["spec"].get("group"), known.when_sent(entry)
        all_upgrades = [*known.removed("NodeUpgrade", entry.sent_at), *then.of("NodeUpgrade")]
        upgrades = {
            each["spec"]["node"]["name"]: each["metadata"]["name"]
            for each in all_upgrades
            if each["spec"].get("group") == group
        }
        for node in sorted(nodes - {""}):
            if not self._was_prepared(upgrades.get(node, ""), entry) and not _is_there(node, entry.object, then):
                yield f"gang {entry.object['spec'].get('gang')} is asked, and node {node} was not prepared"


def _is_there(node: str, request: Object, known: Known) -> bool:
    """Whether a node has what the plan goes to already, so that nothing is done to it."""
    found, plan = known.get("Node", node), known.get("UpgradePlan", str(request["spec"].get("plan")))
    if found is None or plan is None:
        return False
    return bool(found["metadata"].get("labels", {}).get(names.LABEL_REVISION) == plan["spec"].get("targetRevision"))


class OthersSet:
    """Law 3: what we did not set we do not unset."""

    number = 3

    def __init__(self) -> None:
        self._off_by: dict[str, Author] = {}
        """Who switched an owner off last, by uid."""

    def look(self, entry: Entry, known: Known) -> Iterator[str]:  # noqa: ARG002 - as every law
        """What of a change breaks the law."""
        uid = entry.object["metadata"].get("uid", "")
        if went_off(entry):
            self._off_by[uid] = entry.author
        if not entry.by_controller or entry.before is None or entry.after is None:
            return
        if went_on(entry) and self._off_by.get(uid) is not Author.CONTROLLER:
            yield f"{entry.kind} {entry.key[1]} is switched on, which somebody else had switched off"
        if entry.kind == "Node":
            yield from _node_kept(entry.before, entry.after)
        if entry.kind in {"Node", "Pod"} or not is_ours(entry.after):
            yield from _marks_kept(entry, entry.before, entry.after)


def _node_kept(before: Object, after: Object) -> Iterator[str]:
    name = before["metadata"]["name"]
    if before["spec"].get("unschedulable") != after["spec"].get("unschedulable"):
        yield f"spec.unschedulable of node {name} is written"
    lost = [each["key"] for each in _foreign_taints(before) if each not in _foreign_taints(after)]
    if lost:
        yield f"node {name} loses taints of others: {', '.join(lost)}"


def _marks_kept(entry: Entry, before: Object, after: Object) -> Iterator[str]:
    for part in ("labels", "annotations"):
        old, new = _foreign_entries(before, part), _foreign_entries(after, part)
        changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        if changed:
            yield f"{part} of {entry.kind} {entry.key[1]} that are not ours are changed: {', '.join(changed)}"


def _foreign_entries(value: Object, part: str) -> Mapping[str, Any]:
    return {
        key: found
        for key, found in (value["metadata"].get(part) or {}).items()
        if not key.startswith(f"{names.GROUP}/") and not key.startswith("nvidia.com/gpu.deploy.")
    }


def _foreign_taints(node: Object) -> list[Object]:
    return [each for each in taints_of(node) if not each["key"].startswith(f"{names.GROUP}/")]


class Budget:
    """Law 4: plans never have more GPUs out of service than they may, whole gangs counted."""

    number = 4

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}
        """What each plan might take when its batch was written: the pool may lose nodes after that."""
        self._taken: dict[str, int] = {}
        """GPUs of nodes that a plan has closed, without those that were out of service before its batch."""
        self._out: dict[str, int] = {}
        """GPUs of the nodes of a batch that were out of service when it was written: it takes nothing more there."""
        self._members: dict[str, tuple[str, dict[str, int]]] = {}
        """Of gangs that we stopped, by owner's uid: name, and GPUs by node."""

    def look(self, entry: Entry, known: Known) -> Iterator[str]:
        """What of a change breaks the law."""
        if starts_batch(entry):
            self._counted[entry.key[1]] = _allowed_gpus(entry.object, known)
            groups = entry.object["status"]["batches"][-1].get("groups", [])
            nodes = (known.get("Node", name) for each in groups for name in each["nodes"])
            self._out |= {node["metadata"]["name"]: _out_of_service(node) for node in nodes if node is not None}
        elif entry.kind == "Node":
            yield from self._closed(entry, known)
        elif entry.by_controller and went_off(entry):
            counts: dict[str, int] = {}
            for pod in known.members(entry.object):
                node = pod["spec"].get("nodeName", "")
                counts[node] = counts.get(node, 0) + gpus_of(pod)
            self._members[entry.object["metadata"]["uid"]] = entry.key[1], counts
            yield from self._judged(known, f"gang {entry.key[1]} is stopped")
        elif went_on(entry) or (entry.after is None and entry.before is not None):
            self._members.pop(entry.object["metadata"].get("uid", ""), None)

    def _closed(self, entry: Entry, known: Known) -> Iterator[str]:
        name = entry.key[1]
        if entry.after is None or not is_closed(entry.after):
            self._taken.pop(name, None)
        elif entry.by_controller and name not in self._taken and _by_plan(entry.after, known):
            self._taken[name] = max(0, _gpu_count(entry.before or entry.after) - self._out.get(name, 0))
            yield from self._judged(known, f"node {name} is closed")

    def _judged(self, known: Known, what: str) -> Iterator[str]:
        plans = [(plan["metadata"]["name"], _allowed_gpus(plan, known)) for plan in known.of("UpgradePlan")]
        allowed = [max(count, self._counted.get(name, 0)) for name, count in plans]
        elsewhere = sum(
            count for _, counts in self._members.values() for node, count in counts.items() if node not in self._taken
        )
        taken = sum(self._taken.values()) + elsewhere
        if allowed and taken > max(allowed):
            yield f"{what}: {taken} GPUs are out of service for plans, which may take {max(allowed)}"


def _by_plan(node: Object, known: Known) -> bool:
    claim = (node["metadata"].get("annotations") or {}).get(names.ANNOTATION_CLAIMED_BY)
    return any(each["metadata"]["uid"] == claim and each["spec"].get("plan") for each in known.of("NodeUpgrade"))


def _gpu_count(node: Object) -> int:
    capacity = node.get("status", {}).get("capacity", {})
    return sum(int(capacity.get(name, 0) or 0) for name in (RESOURCE, RENAMED))


def _out_of_service(node: Object) -> int:
    """GPUs of a node that nobody has anything of: all where a person keeps pods off it, or it is not ready."""
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", []))
    if node["spec"].get("unschedulable") or not ready:
        return _gpu_count(node)
    allocatable = node["status"].get("allocatable", {})
    return max(0, _gpu_count(node) - sum(int(allocatable.get(name, 0) or 0) for name in (RESOURCE, RENAMED)))


def _allowed_gpus(plan: Object, known: Known) -> int:
    most = plan["spec"].get("strategy", {}).get("maxUnavailable", "25%")
    return allowed_gpus(most, sum(map(_gpu_count, known.pool(plan["spec"].get("stack", "")))))


SHOWN_WITHIN = timedelta(seconds=200)
"""In what time a cache of nodes shows a change, or is out of step: a watch that fell silent is cut before that."""


class OneUpgrade:
    """Law 8: where an upgrade cannot know that it is alone on its node, or what to go back to, it changes nothing."""

    number = 8

    def look(self, entry: Entry, known: Known) -> Iterator[str]:
        """What of a change breaks the law."""
        if is_upgrade_job(entry):  # also where it was sent long ago: by then it must do nothing
            yield from _two_upgrades(entry, known)
        if not entry.by_controller or entry.at != entry.sent:
            return
        if entry.kind == "Node" and entry.before is not None and entry.after is not None:
            yield from _forgets_driver(entry.before, entry.after, known)
        elif entry.before is None and entry.kind == "NodeUpgrade":
            yield from _ordered_without_driver(entry.object["spec"], entry.at - SHOWN_WITHIN, known)


def _two_upgrades(entry: Entry, known: Known) -> Iterator[str]:
    """That a node upgrade works on its node beside another."""
    node = entry.object["spec"]["template"]["spec"].get("nodeName", "")
    for pod in known.pods_on(node):
        if is_ours(pod) and pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "upgrade":
            yield f"{entry.key[1]} works on node {node} beside pod {pod['metadata']['name']} of another upgrade"


def _ordered_without_driver(spec: Object, begin: datetime, known: Known) -> Iterator[str]:
    """That a node upgrade is ordered that would go back to no driver although its node has had one for long."""
    name = spec["node"]["name"]
    node = known.get("Node", name)
    if node is not None and not known.changed_since(begin, "Node", name, _driver_label):
        yield from _would_forget(spec, node, known)


def _forgets_driver(before: Object, after: Object, known: Known) -> Iterator[str]:
    """That a node upgrade switches a driver off and would go back to none."""
    if _driver_label(after) != "none":
        return
    claim = before["metadata"].get("annotations", {}).get(names.ANNOTATION_CLAIMED_BY)
    for upgrade in known.of("NodeUpgrade"):
        status = upgrade.get("status") or {}
        if upgrade["metadata"]["uid"] == claim and status.get("phase") == "Unloading" and not status.get("reverting"):
            yield from _would_forget(upgrade["spec"], before, known)


def _would_forget(spec: Object, node: Object, known: Known) -> Iterator[str]:
    """That a node upgrade would go back to no driver although its node has one.

    Where an upgrade was removed in its midst the label says what should have been loaded, not what is: nothing to go
    back to is known there.
    """
    there = {each["metadata"]["uid"] for each in known.of("NodeUpgrade")}
    removed = spec.get("takesOver", "") not in {"", *there}
    if removed and names.LABEL_REVISION not in node["metadata"].get("labels", {}):
        return
    driver = _driver_label(node)
    if driver != "none" and not (spec.get("source") or {}).get("driverKey"):
        yield f"upgrade of node {spec['node']['name']} would go back to none, and the node has driver {driver}"


def _driver_label(node: Object) -> str:
    return node["metadata"].get("labels", {}).get(names.LABEL_DRIVER) or "none"


class NewController:
    """Law 10: another release of the controller changes no node."""

    number = 10

    def __init__(self) -> None:
        self.watching = False
        """Whether nothing but the controller is new now."""

    def look(self, entry: Entry, known: Known) -> Iterator[str]:  # noqa: ARG002 - as every law
        """What of a change breaks the law."""
        if not self.watching or not entry.by_controller:
            return
        if entry.kind == "Node":
            yield f"node {entry.key[1]} is changed by a new controller"
        elif entry.kind in {"NodeUpgrade", "UpgradePlan"} and entry.before is None:
            yield f"{entry.kind} {entry.key[1]} is made by a new controller"
