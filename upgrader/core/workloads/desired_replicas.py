"""How many pods an owner should have now: from its spec, pods that have succeeded not counted."""

from collections.abc import Callable, Mapping
from typing import Any

from upgrader.core.patches import at
from upgrader.core.workloads.owner_chain import Chains
from upgrader.core.workloads.owner_objects import (
    JOB,
    JOBSET,
    LEADERWORKERSET,
    MPIJOB,
    RAYCLUSTER,
    RAYJOB,
    STATEFULSET,
    TRAINJOB,
    VOLCANO_JOB,
    Work,
    entries,
    number,
)

LABEL_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"


def wanted(work: Work, chains: Chains) -> int:
    """Pods that should run for an owner now; 0 where its kind does not say it (or none should)."""
    count = _COUNTS.get(work.sort)
    return count(work, chains) if count is not None else 0


def of_job(spec: Mapping[str, Any], succeeded: int) -> int:
    """Pods that a Job should run now; without completions it is a work queue, which empties from its first success."""
    beside = number(spec.get("parallelism"), 1)
    return max(0, min(beside, number(spec.get("completions"), beside) - succeeded))


def _job(work: Work, _: Chains) -> int:
    return of_job(work.spec, number(work.status.get("succeeded")))


def _jobset(work: Work, chains: Chains) -> int:
    """Those of its Jobs that are there, as they say, and of those that are yet to come, as their template says."""
    jobs = [one for one in chains.children(work.owner.uid) if one.sort == JOB]
    count = 0
    for part in entries(work.spec.get("replicatedJobs")):
        made = [one for one in jobs if one.labels.get(LABEL_REPLICATED_JOB) == part.get("name")]
        to_come = max(0, number(part.get("replicas"), 1) - len(made))
        template = at(part, ("template", "spec"))
        count += sum(_job(one, chains) for one in made)
        count += to_come * of_job(template if isinstance(template, Mapping) else {}, 0)
    return count


def _trainjob(work: Work, chains: Chains) -> int:
    return sum(_jobset(one, chains) for one in chains.children(work.owner.uid) if one.sort == JOBSET)


def _mpijob(work: Work, _: Chains) -> int:
    specs = work.spec.get("mpiReplicaSpecs")
    if not isinstance(specs, Mapping):
        return 0
    return sum(
        max(
            0,
            number(at(specs, (role, "replicas")), 1) - number(at(work.status, ("replicaStatuses", role, "succeeded"))),
        )
        for role in specs
    )


def _rayjob(work: Work, chains: Chains) -> int:
    """Its cluster as it is by now (an autoscaler changes that one only), else as it should be; and its submitter."""
    of_jobs = sum(_job(one, chains) for one in chains.children(work.owner.uid) if one.sort == JOB)
    clusters = [one for one in chains.children(work.owner.uid) if one.sort == RAYCLUSTER]
    if clusters:
        return of_jobs + sum(_ray(one.spec) for one in clusters)
    spec = work.spec.get("rayClusterSpec")
    return of_jobs + (_ray(spec) if isinstance(spec, Mapping) else 0)


def _raycluster(work: Work, _: Chains) -> int:
    return _ray(work.spec)


def _ray(spec: Mapping[str, Any]) -> int:
    if spec.get("suspend") is True:
        return 0
    groups = [one for one in entries(spec.get("workerGroupSpecs")) if one.get("suspend") is not True]
    return 1 + sum(number(one.get("replicas"), 1) * number(one.get("numOfHosts"), 1) for one in groups)


def _volcano(work: Work, _: Chains) -> int:
    tasks = sum(number(one.get("replicas"), 1) for one in entries(work.spec.get("tasks")))
    return max(0, tasks - number(work.status.get("succeeded")))


def _statefulset(work: Work, _: Chains) -> int:
    return number(work.spec.get("replicas"), 1)


def _leaderworkerset(work: Work, _: Chains) -> int:
    size = number(at(work.spec, ("leaderWorkerTemplate", "size")), 1)
    return number(work.spec.get("replicas"), 1) * size


_COUNTS: Mapping[str, Callable[[Work, Chains], int]] = {
    JOB: _job,
    JOBSET: _jobset,
    TRAINJOB: _trainjob,
    MPIJOB: _mpijob,
    RAYJOB: _rayjob,
    RAYCLUSTER: _raycluster,
    VOLCANO_JOB: _volcano,
    STATEFULSET: _statefulset,
    LEADERWORKERSET: _leaderworkerset,
}
