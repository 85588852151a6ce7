"""The laws about what gangs have to bear: 1, 5 and 9."""

from collections import Counter
from collections.abc import Iterator

from upgrader.api import names
from upgrader.core.model.phases import RequestPhase
from upgrader_dev.chaos.laws.journal import Entry
from upgrader_dev.chaos.laws.known import (
    NAMESPACE,
    Known,
    declares_checkpoint,
    holds_gpus,
    is_closed,
    is_ours,
    is_reboot,
    is_replicated,
    is_steered,
    is_upgrade_job,
    is_working,
    of_the_node,
    selects_node,
    stopped_by,
    went_off,
    went_on,
)
from upgrader_dev.simulated.apiserver.objects import Object


class UnacknowledgedStop:
    """Law 1: no pod of a declared job is ended by us without a valid acknowledgement of its whole gang."""

    number = 1

    def look(self, entry: Entry, known: Known) -> Iterator[str]:
        """What of a change breaks the law."""
        if not entry.by_controller:
            return
        if entry.kind == "Pod" and not is_ours(entry.object) and _is_removal(entry):
            yield from self._ended(entry, known)
        elif went_off(entry):
            yield from self._stopped(entry, known)
        elif is_upgrade_job(entry):
            yield from self._upgraded(entry, known)

    def _ended(self, entry: Entry, known: Known) -> Iterator[str]:
        pod = entry.object
        if not is_working(entry.before or pod) or known.expendable(pod, entry.sent_at) or _says_ours(pod):
            return
        declared = declares_checkpoint(pod) or any(map(declares_checkpoint, known.owners_of(pod)))
        if declared or not is_replicated(pod):
            yield f"pod {pod['metadata']['name']} is ended, which is of a gang that was not stopped as a whole"

    def _stopped(self, entry: Entry, known: Known) -> Iterator[str]:
        members = known.members(entry.object)
        if all(known.expendable(pod, entry.sent_at) for pod in members):
            return
        why = known.not_acknowledged(members)
        if why:
            yield f"gang {entry.key[1]} is stopped: {why}"

    def _upgraded(self, entry: Entry, known: Known) -> Iterator[str]:
        spec = entry.object["spec"]["template"]["spec"]
        reboots = is_reboot(entry)
        for pod in known.pods_on(spec.get("nodeName", "")):
            if (
                is_ours(pod)
                or of_the_node(pod)
                or not (reboots or holds_gpus(pod))
                or known.expendable(pod, entry.sent_at)
            ):
                continue
            yield f"node {spec['nodeName']} is upgraded while pod {pod['metadata']['name']} runs there"


class StoppedOnce:
    """Law 5: a gang is stopped at most once per rollout, and what we restarted never runs on mixed drivers.

    A restart tells apart the drivers that its plan goes from and to. Where a member fails by itself, while a later plan
    brings another driver, whoever owns it makes it again where there is room.
    """

    number = 5

    def __init__(self) -> None:
        self._stops: Counter[tuple[str, str]] = Counter()
        self._restarted: dict[str, str] = {}
        """Plans by the uid of each owner that they restarted last."""
        self._later: dict[str, set[str]] = {}
        """Drivers that other plans have gone to since then."""
        self._anywhere: set[str] = set()
        """Owners whose templates cannot be steered, stopped while an approval allowed to restart such gangs."""

    def look(self, entry: Entry, known: Known) -> Iterator[str]:
        """What of a change breaks the law."""
        if entry.by_controller and went_off(entry):
            record = stopped_by(entry.object) or {}
            key = str(record.get("plan")), entry.object["metadata"]["uid"]
            self._stops[key] += 1
            if not is_steered(entry.object) and known.unguaranteed():
                self._anywhere.add(entry.object["metadata"]["uid"])
            if self._stops[key] > 1 and known.members(entry.object):
                yield f"gang {entry.key[1]} is stopped a second time by plan {key[0]}"
        elif entry.by_controller and went_on(entry):
            self._went_on(entry)
        elif entry.kind == "NodeUpgrade" and entry.by_controller and entry.before is None:
            self._goes_to_another(entry.object["spec"])
        elif entry.kind == "Pod" and _is_start(entry):
            yield from self._mixed(entry, known)

    def _went_on(self, entry: Entry) -> None:
        uid, record = entry.object["metadata"]["uid"], stopped_by(entry.before or {}) or {}
        if uid not in self._anywhere:
            self._restarted[uid], self._later[uid] = str(record.get("plan")), set()

    def _goes_to_another(self, upgrade: Object) -> None:
        driver = str(upgrade.get("target", {}).get("driverVersion", ""))
        for uid, plan in self._restarted.items():
            if upgrade.get("plan") not in (None, plan):
                self._later[uid].add(driver)

    def _mixed(self, entry: Entry, known: Known) -> Iterator[str]:
        pod = entry.object
        owner = next((each for each in known.owners_of(pod) if each["metadata"]["uid"] in self._restarted), None)
        if owner is None:
            return
        members = [each for each in known.members(owner) if each["metadata"]["uid"] != pod["metadata"]["uid"]]
        drivers = {name: driver_on(name, known) for each in (*members, pod) if (name := each["spec"].get("nodeName"))}
        later = self._later[owner["metadata"]["uid"]]
        if len(set(drivers.values()) - {"", *later}) > 1:
            yield f"gang {owner['metadata']['name']} runs on mixed drivers: {drivers}"


class StoppedInVain:
    """Law 5: its only stop is worth an upgrade: a gang is not stopped while something else keeps its nodes from one."""

    number = 5

    def look(self, entry: Entry, known: Known) -> Iterator[str]:
        """What of a change breaks the law."""
        if not entry.by_controller or entry.at != entry.sent or not went_off(entry):
            return
        record = stopped_by(entry.object) or {}
        request = known.get("CheckpointRequest", str(record.get("request")), entry.key[0])
        group = request["spec"].get("group") if request is not None else None
        if not group:
            return
        requests = [each for each in known.made_of("CheckpointRequest") if each["spec"].get("group") == group]
        for each in requests:
            if (each.get("status") or {}).get("phase") == RequestPhase.WITHDRAWN:
                other = each["spec"].get("gang")
                yield f"gang {entry.key[1]} is stopped, and the request to {other} of its group was withdrawn"
        asked = {each["spec"]["owner"]["uid"] for each in requests}
        for upgrade in known.made_of("NodeUpgrade"):
            if upgrade["spec"].get("group") == group:
                yield from self._kept(entry, upgrade, asked, known)

    def _kept(self, entry: Entry, upgrade: Object, asked: set[str], known: Known) -> Iterator[str]:
        node = upgrade["spec"]["node"]["name"]
        for pod in known.pods_on(node):
            meta = pod["metadata"]
            owners = {each["uid"] for each in meta.get("ownerReferences") or []}
            owners |= {each["metadata"]["uid"] for each in known.owners_of(pod)}
            passes = (
                is_ours(pod)
                or of_the_node(pod)
                or known.expendable(pod, entry.sent_at)
                or meta.get("deletionTimestamp")
            )
            if not passes and not owners & asked and (upgrade["spec"].get("reboot") or holds_gpus(pod)):
                yield f"gang {entry.key[1]} is stopped while pod {meta['name']} keeps node {node} from its upgrade"


class Restarted:
    """Law 9: what we stopped we restart, and what we marked we leave unmarked."""

    number = 9

    def __init__(self) -> None:
        self._off: dict[str, str] = {}
        """Owners that we switched off and nobody switched on since, by uid."""
        self._recorded: dict[str, str] = {}
        """Owners that carry a record which we wrote, by uid."""
        self._asked: set[str] = set()
        """Uids of pods that carry a request which we wrote."""

    def look(self, entry: Entry, known: Known) -> Iterator[str]:  # noqa: ARG002 - as every law
        """Keep count of what is stopped."""
        uid = entry.object["metadata"].get("uid", "")
        if entry.kind == "Pod" and entry.by_controller and entry.before is not None:
            self._asked.add(uid)
        has, had = (_has_record(value) for value in (entry.after, entry.before))
        if had and not has:
            self._recorded.pop(uid, None)
        elif has and not had and entry.by_controller:
            self._recorded[uid] = f"{entry.kind} {entry.key[1]}"
        if entry.after is None or went_on(entry):
            self._off.pop(uid, None)
        elif entry.by_controller and went_off(entry):
            self._off[uid] = entry.key[1]
        return iter(())

    def end(self, known: Known) -> Iterator[str]:
        """What is left when everything is over."""
        for name in sorted(self._off.values()):
            yield f"gang {name} is still stopped"
        for name in sorted(self._recorded.values()):
            yield f"{name} carries the record of a stop"
        for node in known.of("Node"):
            if not _needs_a_person(node, known):
                yield from _marks_of(node)
        for pod in known.of("Pod"):
            annotations = pod["metadata"].get("annotations") or {}
            asked = annotations.get(names.ANNOTATION_REQUEST) and pod["metadata"]["uid"] in self._asked
            if is_working(pod) and asked:
                yield f"pod {pod['metadata']['name']} is still asked for a checkpoint"


def _marks_of(node: Object) -> Iterator[str]:
    meta = node["metadata"]
    if is_closed(node):
        yield f"node {meta['name']} is still closed"
    if names.ANNOTATION_CLAIMED_BY in (meta.get("annotations") or {}):
        yield f"node {meta['name']} is still claimed"
    if any(taint["key"] == names.TAINT_RESERVED for taint in node["spec"].get("taints") or []):
        yield f"node {meta['name']} is still marked for the wait for completion"


def _needs_a_person(node: Object, known: Known) -> bool:
    """Whether even the way back failed there: then its marks stay, and the upgrade says so.

    So they do, and the stack says so, where the upgrade was removed by force and somebody works on what it has left; or
    where nothing of what it took away was proven to work again, and no stack selects the node, to install it anew.
    """
    meta = node["metadata"]
    claim = (meta.get("annotations") or {}).get(names.ANNOTATION_CLAIMED_BY)
    upgrade = next((each for each in known.of("NodeUpgrade") if each["metadata"]["uid"] == claim), None)
    if upgrade is not None:
        return bool(upgrade.get("status", {}).get("reason") == "RevertFailed")
    labels = meta.get("labels") or {}
    touched = {names.LABEL_DRIVER, names.LABEL_OPERANDS} & labels.keys() and names.LABEL_REVISION not in labels
    if claim and touched and not any(selects_node(stack, node) for stack in known.of("GpuStack")):
        return True
    return bool(claim) and any(holds_gpus(pod) and not is_ours(pod) for pod in known.pods_on(meta["name"]))


def driver_on(node: str, known: Known) -> str:
    """Version of the driver whose pod runs on a node; empty where none does."""
    keys = [
        pod["metadata"].get("annotations", {}).get(names.ANNOTATION_READABLE, " ").split(" ")[1]
        for pod in known.pods_on(node)
        if pod["metadata"].get("namespace") == NAMESPACE
        and pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "driver"
        and is_working(pod)
    ]
    return keys[0] if len(keys) == 1 else ""


def _says_ours(pod: Object) -> bool:
    """Whether a tenant has named an object of ours as its owner: then garbage collection ends it with that."""
    return any(each["kind"] == "NodeUpgrade" for each in pod["metadata"].get("ownerReferences") or [])


def _has_record(value: Object | None) -> bool:
    return value is not None and names.ANNOTATION_STOPPED in (value["metadata"].get("annotations") or {})


def _is_removal(entry: Entry) -> bool:
    if entry.before is None:
        return False
    return entry.after is None or bool(
        entry.after["metadata"].get("deletionTimestamp") and not entry.before["metadata"].get("deletionTimestamp")
    )


def _is_start(entry: Entry) -> bool:
    return (
        entry.after is not None and is_working(entry.after) and (entry.before is None or not is_working(entry.before))
    )
