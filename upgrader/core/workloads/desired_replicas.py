"""The number of pods that an owner should have now: from its spec, without pods that have succeeded."""

from collections.abc import Callable, Mapping
from typing import Any

from upgrader.core.patches import value_at
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
    object_entries,
    read_count,
)

LABEL_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"


def wanted_pods(work: Work, chains: Chains) -> int:
    """Pods that should run for an owner now; 0 if its kind does not define it (or none should)."""
    count = _COUNTS.get(work.sort)
    return count(work, chains) if count is not None else 0


def of_job(spec: Mapping[str, Any], succeeded: int) -> int:
    """Pods that a Job should run now; without completions it is a work queue, which empties from its first success."""
    beside = read_count(spec.get("parallelism"), 1)
    return max(0, min(beside, read_count(spec.get("completions"), beside) - succeeded))


def _count_job(work: Work, _: Chains) -> int:
    return of_job(work.spec, read_count(work.status.get("succeeded")))


def _count_jobset(work: Work, chains: Chains) -> int:
    """Pods of its Jobs: of those that exist by their specs, of those that do not exist yet by their template."""
    jobs = [child for child in chains.children(work.owner.uid) if child.sort == JOB]
    count = 0
    for part in object_entries(work.spec.get("replicatedJobs")):
        made = [job for job in jobs if job.labels.get(LABEL_REPLICATED_JOB) == part.get("name")]
        to_come = max(0, read_count(part.get("replicas"), 1) - len(made))
        template = value_at(part, ("template", "spec"))
        count += sum(_count_job(job, chains) for job in made)
        count += to_come * of_job(template if isinstance(template, Mapping) else {}, 0)
    return count


def _count_trainjob(work: Work, chains: Chains) -> int:
    return sum(_count_jobset(child, chains) for child in chains.children(work.owner.uid) if child.sort == JOBSET)


def _count_mpijob(work: Work, _: Chains) -> int:
    specs = work.spec.get("mpiReplicaSpecs")
    if not isinstance(specs, Mapping):
        return 0
    return sum(
        max(
            0,
            read_count(value_at(specs, (role, "replicas")), 1)
            - read_count(value_at(work.status, ("replicaStatuses", role, "succeeded"))),
        )
        for role in specs
    )


def _count_rayjob(work: Work, chains: Chains) -> int:
    """Pods of its cluster as it is now (an autoscaler changes only that), else as specified; and of its submitter."""
    of_jobs = sum(_count_job(child, chains) for child in chains.children(work.owner.uid) if child.sort == JOB)
    clusters = [child for child in chains.children(work.owner.uid) if child.sort == RAYCLUSTER]
    if clusters:
        return of_jobs + sum(_count_ray_pods(cluster.spec) for cluster in clusters)
    spec = work.spec.get("rayClusterSpec")
    return of_jobs + (_count_ray_pods(spec) if isinstance(spec, Mapping) else 0)


def _count_raycluster(work: Work, _: Chains) -> int:
    return _count_ray_pods(work.spec)


def _count_ray_pods(spec: Mapping[str, Any]) -> int:
    if spec.get("suspend") is True:
        return 0
    groups = [group for group in object_entries(spec.get("workerGroupSpecs")) if group.get("suspend") is not True]
    return 1 + sum(read_count(group.get("replicas"), 1) * read_count(group.get("numOfHosts"), 1) for group in groups)


def _count_volcano_job(work: Work, _: Chains) -> int:
    tasks = sum(read_count(task.get("replicas"), 1) for task in object_entries(work.spec.get("tasks")))
    return max(0, tasks - read_count(work.status.get("succeeded")))


def _count_statefulset(work: Work, _: Chains) -> int:
    return read_count(work.spec.get("replicas"), 1)


def _count_leaderworkerset(work: Work, _: Chains) -> int:
    size = read_count(value_at(work.spec, ("leaderWorkerTemplate", "size")), 1)
    return read_count(work.spec.get("replicas"), 1) * size


_COUNTS: Mapping[str, Callable[[Work, Chains], int]] = {
    JOB: _count_job,
    JOBSET: _count_jobset,
    TRAINJOB: _count_trainjob,
    MPIJOB: _count_mpijob,
    RAYJOB: _count_rayjob,
    RAYCLUSTER: _count_raycluster,
    VOLCANO_JOB: _count_volcano_job,
    STATEFULSET: _count_statefulset,
    LEADERWORKERSET: _count_leaderworkerset,
}
