"""Who belongs together: pods into gangs.

Which pods make one gang is a table of rules (core.workloads.gang_rules), by what it is stopped a look at its owners
(core.workloads.suspend_target). A gang counts where one of its pods asks for GPUs, or would be ended by the reboot of
its node; its other pods are members too. Our own pods and pods that have ended never are.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, structs

from upgrader.core import untrusted
from upgrader.core.errors import describe
from upgrader.core.model.fleet import Gang, MemberFacts, Owner, Terms
from upgrader.core.workloads.checkpoint_annotations import Declared, Method, TimesDeclared, nearest, times, usable
from upgrader.core.workloads.completion_estimate import estimate_of, limit_of, queue_limit
from upgrader.core.workloads.desired_replicas import wanted
from upgrader.core.workloads.gang_rules import RULES, Belonging, PodMarks, Rule, resolve
from upgrader.core.workloads.owner_chain import Chains
from upgrader.core.workloads.owner_kinds import Switch
from upgrader.core.workloads.owner_objects import Work, suspended
from upgrader.core.workloads.suspend_target import Switched, one_switch, parted, switch_of

REPLICATED = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"})
"""Controllers that replace a pod for ever: their undeclared pods are evicted one by one under their budget."""

ENDED = frozenset({"Succeeded", "Failed"})


class PodFacts(Struct, frozen=True, kw_only=True):
    """A pod, as far as it matters for who belongs together."""

    member: MemberFacts
    marks: PodMarks
    declared: Declared = Declared()  # its own annotations only
    rebooted: bool = False  # its node is to be rebooted, which ends it whether it has GPUs or not
    storage_class: str = ""  # that its checkpoints go to, by the claim that it mounts there; empty: not known
    group_total: int = 0  # pods that its group should have in all, those that succeeded too; 0: not said
    active_deadline_seconds: int | None = None
    unread: str = ""  # why it cannot be read; then its gang is waited for


class _Group(Struct, frozen=True, kw_only=True):
    """Pods of one gang, by name."""

    namespace: str
    belonging: Belonging
    pods: tuple[PodFacts, ...]
    switches: tuple[Switched, ...]
    succeeded: int


def gangs_of(
    pods: Iterable[PodFacts],
    chains: Chains,
    namespaces: Mapping[str, Declared],
    rules: Sequence[Rule] = RULES,
    now: datetime | None = None,
    method: str = "",
) -> tuple[Gang, ...]:
    """All gangs that a rollout might have to stop, by name; the same whatever the order of pods.

    Args:
        pods: those that ended count only for what they have finished.
        chains: who owns them.
        namespaces: what each namespace declares for its jobs.
        rules: who belongs together, first hit wins.
        now: what owners say about their remaining time counts while it is fresh; without it, it does not count.
        method: how jobs are asked that do not say, as the annotation; pods that their owner replaces stay undeclared,
            and so do jobs without GPUs: who sets it means training.
    """
    groups = _groups(pods, chains, namespaces, rules)
    shared = parted(group.switches for group in groups)
    return _distinct([_read_gang(group, chains, namespaces, shared, now, method) for group in groups])


def _groups(
    pods: Iterable[PodFacts], chains: Chains, namespaces: Mapping[str, Declared], rules: Sequence[Rule]
) -> list[_Group]:
    alive: dict[tuple[str, tuple[str, str]], list[tuple[Belonging, PodFacts]]] = {}
    done: dict[tuple[str, tuple[str, str]], int] = {}
    for pod in pods:
        found, pod = _placed(pod, chains, namespaces, rules)  # noqa: PLW2901 - what cannot be placed is marked so
        key = (pod.member.namespace, found.key)
        if pod.member.phase not in ENDED:
            alive.setdefault(key, []).append((found, pod))
        elif pod.member.phase == "Succeeded":
            done[key] = done.get(key, 0) + 1
    groups = []
    for key, found_pods in alive.items():
        if any(pod.member.gpus or pod.rebooted for _, pod in found_pods):
            ordered = sorted(found_pods, key=lambda one: (one[1].member.pod, one[1].member.uid))
            members = tuple(pod for _, pod in ordered)
            switches = tuple(switch_of(pod.marks, chains) for pod in members)
            groups.append(
                _Group(
                    namespace=key[0],
                    belonging=ordered[0][0],
                    pods=members,
                    switches=switches,
                    succeeded=done.get(key, 0),
                )
            )
    return groups


def _placed(
    pod: PodFacts, chains: Chains, namespaces: Mapping[str, Declared], rules: Sequence[Rule]
) -> tuple[Belonging, PodFacts]:
    """To whom a pod belongs; one of which that cannot be told is a gang of its own, and is waited for."""
    try:
        found = _whole(resolve(pod.marks, chains, rules), pod, chains, namespaces)
        switch_of(pod.marks, chains)
    except Exception as error:  # noqa: BLE001 - one pod must not keep all others from being looked at
        marks = PodMarks(pod=pod.marks.pod, uid=pod.marks.uid, namespace=pod.marks.namespace)
        alone = Belonging(key=("unread", marks.uid), kind="Pod", name=marks.pod, because="nothing: it cannot be read")
        return alone, structs.replace(pod, marks=marks, unread=pod.unread or describe(error))
    return found, pod


def _whole(found: Belonging, pod: PodFacts, chains: Chains, namespaces: Mapping[str, Declared]) -> Belonging:
    """Groups of a LeaderWorkerSet that are asked are stopped by its one switch, so all of them are one gang."""
    if (
        found.kind != "LeaderWorkerSet"
        or found.key[0] != "LeaderWorkerSet"
        or not _layer(pod, chains, namespaces).method
    ):
        return found
    top = next(
        (one.owner for one in reversed(chains.above(pod.marks.controller)) if one.owner.kind == found.kind), None
    )
    if top is None:
        return found
    because = f"the same owner ({top.kind} {top.name}), whose groups have one switch"
    return Belonging(key=("LeaderWorkerSet", top.uid), kind=top.kind, name=top.name, because=because)


def _layer(pod: PodFacts, chains: Chains, namespaces: Mapping[str, Declared]) -> Declared:
    """What is declared for a pod: by itself, by its owners, by its namespace; the nearest wins."""
    own, space = pod.declared, namespaces.get(pod.member.namespace, Declared())
    return nearest([own, chains.declared(pod.marks.controller), space])


def _read_gang(
    group: _Group,
    chains: Chains,
    namespaces: Mapping[str, Declared],
    shared: Mapping[str, str],
    now: datetime | None,
    default: str,
) -> Gang:
    """The gang; one of which something cannot be read declares nothing, so that it is waited for."""
    why = next((text for pod in group.pods if (text := pod.unread or chains.unread(pod.marks.controller))), "")
    try:
        gang = _gang(group, chains, namespaces, shared, now, default)
    except Exception as error:  # noqa: BLE001 - one gang must not keep all others from being looked at
        found, members = group.belonging, tuple(pod.member for pod in group.pods)
        name = f"{group.namespace}/{found.kind}/{found.name}"
        gang = Gang(name=name, namespace=group.namespace, kind=found.kind, members=members, wanted=len(members))
        why = why or describe(error)
    if not why:
        return gang
    problem = f"It cannot be read ({why})."
    return structs.replace(
        gang, method="", replicated=False, owner=None, cannot_stop=problem, undeclared_because=problem
    )


def _gang(
    group: _Group,
    chains: Chains,
    namespaces: Mapping[str, Declared],
    shared: Mapping[str, str],
    now: datetime | None,
    default: str,
) -> Gang:
    pods, belonging, members = group.pods, group.belonging, tuple(pod.member for pod in group.pods)
    layers, replicated = _layers(pods, chains, namespaces, default)
    declared, same = layers[0], all(_alike(layer, layers[0]) for layer in layers)
    unreadable = next((one.unreadable for one in members if one.unreadable), "")
    method = usable(declared, members) if not unreadable else Method(problem=unreadable)
    switch = one_switch(belonging.name, belonging.kind, group.switches)
    cannot_stop = "" if replicated else switch.problem or shared.get(switch.uid, "")
    owners = _owners(pods, chains)
    works = _works(owners, switch, chains)
    said = _times(declared, pods, works, now)
    lane, from_class = _lane(declared, pods)
    return Gang(
        name=f"{group.namespace}/{belonging.kind}/{belonging.name}",
        namespace=group.namespace,
        kind=belonging.kind,
        members=members,
        owner=switch.work.owner if switch.work is not None and not replicated and not cannot_stop else None,
        wanted=len(members) if replicated else _wanted(group, chains),
        method=method.name if same else "",
        timeout_seconds=method.timeout_seconds if same else None,
        undeclared_because=method.problem if same else "Its members declare different checkpoint methods.",
        replicated=replicated,
        stopped_by=next((one.stopped_by for one in works if one.stopped_by), ""),
        suspended=any(suspended(one) for one in works),
        bare=all(pod.marks.controller is None for pod in pods) and not any(one.uid for one in group.switches),
        cannot_stop=cannot_stop,
        veto=next((layer.veto for layer in layers if layer.veto), ""),
        terms=method.terms if same else Terms(),
        min_runtime_seconds=said.min_runtime_seconds,
        ends_at=said.ends_at,
        lane=lane,
        lane_from_class=from_class,
        resolved_by=belonging.because,
        owners=owners,
    )


def _layers(
    pods: Sequence[PodFacts], chains: Chains, namespaces: Mapping[str, Declared], default: str
) -> tuple[list[Declared], bool]:
    """What is declared for each pod, and whether all are evicted one by one instead of being asked."""
    layers = [_layer(pod, chains, namespaces) for pod in pods]
    if not any(layer.method for layer in layers) and all(_replaced(pod, chains) for pod in pods):
        return layers, True
    method = default if any(pod.member.gpus for pod in pods) else ""
    return [nearest([layer, Declared(method=method)]) for layer in layers], False


def _lane(declared: Declared, pods: Sequence[PodFacts]) -> tuple[str, bool]:
    """Where its checkpoints go, and whether a StorageClass says so.

    Pods that mount no claim (a launcher) say nothing. Members whose claims are of several classes may write to any of
    them, so nobody knows.
    """
    classes = {pod.storage_class for pod in pods if pod.storage_class}
    if declared.lane or len(classes) != 1:
        return untrusted.name(declared.lane), False
    return classes.pop(), True


def _times(declared: Declared, pods: Sequence[PodFacts], works: Sequence[Work], now: datetime | None) -> TimesDeclared:
    starts = [pod.member.started_at for pod in pods if pod.member.started_at is not None]
    estimate = estimate_of(works, now) if now is not None else None
    return times(declared, starts, limit=limit_of(works, _deadlines(pods)), estimate=estimate)


def _alike(one: Declared, other: Declared) -> bool:
    # Containers and vetoes may differ from member to member; how and when the gang is asked may not.
    return structs.replace(one, container=other.container, veto=other.veto, path=other.path) == other


def _replaced(pod: PodFacts, chains: Chains) -> bool:
    """Whether its controller replaces it for ever and nothing above that would rather be stopped as a whole."""
    controller = pod.marks.controller
    if controller is None or controller.kind not in REPLICATED:
        return False
    works = [link.work for link in chains.above(controller) if link.work is not None]
    return all(work.row is None or work.row.switch is Switch.REPLICAS for work in works)


def _owners(pods: Iterable[PodFacts], chains: Chains) -> tuple[Owner, ...]:
    """Everything above any of the pods, once each, the nearest first."""
    links = (link for pod in pods for link in chains.above(pod.marks.controller))
    return tuple({link.owner.uid: link.owner for link in links}.values())


def _works(owners: Iterable[Owner], switch: Switched, chains: Chains) -> list[Work]:
    """Owners that were read, and what stops the gang: Kueue's Workload owns no pod."""
    works = [work for owner in owners if (work := chains.work(owner.uid)) is not None]
    return works if switch.work is None or switch.work in works else [*works, switch.work]


def _wanted(group: _Group, chains: Chains) -> int:
    counted = {one.counted.owner.uid: one.counted for one in group.switches if one.counted is not None}
    total = max(pod.group_total for pod in group.pods) - group.succeeded
    return max(sum(wanted(work, chains) for work in counted.values()), total) or len(group.pods)


def _deadlines(pods: Iterable[PodFacts]) -> list[tuple[datetime, int]]:
    """When pods started that end by themselves, and after how many seconds; Kueue's label counts on pods it queues."""
    limits = [
        (pod.member.started_at, limit)
        for pod in pods
        for limit in (pod.active_deadline_seconds, queue_limit(pod.marks.labels) if not pod.marks.controller else None)
    ]
    return [(start, limit) for start, limit in limits if start is not None and limit is not None]


def _distinct(gangs: list[Gang]) -> tuple[Gang, ...]:
    # Names are unique, except while pods of a deleted Job still end beside those of a new one with its name.
    count: dict[str, int] = {}
    distinct = []
    for gang in sorted(gangs, key=lambda gang: (gang.name, gang.owner is None, gang.members[0].uid)):
        count[gang.name] = count.get(gang.name, 0) + 1
        distinct.append(gang if count[gang.name] == 1 else _numbered(gang, count[gang.name]))
    return tuple(sorted(distinct, key=lambda gang: gang.name))


def _numbered(gang: Gang, number: int) -> Gang:
    return structs.replace(gang, name=f"{gang.name}~{number}")
