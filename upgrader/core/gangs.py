"""Who belongs together: pods and Jobs into gangs.

First hit wins: pod-group label, Job by its uid, another controller, the pod alone. A gang counts where one of its pods
asks for GPUs; its other pods are members too. Our own pods and pods that have ended never are.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct, structs

from upgrader.core.declarations import Declared, nearest, times, usable
from upgrader.core.fleet import Gang, MemberFacts, Owner, Terms

REPLICATED = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"})
"""Controllers that replace a pod for ever: their undeclared pods are evicted one by one under their budget."""

ENDED = frozenset({"Succeeded", "Failed"})


class PodFacts(Struct, frozen=True, kw_only=True):
    """A pod, as far as it matters for who belongs together."""

    member: MemberFacts
    controller: Owner | None = None
    pod_group: str = ""
    declared: Declared = Declared()  # its own annotations only
    ours: bool = False


class JobFacts(Struct, frozen=True, kw_only=True):
    """A Job: what is suspended to stop its pods."""

    name: str
    namespace: str
    uid: str
    wanted: int  # pods that should run now, succeeded ones not counted
    suspended: bool = False
    stopped_by: str = ""
    managed_by: str = ""  # what would undo our suspension (JobSet x, Kueue queue y); empty: nobody
    declared: Declared = Declared()
    ends_by: datetime | None = None  # when its controller ends it (activeDeadlineSeconds)


class _Key(Struct, frozen=True, kw_only=True, order=True):
    namespace: str
    kind: str
    name: str
    uid: str = ""


def gangs_of(
    pods: Iterable[PodFacts], jobs: Iterable[JobFacts], namespaces: Mapping[str, Declared]
) -> tuple[Gang, ...]:
    """All gangs that ask for GPUs, by name; the same whatever the order of pods.

    `namespaces`: what each namespace declares for its jobs.
    """
    known = {job.uid: job for job in jobs}
    groups: dict[_Key, list[PodFacts]] = {}
    for pod in pods:
        if not pod.ours and pod.member.phase not in ENDED:
            groups.setdefault(_key(pod), []).append(pod)
    known = _with_parted(known, groups)
    found = [
        _gang(key, sorted(group, key=lambda pod: (pod.member.pod, pod.member.uid)), known, namespaces)
        for key, group in groups.items()
        if any(pod.member.gpus for pod in group)
    ]
    return _distinct(sorted(found, key=lambda gang: (gang.name, gang.members[0].uid)))


def _with_parted(jobs: Mapping[str, JobFacts], groups: Mapping[_Key, list[PodFacts]]) -> dict[str, JobFacts]:
    # Suspending a Job ends all its pods: one whose pods are in several gangs would stop more than was asked.
    seen: dict[str, set[_Key]] = {}
    for key, group in groups.items():
        for pod in group:
            if pod.controller is not None:
                seen.setdefault(pod.controller.uid, set()).add(key)
    return {
        uid: structs.replace(job, managed_by=job.managed_by or "several pod groups")
        if len(seen.get(uid, ())) > 1
        else job
        for uid, job in jobs.items()
    }


def _key(pod: PodFacts) -> _Key:
    namespace = pod.member.namespace
    if pod.pod_group:
        return _Key(namespace=namespace, kind="pod-group", name=pod.pod_group)
    if pod.controller is not None:
        return _Key(namespace=namespace, kind=pod.controller.kind, name=pod.controller.name, uid=pod.controller.uid)
    return _Key(namespace=namespace, kind="Pod", name=pod.member.pod, uid=pod.member.uid)


def _gang(key: _Key, pods: list[PodFacts], jobs: Mapping[str, JobFacts], namespaces: Mapping[str, Declared]) -> Gang:
    members = tuple(pod.member for pod in pods)
    uids = {pod.controller.uid if pod.controller else "" for pod in pods}
    owners = [jobs[uid] for uid in sorted(uids) if uid in jobs]
    job = owners[0] if len(owners) == len(uids) == 1 else None
    layers = [nearest([pod.declared, _of_owner(pod, jobs), namespaces.get(key.namespace, Declared())]) for pod in pods]
    declared, same = layers[0], all(_alike(layer, layers[0]) for layer in layers)
    method = usable(declared, members)
    replicated = not declared.method and all(pod.controller and pod.controller.kind in REPLICATED for pod in pods)
    cannot_stop = _cannot_stop(key, pods, job)
    starts = [member.started_at for member in members if member.started_at is not None]
    said = times(declared, starts, min((one.ends_by for one in owners if one.ends_by), default=None))
    return Gang(
        name=f"{key.namespace}/{key.kind}/{key.name}",
        namespace=key.namespace,
        kind=key.kind,
        members=members,
        owner=Owner(kind="Job", name=job.name, uid=job.uid) if job and not cannot_stop else None,
        wanted=sum(one.wanted for one in owners) or len(members),
        method=method.name if same else "",
        timeout_seconds=method.timeout_seconds if same else None,
        undeclared_because=method.problem if same else "Its members declare different ways of asking.",
        replicated=replicated,
        stopped_by=next((one.stopped_by for one in owners if one.stopped_by), ""),
        suspended=any(one.suspended for one in owners),
        cannot_stop="" if replicated else cannot_stop,
        veto=next((layer.veto for layer in layers if layer.veto), ""),
        terms=method.terms if same else Terms(),
        min_runtime_seconds=said.min_runtime_seconds,
        ends_at=said.ends_at,
        lane=declared.lane,
    )


def _alike(one: Declared, other: Declared) -> bool:
    # Containers and vetoes may differ from member to member; how and when the gang is asked may not.
    return structs.replace(one, container=other.container, veto=other.veto) == other


def _of_owner(pod: PodFacts, jobs: Mapping[str, JobFacts]) -> Declared:
    job = jobs.get(pod.controller.uid) if pod.controller else None
    return job.declared if job else Declared()


def _cannot_stop(key: _Key, pods: list[PodFacts], job: JobFacts | None) -> str:
    if job is not None:
        if not job.managed_by:
            return ""
        return (
            f"Job {job.name} belongs to {job.managed_by}; only Jobs that stand for themselves can be suspended by us."
        )
    controllers = sorted({f"{pod.controller.kind} {pod.controller.name}" if pod.controller else "" for pod in pods})
    if controllers == [""]:
        return "Its pods have no controller that would make them again."
    if len(controllers) > 1:
        shown = ", ".join(name or "no controller at all" for name in controllers)
        return f"Pod group {key.name} has pods of several owners ({shown}), which cannot be suspended in one write."
    if controllers[0].startswith("Job "):
        return f"Its {controllers[0]} is gone or was replaced by another of this name."
    return f"Only Jobs can be suspended today, and its pods belong to {controllers[0]}."


def _distinct(gangs: list[Gang]) -> tuple[Gang, ...]:
    # Names are unique, except while pods of a deleted Job still end beside those of a new one with its name.
    count: dict[str, int] = {}
    distinct = []
    for gang in sorted(gangs, key=lambda gang: (gang.name, gang.owner is None)):
        count[gang.name] = count.get(gang.name, 0) + 1
        distinct.append(gang if count[gang.name] == 1 else _numbered(gang, count[gang.name]))
    return tuple(sorted(distinct, key=lambda gang: gang.name))


def _numbered(gang: Gang, number: int) -> Gang:
    return structs.replace(gang, name=f"{gang.name}~{number}")
