"""The laws about nodes and about the settings of other writers: 2, 3, 4, 8 and 10."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from upgrader.api import names
from upgrader.core.constraints.budget import allowed_gpus
from upgrader_dev.chaos.laws.cluster_state import (
    ClusterState,
    has_maintenance_taint,
    is_of_operator,
    node_taints,
    starts_batch,
    starts_upgrade_job,
    was_switched_off,
    was_switched_on,
)
from upgrader_dev.chaos.laws.journal import Author, JournalEntry
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.devices import RENAMED
from upgrader_dev.simulated.cluster.placing import RESOURCE, gpus_of


class ImagesPrepared:
    """Law 2: no node is upgraded, and no gang gets a request, before the image is on the nodes."""

    number = 2

    def __init__(self) -> None:
        self._prepare_pods: set[str] = set()
        """Uids of prepare pods that the controller created."""
        self._prepared: dict[str, datetime] = {}
        """NodeUpgrades whose prepare pod succeeded, and when."""

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        """A sentence for each way in which a change breaks the law; a delayed write is judged by its send time."""
        if entry.kind == "Pod" and is_of_operator(entry.object):
            self._record_preparation(entry)
        elif starts_upgrade_job(entry):
            yield from self._check_upgrade(entry)
        elif entry.kind == "CheckpointRequest" and entry.by_controller and entry.before is None:
            yield from self._check_request(entry, state)

    def _record_preparation(self, entry: JournalEntry) -> None:
        meta = entry.object["metadata"]
        if meta.get("labels", {}).get(names.LABEL_COMPONENT) != "prepare":
            return
        if entry.by_controller and entry.before is None:
            self._prepare_pods.add(meta["uid"])
        if entry.object.get("status", {}).get("phase") == "Succeeded" and meta["uid"] in self._prepare_pods:
            self._prepared.setdefault(meta.get("annotations", {}).get(names.ANNOTATION_NODE_UPGRADE, ""), entry.at)

    def _was_prepared(self, upgrade: str, entry: JournalEntry) -> bool:
        """Whether a node upgrade was prepared when the controller sent a write."""
        since = self._prepared.get(upgrade)
        return since is not None and since <= entry.sent_at

    def _check_upgrade(self, entry: JournalEntry) -> Iterator[str]:
        meta = entry.object["metadata"]
        upgrade = meta.get("annotations", {}).get(names.ANNOTATION_NODE_UPGRADE, "")
        if not meta["name"].startswith("revert") and not self._was_prepared(upgrade, entry):
            yield f"{upgrade} upgrades its node, which was not prepared"

    def _check_request(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        nodes = {pod.get("node", "") for pod in entry.object["spec"].get("members", [])}
        group, then = entry.object["spec"].get("group"), state.state_when_sent(entry)
        all_upgrades = [*state.recently_removed("NodeUpgrade", entry.sent_at), *then.objects_of("NodeUpgrade")]
        upgrades = {
            upgrade["spec"]["node"]["name"]: upgrade["metadata"]["name"]
            for upgrade in all_upgrades
            if upgrade["spec"].get("group") == group
        }
        for node in sorted(nodes - {""}):
            if not self._was_prepared(upgrades.get(node, ""), entry) and not _has_target_revision(
                node, entry.object, then
            ):
                yield f"gang {entry.object['spec'].get('gang')} has a request, and node {node} was not prepared"


def _has_target_revision(node: str, request: Object, state: ClusterState) -> bool:
    """Whether a node has the target revision of the plan already, so that nothing is done to it."""
    current, plan = (
        state.find_object("Node", node),
        state.find_object("UpgradePlan", str(request["spec"].get("plan"))),
    )
    if current is None or plan is None:
        return False
    return bool(current["metadata"].get("labels", {}).get(names.LABEL_REVISION) == plan["spec"].get("targetRevision"))


class ForeignSettingsKept:
    """Law 3: the controller removes only what it set."""

    number = 3

    def __init__(self) -> None:
        self._off_by: dict[str, Author] = {}
        """Who switched an owner off last, by uid."""

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:  # noqa: ARG002 - the signature of every law
        """A sentence for each way in which a change breaks the law."""
        uid = entry.object["metadata"].get("uid", "")
        if was_switched_off(entry):
            self._off_by[uid] = entry.author
        if not entry.by_controller or entry.before is None or entry.after is None:
            return
        if was_switched_on(entry) and self._off_by.get(uid) is not Author.CONTROLLER:
            yield f"{entry.kind} {entry.key[1]} is switched on, and another client had switched it off"
        if entry.kind == "Node":
            yield from _check_node(entry.before, entry.after)
        if entry.kind in {"Node", "Pod"} or not is_of_operator(entry.after):
            yield from _check_metadata(entry, entry.before, entry.after)


def _check_node(before: Object, after: Object) -> Iterator[str]:
    name = before["metadata"]["name"]
    if before["spec"].get("unschedulable") != after["spec"].get("unschedulable"):
        yield f"spec.unschedulable of node {name} is written"
    lost = [taint["key"] for taint in _foreign_taints(before) if taint not in _foreign_taints(after)]
    if lost:
        yield f"node {name} loses taints of others: {', '.join(lost)}"


def _check_metadata(entry: JournalEntry, before: Object, after: Object) -> Iterator[str]:
    for part in ("labels", "annotations"):
        old, new = _foreign_entries(before, part), _foreign_entries(after, part)
        changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        if changed:
            yield f"{part} of {entry.kind} {entry.key[1]} of other writers are changed: {', '.join(changed)}"


def _foreign_entries(value: Object, part: str) -> Mapping[str, Any]:
    return {
        key: value
        for key, value in (value["metadata"].get(part) or {}).items()
        if not key.startswith(f"{names.GROUP}/") and not key.startswith("nvidia.com/gpu.deploy.")
    }


def _foreign_taints(node: Object) -> list[Object]:
    return [taint for taint in node_taints(node) if not taint["key"].startswith(f"{names.GROUP}/")]


class BudgetKept:
    """Law 4: plans never take more GPUs out of service than allowed, with whole gangs counted."""

    number = 4

    def __init__(self) -> None:
        self._allowed_at_batch: dict[str, int] = {}
        """GPUs that each plan was allowed to take when its batch was written: the pool may lose nodes after that."""
        self._taken: dict[str, int] = {}
        """GPUs of nodes that a plan tainted, without GPUs that were out of service before its batch."""
        self._out_before: dict[str, int] = {}
        """GPUs of a batch's nodes that were out of service when it was written: the plan does not take them."""
        self._members: dict[str, tuple[str, dict[str, int]]] = {}
        """Gangs that the controller stopped, by uid of the owner: name, and GPUs by node."""

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        """A sentence for each way in which a change breaks the law."""
        if starts_batch(entry):
            self._allowed_at_batch[entry.key[1]] = _allowed_gpus(entry.object, state)
            groups = entry.object["status"]["batches"][-1].get("groups", [])
            nodes = (state.find_object("Node", name) for group in groups for name in group["nodes"])
            self._out_before |= {node["metadata"]["name"]: _out_of_service(node) for node in nodes if node is not None}
        elif entry.kind == "Node":
            yield from self._check_taint(entry, state)
        elif entry.by_controller and was_switched_off(entry):
            counts: dict[str, int] = {}
            for pod in state.running_members(entry.object):
                node = pod["spec"].get("nodeName", "")
                counts[node] = counts.get(node, 0) + gpus_of(pod)
            self._members[entry.object["metadata"]["uid"]] = entry.key[1], counts
            yield from self._check_budget(state, f"gang {entry.key[1]} is stopped")
        elif was_switched_on(entry) or (entry.after is None and entry.before is not None):
            self._members.pop(entry.object["metadata"].get("uid", ""), None)

    def _check_taint(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        name = entry.key[1]
        if entry.after is None or not has_maintenance_taint(entry.after):
            self._taken.pop(name, None)
        elif entry.by_controller and name not in self._taken and _is_claimed_by_plan(entry.after, state):
            self._taken[name] = max(0, _gpu_count(entry.before or entry.after) - self._out_before.get(name, 0))
            yield from self._check_budget(state, f"node {name} is closed")

    def _check_budget(self, state: ClusterState, what: str) -> Iterator[str]:
        plans = [(plan["metadata"]["name"], _allowed_gpus(plan, state)) for plan in state.objects_of("UpgradePlan")]
        allowed = [max(count, self._allowed_at_batch.get(name, 0)) for name, count in plans]
        elsewhere = sum(
            count for _, counts in self._members.values() for node, count in counts.items() if node not in self._taken
        )
        taken = sum(self._taken.values()) + elsewhere
        if allowed and taken > max(allowed):
            yield f"{what}: {taken} GPUs are out of service for plans, and {max(allowed)} are allowed"


def _is_claimed_by_plan(node: Object, state: ClusterState) -> bool:
    claim = (node["metadata"].get("annotations") or {}).get(names.ANNOTATION_CLAIMED_BY)
    return any(
        upgrade["metadata"]["uid"] == claim and upgrade["spec"].get("plan")
        for upgrade in state.objects_of("NodeUpgrade")
    )


def _gpu_count(node: Object) -> int:
    capacity = node.get("status", {}).get("capacity", {})
    return sum(int(capacity.get(name, 0) or 0) for name in (RESOURCE, RENAMED))


def _out_of_service(node: Object) -> int:
    """GPUs of a node that cannot be used: all GPUs if the node is cordoned or not ready."""
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in node["status"].get("conditions", [])
    )
    if node["spec"].get("unschedulable") or not ready:
        return _gpu_count(node)
    allocatable = node["status"].get("allocatable", {})
    return max(0, _gpu_count(node) - sum(int(allocatable.get(name, 0) or 0) for name in (RESOURCE, RENAMED)))


def _allowed_gpus(plan: Object, state: ClusterState) -> int:
    most = plan["spec"].get("strategy", {}).get("maxUnavailable", "25%")
    return allowed_gpus(most, sum(map(_gpu_count, state.nodes_of_stack(plan["spec"].get("stack", "")))))


SHOWN_WITHIN = timedelta(seconds=200)
"""Within this time a cache of nodes shows a change, or it is out of sync: a silent watch is ended before that."""


class SingleUpgrade:
    """Law 8: an upgrade that may not be alone on its node, or has no known previous state, changes nothing."""

    number = 8

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        """A sentence for each way in which a change breaks the law."""
        if starts_upgrade_job(entry):  # also for a delayed write: by then the Job must do nothing
            yield from _two_upgrades(entry, state)
        if not entry.by_controller or entry.at != entry.sent:
            return
        if entry.kind == "Node" and entry.before is not None and entry.after is not None:
            yield from _unloads_without_previous(entry.before, entry.after, state)
        elif entry.before is None and entry.kind == "NodeUpgrade":
            yield from _reverts_to_no_driver(entry.object["spec"], entry.at - SHOWN_WITHIN, state)


def _two_upgrades(entry: JournalEntry, state: ClusterState) -> Iterator[str]:
    """A sentence if two node upgrades work on the same node."""
    node = entry.object["spec"]["template"]["spec"].get("nodeName", "")
    for pod in state.pods_on(node):
        if is_of_operator(pod) and pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "upgrade":
            yield f"{entry.key[1]} works on node {node} besides pod {pod['metadata']['name']} of another upgrade"


def _reverts_to_no_driver(spec: Object, begin: datetime, state: ClusterState) -> Iterator[str]:
    """A sentence if a new node upgrade would revert to no driver although its node has a driver."""
    name = spec["node"]["name"]
    node = state.find_object("Node", name)
    if node is not None and not state.changed_since(begin, "Node", name, _driver_label):
        yield from _lacks_previous_driver(spec, node, state)


def _unloads_without_previous(before: Object, after: Object, state: ClusterState) -> Iterator[str]:
    """A sentence if a node upgrade unloads a driver and would revert to no driver."""
    if _driver_label(after) != "none":
        return
    claim = before["metadata"].get("annotations", {}).get(names.ANNOTATION_CLAIMED_BY)
    for upgrade in state.objects_of("NodeUpgrade"):
        status = upgrade.get("status") or {}
        if upgrade["metadata"]["uid"] == claim and status.get("phase") == "Unloading" and not status.get("reverting"):
            yield from _lacks_previous_driver(upgrade["spec"], before, state)


def _lacks_previous_driver(spec: Object, node: Object, state: ClusterState) -> Iterator[str]:
    """A sentence if a node upgrade would revert to no driver although its node has one.

    If an upgrade was removed while it worked, the label shows the driver that should be loaded, not the loaded one:
    the previous state is not known.
    """
    existing = {upgrade["metadata"]["uid"] for upgrade in state.objects_of("NodeUpgrade")}
    removed = spec.get("takesOver", "") not in {"", *existing}
    if removed and names.LABEL_REVISION not in node["metadata"].get("labels", {}):
        return
    driver = _driver_label(node)
    if driver != "none" and not (spec.get("source") or {}).get("driverKey"):
        yield f"upgrade of node {spec['node']['name']} would revert to no driver, and the node has driver {driver}"


def _driver_label(node: Object) -> str:
    return node["metadata"].get("labels", {}).get(names.LABEL_DRIVER) or "none"


class NewControllerChangesNothing:
    """Law 10: another release of the controller changes no node."""

    number = 10

    def __init__(self) -> None:
        self.watching = False
        """Whether only the controller is new now."""

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:  # noqa: ARG002 - the signature of every law
        """A sentence for each way in which a change breaks the law."""
        if not self.watching or not entry.by_controller:
            return
        if entry.kind == "Node":
            yield f"node {entry.key[1]} is changed by a new controller"
        elif entry.kind in {"NodeUpgrade", "UpgradePlan"} and entry.before is None:
            yield f"{entry.kind} {entry.key[1]} is created by a new controller"
