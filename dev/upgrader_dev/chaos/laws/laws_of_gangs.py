"""The laws about gangs: 1, 5 and 9."""

from collections import Counter
from collections.abc import Iterator

from upgrader.api import names
from upgrader.core.model.phases import RequestPhase
from upgrader_dev.chaos.laws.cluster_state import (
    NAMESPACE,
    ClusterState,
    declares_checkpoint,
    has_maintenance_taint,
    holds_gpus,
    is_of_operator,
    is_replicated,
    is_steered,
    is_working,
    read_stop_record,
    reboots_node,
    returns_with_node,
    selects_node,
    starts_upgrade_job,
    was_switched_off,
    was_switched_on,
)
from upgrader_dev.chaos.laws.journal import JournalEntry
from upgrader_dev.simulated.apiserver.objects import Object


class UnacknowledgedStop:
    """Law 1: the controller ends no pod of a declared job without a valid acknowledgement of its whole gang."""

    number = 1

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        """A sentence for each way in which a change breaks the law."""
        if not entry.by_controller:
            return
        if entry.kind == "Pod" and not is_of_operator(entry.object) and _is_removal(entry):
            yield from self._check_deletion(entry, state)
        elif was_switched_off(entry):
            yield from self._check_stop(entry, state)
        elif starts_upgrade_job(entry):
            yield from self._check_upgrade(entry, state)

    def _check_deletion(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        pod = entry.object
        if (
            not is_working(entry.before or pod)
            or state.is_expendable(pod, entry.sent_at)
            or _claims_operator_owner(pod)
        ):
            return
        declared = declares_checkpoint(pod) or any(map(declares_checkpoint, state.owners_of(pod)))
        if declared or not is_replicated(pod):
            yield f"pod {pod['metadata']['name']} is ended, and its gang was not stopped as a whole"

    def _check_stop(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        members = state.running_members(entry.object)
        if all(state.is_expendable(pod, entry.sent_at) for pod in members):
            return
        why = state.find_missing_acknowledgement(members)
        if why:
            yield f"gang {entry.key[1]} is stopped: {why}"

    def _check_upgrade(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        spec = entry.object["spec"]["template"]["spec"]
        reboots = reboots_node(entry)
        for pod in state.pods_on(spec.get("nodeName", "")):
            if (
                is_of_operator(pod)
                or returns_with_node(pod)
                or not (reboots or holds_gpus(pod))
                or state.is_expendable(pod, entry.sent_at)
            ):
                continue
            yield f"node {spec['nodeName']} is upgraded while pod {pod['metadata']['name']} runs on it"


class StoppedOnce:
    """Law 5: a gang is stopped at most once per rollout, and a restarted gang never runs on mixed drivers.

    A restart distinguishes the drivers that its plan goes from and to. If a member fails while a later plan installs
    another driver, its owner recreates it on any node with room.
    """

    number = 5

    def __init__(self) -> None:
        self._stops: Counter[tuple[str, str]] = Counter()
        self._restarted: dict[str, str] = {}
        """The plan that restarted an owner last, by uid of the owner."""
        self._later: dict[str, set[str]] = {}
        """Drivers that other plans have installed since then, by uid of the owner."""
        self._anywhere: set[str] = set()
        """Owners whose pods cannot be led to nodes, stopped while an approval allowed to restart such gangs."""

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        """A sentence for each way in which a change breaks the law."""
        if entry.by_controller and was_switched_off(entry):
            record = read_stop_record(entry.object) or {}
            key = str(record.get("plan")), entry.object["metadata"]["uid"]
            self._stops[key] += 1
            if not is_steered(entry.object) and state.allows_unguaranteed_placement():
                self._anywhere.add(entry.object["metadata"]["uid"])
            if self._stops[key] > 1 and state.running_members(entry.object):
                yield f"gang {entry.key[1]} is stopped a second time by plan {key[0]}"
        elif entry.by_controller and was_switched_on(entry):
            self._record_restart(entry)
        elif entry.kind == "NodeUpgrade" and entry.by_controller and entry.before is None:
            self._record_driver(entry.object["spec"])
        elif entry.kind == "Pod" and _is_start(entry):
            yield from self._check_drivers(entry, state)

    def _record_restart(self, entry: JournalEntry) -> None:
        uid, record = entry.object["metadata"]["uid"], read_stop_record(entry.before or {}) or {}
        if uid not in self._anywhere:
            self._restarted[uid], self._later[uid] = str(record.get("plan")), set()

    def _record_driver(self, upgrade: Object) -> None:
        driver = str(upgrade.get("target", {}).get("driverVersion", ""))
        for uid, plan in self._restarted.items():
            if upgrade.get("plan") not in (None, plan):
                self._later[uid].add(driver)

    def _check_drivers(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        pod = entry.object
        owner = next(
            (candidate for candidate in state.owners_of(pod) if candidate["metadata"]["uid"] in self._restarted), None
        )
        if owner is None:
            return
        members = [
            member for member in state.running_members(owner) if member["metadata"]["uid"] != pod["metadata"]["uid"]
        ]
        drivers = {
            name: driver_on(name, state) for member in (*members, pod) if (name := member["spec"].get("nodeName"))
        }
        later = self._later[owner["metadata"]["uid"]]
        if len(set(drivers.values()) - {"", *later}) > 1:
            yield f"gang {owner['metadata']['name']} runs on mixed drivers: {drivers}"


class UselessStop:
    """Law 5: the only stop of a gang leads to an upgrade: nothing else may keep its nodes from the upgrade."""

    number = 5

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:
        """A sentence for each way in which a change breaks the law."""
        if not entry.by_controller or entry.at != entry.sent or not was_switched_off(entry):
            return
        record = read_stop_record(entry.object) or {}
        request = state.find_object("CheckpointRequest", str(record.get("request")), entry.key[0])
        group = request["spec"].get("group") if request is not None else None
        if not group:
            return
        requests = [
            other_request
            for other_request in state.created_objects("CheckpointRequest")
            if other_request["spec"].get("group") == group
        ]
        for other_request in requests:
            if (other_request.get("status") or {}).get("phase") == RequestPhase.WITHDRAWN:
                other_gang = other_request["spec"].get("gang")
                yield f"gang {entry.key[1]} is stopped, and the request to {other_gang} of its group was withdrawn"
        requested = {other_request["spec"]["owner"]["uid"] for other_request in requests}
        for upgrade in state.created_objects("NodeUpgrade"):
            if upgrade["spec"].get("group") == group:
                yield from self._check_pods(entry, upgrade, requested, state)

    def _check_pods(
        self, entry: JournalEntry, upgrade: Object, requested: set[str], state: ClusterState
    ) -> Iterator[str]:
        node = upgrade["spec"]["node"]["name"]
        for pod in state.pods_on(node):
            meta = pod["metadata"]
            owners = {reference["uid"] for reference in meta.get("ownerReferences") or []}
            owners |= {owner["metadata"]["uid"] for owner in state.owners_of(pod)}
            passes = (
                is_of_operator(pod)
                or returns_with_node(pod)
                or state.is_expendable(pod, entry.sent_at)
                or meta.get("deletionTimestamp")
            )
            if not passes and not owners & requested and (upgrade["spec"].get("reboot") or holds_gpus(pod)):
                yield f"gang {entry.key[1]} is stopped while pod {meta['name']} prevents the upgrade of node {node}"


class GangsRestarted:
    """Law 9: the controller restarts what it stopped, and removes the marks that it set."""

    number = 9

    def __init__(self) -> None:
        self._switched_off: dict[str, str] = {}
        """Owners that the controller switched off and that are still off, by uid."""
        self._recorded: dict[str, str] = {}
        """Owners with a record that the controller wrote, by uid."""
        self._requested: set[str] = set()
        """Uids of pods with a request that the controller wrote."""

    def check_entry(self, entry: JournalEntry, state: ClusterState) -> Iterator[str]:  # noqa: ARG002 - the signature of every law
        """Record what is stopped."""
        uid = entry.object["metadata"].get("uid", "")
        if entry.kind == "Pod" and entry.by_controller and entry.before is not None:
            self._requested.add(uid)
        has, had = (_has_record(value) for value in (entry.after, entry.before))
        if had and not has:
            self._recorded.pop(uid, None)
        elif has and not had and entry.by_controller:
            self._recorded[uid] = f"{entry.kind} {entry.key[1]}"
        if entry.after is None or was_switched_on(entry):
            self._switched_off.pop(uid, None)
        elif entry.by_controller and was_switched_off(entry):
            self._switched_off[uid] = entry.key[1]
        return iter(())

    def check_end(self, state: ClusterState) -> Iterator[str]:
        """A sentence for each stop or mark that is left at the end."""
        for name in sorted(self._switched_off.values()):
            yield f"gang {name} is still stopped"
        for name in sorted(self._recorded.values()):
            yield f"{name} has the record of a stop"
        for node in state.objects_of("Node"):
            if not _needs_administrator(node, state):
                yield from _find_marks(node)
        for pod in state.objects_of("Pod"):
            annotations = pod["metadata"].get("annotations") or {}
            requested = annotations.get(names.ANNOTATION_REQUEST) and pod["metadata"]["uid"] in self._requested
            if is_working(pod) and requested:
                yield f"pod {pod['metadata']['name']} still has a checkpoint request"


def _find_marks(node: Object) -> Iterator[str]:
    meta = node["metadata"]
    if has_maintenance_taint(node):
        yield f"node {meta['name']} still has the maintenance taint"
    if names.ANNOTATION_CLAIMED_BY in (meta.get("annotations") or {}):
        yield f"node {meta['name']} is still claimed"
    if any(taint["key"] == names.TAINT_RESERVED for taint in node["spec"].get("taints") or []):
        yield f"node {meta['name']} still has the taint for the wait for completion"


def _needs_administrator(node: Object, state: ClusterState) -> bool:
    """Whether the revert failed too: then the marks stay, and the upgrade reports it.

    The marks also stay, and the stack reports it, if the upgrade was removed by force and pods use the node; or if
    no removed component was verified again and no stack selects the node to reinstall it.
    """
    meta = node["metadata"]
    claim = (meta.get("annotations") or {}).get(names.ANNOTATION_CLAIMED_BY)
    upgrade = next(
        (node_upgrade for node_upgrade in state.objects_of("NodeUpgrade") if node_upgrade["metadata"]["uid"] == claim),
        None,
    )
    if upgrade is not None:
        return bool(upgrade.get("status", {}).get("reason") == "RevertFailed")
    labels = meta.get("labels") or {}
    touched = {names.LABEL_DRIVER, names.LABEL_OPERANDS} & labels.keys() and names.LABEL_REVISION not in labels
    if claim and touched and not any(selects_node(stack, node) for stack in state.objects_of("GpuStack")):
        return True
    return bool(claim) and any(holds_gpus(pod) and not is_of_operator(pod) for pod in state.pods_on(meta["name"]))


def driver_on(node: str, state: ClusterState) -> str:
    """Version of the driver whose pod runs on a node; empty if there is none."""
    keys = [
        pod["metadata"].get("annotations", {}).get(names.ANNOTATION_READABLE, " ").split(" ")[1]
        for pod in state.pods_on(node)
        if pod["metadata"].get("namespace") == NAMESPACE
        and pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "driver"
        and is_working(pod)
    ]
    return keys[0] if len(keys) == 1 else ""


def _claims_operator_owner(pod: Object) -> bool:
    """Whether a tenant set a NodeUpgrade as the owner of a pod, so that garbage collection deletes the pod with it."""
    return any(reference["kind"] == "NodeUpgrade" for reference in pod["metadata"].get("ownerReferences") or [])


def _has_record(value: Object | None) -> bool:
    return value is not None and names.ANNOTATION_STOPPED in (value["metadata"].get("annotations") or {})


def _is_removal(entry: JournalEntry) -> bool:
    if entry.before is None:
        return False
    return entry.after is None or bool(
        entry.after["metadata"].get("deletionTimestamp") and not entry.before["metadata"].get("deletionTimestamp")
    )


def _is_start(entry: JournalEntry) -> bool:
    return (
        entry.after is not None and is_working(entry.after) and (entry.before is None or not is_working(entry.before))
    )
