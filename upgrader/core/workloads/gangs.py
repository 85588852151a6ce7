"""Gangs: the pods of each, its declarations and its owners.

A table of rules (core.workloads.gang_rules) assigns pods to gangs, and its owners determine how a gang is stopped
(core.workloads.suspend_target). A gang counts if one of its pods requests GPUs, or would be ended by the reboot of its
node; its other pods are members too. Pods of the operator and pods that have ended never are.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, structs

from upgrader.core import untrusted
from upgrader.core.errors import describe_error
from upgrader.core.model.fleet import Gang, MemberFacts, Owner, Terms
from upgrader.core.workloads.checkpoint_annotations import (
    CheckpointAnnotations,
    DeclaredTimes,
    Method,
    declared_times,
    nearest_declared,
    usable_method,
)
from upgrader.core.workloads.completion_estimate import estimate_of, limit_of, queue_limit
from upgrader.core.workloads.desired_replicas import wanted_pods
from upgrader.core.workloads.gang_rules import RULES, Belonging, MembershipRule, PodMetadata, resolve_gang
from upgrader.core.workloads.owner_chain import Chains
from upgrader.core.workloads.owner_kinds import Switch
from upgrader.core.workloads.owner_objects import Work, is_suspended
from upgrader.core.workloads.suspend_target import PodSwitch, one_switch, shared_owners, switch_of

REPLICATED = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"})
"""Controllers that always replace their pods: these are evicted one by one under their budget, if undeclared."""

ENDED = frozenset({"Succeeded", "Failed"})


class PodFacts(Struct, frozen=True, kw_only=True):
    """A pod, as far as gangs depend on it."""

    member: MemberFacts
    metadata: PodMetadata
    declared: CheckpointAnnotations = CheckpointAnnotations()  # its own annotations only
    rebooted: bool = False  # its node is to be rebooted, which ends it with or without GPUs
    storage_class: str = ""  # of its checkpoints, by the claim that it mounts there; empty: not known
    group_total: int = 0  # pods that its group should have in all, with those that succeeded; 0: not stated
    active_deadline_seconds: int | None = None
    unread: str = ""  # why it cannot be read; then its gang is waited for


class _Group(Struct, frozen=True, kw_only=True):
    """Pods of one gang, by name."""

    namespace: str
    belonging: Belonging
    pods: tuple[PodFacts, ...]
    switches: tuple[PodSwitch, ...]
    succeeded: int


def gangs_of(
    pods: Iterable[PodFacts],
    chains: Chains,
    namespaces: Mapping[str, CheckpointAnnotations],
    rules: Sequence[MembershipRule] = RULES,
    now: datetime | None = None,
    method: str = "",
) -> tuple[Gang, ...]:
    """All gangs that a rollout might have to stop, by name; the same in any order of pods.

    Args:
        pods: those that ended count only as succeeded members.
        chains: their owners.
        namespaces: the declarations of each namespace for its jobs.
        rules: the rules that assign pods to gangs; the first match counts.
        now: estimates of owners count while they are recent; without `now` they do not count.
        method: the checkpoint method of jobs that declare none; pods that their owner replaces stay undeclared, and so
            do jobs without GPUs: the setting is meant for training.
    """
    groups = _group_pods(pods, chains, namespaces, rules)
    shared = shared_owners(group.switches for group in groups)
    return _make_names_distinct([_read_gang(group, chains, namespaces, shared, now, method) for group in groups])


def _group_pods(
    pods: Iterable[PodFacts],
    chains: Chains,
    namespaces: Mapping[str, CheckpointAnnotations],
    rules: Sequence[MembershipRule],
) -> list[_Group]:
    alive: dict[tuple[str, tuple[str, str]], list[tuple[Belonging, PodFacts]]] = {}
    done: dict[tuple[str, tuple[str, str]], int] = {}
    for pod in pods:
        belonging, pod = _assign_pod(pod, chains, namespaces, rules)  # noqa: PLW2901 - an unreadable pod is marked as such
        key = (pod.member.namespace, belonging.key)
        if pod.member.phase not in ENDED:
            alive.setdefault(key, []).append((belonging, pod))
        elif pod.member.phase == "Succeeded":
            done[key] = done.get(key, 0) + 1
    groups = []
    for key, pairs in alive.items():
        if any(pod.member.gpus or pod.rebooted for _, pod in pairs):
            ordered = sorted(pairs, key=lambda pair: (pair[1].member.pod, pair[1].member.uid))
            members = tuple(pod for _, pod in ordered)
            switches = tuple(switch_of(pod.metadata, chains) for pod in members)
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


def _assign_pod(
    pod: PodFacts, chains: Chains, namespaces: Mapping[str, CheckpointAnnotations], rules: Sequence[MembershipRule]
) -> tuple[Belonging, PodFacts]:
    """The gang of a pod; a pod whose gang cannot be determined is a gang alone, and is waited for."""
    try:
        belonging = _join_groups(resolve_gang(pod.metadata, chains, rules), pod, chains, namespaces)
        switch_of(pod.metadata, chains)
    except Exception as error:  # noqa: BLE001 - one pod must not keep all others from being processed
        metadata = PodMetadata(pod=pod.metadata.pod, uid=pod.metadata.uid, namespace=pod.metadata.namespace)
        alone = Belonging(
            key=("unread", metadata.uid), kind="Pod", name=metadata.pod, because="nothing: it cannot be read"
        )
        return alone, structs.replace(pod, metadata=metadata, unread=pod.unread or describe_error(error))
    return belonging, pod


def _join_groups(
    belonging: Belonging, pod: PodFacts, chains: Chains, namespaces: Mapping[str, CheckpointAnnotations]
) -> Belonging:
    """One gang of all groups of a LeaderWorkerSet that declares a method, since one switch stops them all."""
    if (
        belonging.kind != "LeaderWorkerSet"
        or belonging.key[0] != "LeaderWorkerSet"
        or not _pod_declaration(pod, chains, namespaces).method
    ):
        return belonging
    links = reversed(chains.owners_above(pod.metadata.controller))
    top = next((link.owner for link in links if link.owner.kind == belonging.kind), None)
    if top is None:
        return belonging
    because = f"the same owner ({top.kind} {top.name}), whose groups have one switch"
    return Belonging(key=("LeaderWorkerSet", top.uid), kind=top.kind, name=top.name, because=because)


def _pod_declaration(
    pod: PodFacts, chains: Chains, namespaces: Mapping[str, CheckpointAnnotations]
) -> CheckpointAnnotations:
    """The declarations for a pod: its own, those of its owners, of its namespace; the nearest counts."""
    own, space = pod.declared, namespaces.get(pod.member.namespace, CheckpointAnnotations())
    return nearest_declared([own, chains.declared(pod.metadata.controller), space])


def _read_gang(
    group: _Group,
    chains: Chains,
    namespaces: Mapping[str, CheckpointAnnotations],
    shared: Mapping[str, str],
    now: datetime | None,
    default: str,
) -> Gang:
    """The gang; without its declarations if a part of it cannot be read, so that it is waited for."""
    why = next((text for pod in group.pods if (text := pod.unread or chains.unread(pod.metadata.controller))), "")
    try:
        gang = _make_gang(group, chains, namespaces, shared, now, default)
    except Exception as error:  # noqa: BLE001 - one gang must not keep all others from being processed
        belonging, members = group.belonging, tuple(pod.member for pod in group.pods)
        name = f"{group.namespace}/{belonging.kind}/{belonging.name}"
        gang = Gang(name=name, namespace=group.namespace, kind=belonging.kind, members=members, wanted=len(members))
        why = why or describe_error(error)
    if not why:
        return gang
    problem = f"It cannot be read ({why})."
    return structs.replace(
        gang, method="", replicated=False, owner=None, cannot_stop=problem, undeclared_because=problem
    )


def _make_gang(
    group: _Group,
    chains: Chains,
    namespaces: Mapping[str, CheckpointAnnotations],
    shared: Mapping[str, str],
    now: datetime | None,
    default: str,
) -> Gang:
    pods, belonging, members = group.pods, group.belonging, tuple(pod.member for pod in group.pods)
    layers, replicated = _pod_declarations(pods, chains, namespaces, default)
    declared, same = layers[0], all(_is_alike(layer, layers[0]) for layer in layers)
    unreadable = next((member.unreadable for member in members if member.unreadable), "")
    method = usable_method(declared, members) if not unreadable else Method(problem=unreadable)
    switch = one_switch(belonging.name, belonging.kind, group.switches)
    cannot_stop = "" if replicated else switch.problem or shared.get(switch.uid, "")
    owners = _owners_of(pods, chains)
    works = _works_of(owners, switch, chains)
    slices = _gang_times(declared, pods, works, now)
    lane, from_class = _checkpoint_lane(declared, pods)
    return Gang(
        name=f"{group.namespace}/{belonging.kind}/{belonging.name}",
        namespace=group.namespace,
        kind=belonging.kind,
        members=members,
        owner=switch.work.owner if switch.work is not None and not replicated and not cannot_stop else None,
        wanted=len(members) if replicated else _wanted_members(group, chains),
        method=method.name if same else "",
        timeout_seconds=method.timeout_seconds if same else None,
        undeclared_because=method.problem if same else "Its members declare different checkpoint methods.",
        replicated=replicated,
        stopped_by=next((work.stopped_by for work in works if work.stopped_by), ""),
        suspended=any(is_suspended(work) for work in works),
        bare=all(pod.metadata.controller is None for pod in pods) and not any(switch.uid for switch in group.switches),
        cannot_stop=cannot_stop,
        veto=next((layer.veto for layer in layers if layer.veto), ""),
        terms=method.terms if same else Terms(),
        min_runtime_seconds=slices.min_runtime_seconds,
        ends_at=slices.ends_at,
        lane=lane,
        lane_from_class=from_class,
        resolved_by=belonging.because,
        owners=owners,
    )


def _pod_declarations(
    pods: Sequence[PodFacts], chains: Chains, namespaces: Mapping[str, CheckpointAnnotations], default: str
) -> tuple[list[CheckpointAnnotations], bool]:
    """The declarations for each pod, and whether all are evicted one by one, without a request."""
    layers = [_pod_declaration(pod, chains, namespaces) for pod in pods]
    if not any(layer.method for layer in layers) and all(_is_replaced(pod, chains) for pod in pods):
        return layers, True
    method = default if any(pod.member.gpus for pod in pods) else ""
    return [nearest_declared([layer, CheckpointAnnotations(method=method)]) for layer in layers], False


def _checkpoint_lane(declared: CheckpointAnnotations, pods: Sequence[PodFacts]) -> tuple[str, bool]:
    """The lane of its checkpoints, and whether it is the name of a StorageClass.

    Pods that mount no claim (a launcher) do not count. Members whose claims are of several classes may write to any of
    them, so that the lane is unknown.
    """
    classes = {pod.storage_class for pod in pods if pod.storage_class}
    if declared.lane or len(classes) != 1:
        return untrusted.cut_name(declared.lane), False
    return classes.pop(), True


def _gang_times(
    declared: CheckpointAnnotations, pods: Sequence[PodFacts], works: Sequence[Work], now: datetime | None
) -> DeclaredTimes:
    starts = [pod.member.started_at for pod in pods if pod.member.started_at is not None]
    estimate = estimate_of(works, now) if now is not None else None
    return declared_times(declared, starts, limit=limit_of(works, _pod_deadlines(pods)), estimate=estimate)


def _is_alike(first: CheckpointAnnotations, second: CheckpointAnnotations) -> bool:
    # Containers and vetoes may differ between members; the method and the times of a request may not.
    return structs.replace(first, container=second.container, veto=second.veto, path=second.path) == second


def _is_replaced(pod: PodFacts, chains: Chains) -> bool:
    """Whether its controller always replaces it, and no owner above is stopped as a whole."""
    controller = pod.metadata.controller
    if controller is None or controller.kind not in REPLICATED:
        return False
    works = [link.work for link in chains.owners_above(controller) if link.work is not None]
    return all(work.row is None or work.row.switch is Switch.REPLICAS for work in works)


def _owners_of(pods: Iterable[PodFacts], chains: Chains) -> tuple[Owner, ...]:
    """All owners of any of the pods, once each, the nearest first."""
    links = (link for pod in pods for link in chains.owners_above(pod.metadata.controller))
    return tuple({link.owner.uid: link.owner for link in links}.values())


def _works_of(owners: Iterable[Owner], switch: PodSwitch, chains: Chains) -> list[Work]:
    """Owners that were read, and the object that stops the gang: Kueue's Workload owns no pod."""
    works = [work for owner in owners if (work := chains.work(owner.uid)) is not None]
    return works if switch.work is None or switch.work in works else [*works, switch.work]


def _wanted_members(group: _Group, chains: Chains) -> int:
    counted = {switch.counted.owner.uid: switch.counted for switch in group.switches if switch.counted is not None}
    total = max(pod.group_total for pod in group.pods) - group.succeeded
    return max(sum(wanted_pods(work, chains) for work in counted.values()), total) or len(group.pods)


def _pod_deadlines(pods: Iterable[PodFacts]) -> list[tuple[datetime, int]]:
    """Start and limit in seconds of pods that have a limit; Kueue's label counts on pods that it queues."""
    limits = [
        (pod.member.started_at, limit)
        for pod in pods
        for limit in (
            pod.active_deadline_seconds,
            queue_limit(pod.metadata.labels) if not pod.metadata.controller else None,
        )
    ]
    return [(start, limit) for start, limit in limits if start is not None and limit is not None]


def _make_names_distinct(gangs: list[Gang]) -> tuple[Gang, ...]:
    # Names are unique, except while pods of a deleted Job still end beside those of a new one with its name.
    count: dict[str, int] = {}
    distinct = []
    for gang in sorted(gangs, key=lambda gang: (gang.name, gang.owner is None, gang.members[0].uid)):
        count[gang.name] = count.get(gang.name, 0) + 1
        distinct.append(gang if count[gang.name] == 1 else _add_number(gang, count[gang.name]))
    return tuple(sorted(distinct, key=lambda gang: gang.name))


def _add_number(gang: Gang, number: int) -> Gang:
    return structs.replace(gang, name=f"{gang.name}~{number}")
