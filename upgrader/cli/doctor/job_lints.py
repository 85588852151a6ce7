"""Reads of `upgrader doctor --jobs`: all gangs on the nodes of a stack, as input of core.doctor.lints."""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import GPU_STACKS, NAMESPACES
from upgrader.api.workloads import BUDGETS, JOB_POLICIES, MEMBER_PODS, Budget, JobPolicy, MemberPod
from upgrader.cli.shared import cluster_reading
from upgrader.core import untrusted
from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.checkup import report_invalid_stack
from upgrader.core.doctor.lint_facts import (
    DEFAULT_GRACE,
    BudgetSettings,
    FailureRule,
    GangLintFacts,
    JobSettings,
    MemberSettings,
    ProgramFacts,
)
from upgrader.core.doctor.lints import lint_job
from upgrader.core.model.fleet import Gang, MemberFacts
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations, nearest_declared
from upgrader.core.workloads.pod_disruption_budgets import DisruptionBudget, is_selected
from upgrader.reconcile.facts.pod_facts import controller_of, read_declared
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context

KNOWN_ANNOTATIONS = frozenset(value for name, value in vars(names).items() if name.startswith("ANNOTATION_"))


class JobLintReport(Struct, frozen=True, kw_only=True):
    """The result of `upgrader doctor --jobs`: the number of checked jobs, and all findings."""

    looked_at: int
    found: tuple[Advice, ...]


class Read(Struct, frozen=True, kw_only=True):
    """The objects that the lints require, by UID if they are looked up."""

    pods: Mapping[str, MemberPod]
    jobs: Mapping[str, JobPolicy]
    budgets: Sequence[Budget]
    namespaces: Mapping[str, CheckpointAnnotations]


async def lint_jobs(context: Context, stack: str | None) -> JobLintReport:
    """Check all gangs of one stack or of all stacks; a job on two stacks is checked once."""
    stacks = [await cluster_reading.stack_named(context, stack)] if stack else await context.cluster.list(GPU_STACKS)
    gangs: dict[str, Gang] = {}
    valid, invalid = cluster_reading.split_targets(stacks)
    for stack_object, target in valid:
        snapshot = await cluster_reading.read_snapshot(context, stack_object, target)
        gangs |= {gang.name: gang for gang in snapshot.gangs}
    read = await _read_objects(context)
    facts = [lint_gang(gangs[name], read) for name in sorted(gangs)]
    unread = [report_invalid_stack(stack_object.metadata.name, error) for stack_object, error in invalid]
    return JobLintReport(looked_at=len(facts), found=(*unread, *(advice for job in facts for advice in lint_job(job))))


async def _read_objects(context: Context) -> Read:
    cluster = context.cluster
    return Read(
        pods={pod.metadata.uid: pod for pod in await cluster.list(MEMBER_PODS)},
        jobs={job.metadata.uid: job for job in await cluster.list(JOB_POLICIES)},
        budgets=await cluster.list(BUDGETS),
        namespaces={
            namespace.metadata.name: read_declared(namespace.metadata) for namespace in await cluster.list(NAMESPACES)
        },
    )


def lint_gang(gang: Gang, read: Read) -> GangLintFacts:
    """One gang with its pods, Job and PodDisruptionBudgets."""
    pairs = [(member, read.pods[member.uid]) for member in gang.members if member.uid in read.pods]
    owners = {owner.uid for _, pod in pairs if (owner := controller_of(pod.metadata)) is not None}
    jobs = [read.jobs[uid] for uid in sorted(owners) if uid in read.jobs]
    budgets = [
        (cluster_snapshot.disruption_budget(budget), budget)
        for budget in read.budgets
        if budget.metadata.namespace == gang.namespace
    ]
    members = tuple(_member_settings(member, pod, read, [facts for facts, _ in budgets]) for member, pod in pairs)
    covering = {name for member in members for name in member.budgets}
    return GangLintFacts(
        gang=gang,
        members=members,
        job=_job_settings(jobs[0]) if len(jobs) == 1 else None,
        budgets=tuple(
            BudgetSettings(name=facts.name, most=most_at_once(budget))
            for facts, budget in budgets
            if facts.name in covering
        ),
    )


def _member_settings(
    member: MemberFacts, pod: MemberPod, read: Read, budgets: Sequence[DisruptionBudget]
) -> MemberSettings:
    owner = controller_of(pod.metadata)
    job = read.jobs.get(owner.uid) if owner is not None else None
    layers = [pod.metadata, *([job.metadata] if job is not None else [])]
    grace = pod.spec.termination_grace_period_seconds
    return MemberSettings(
        pod=member.pod,
        programs=tuple(
            ProgramFacts(
                name=container.name,
                words=(*container.command, *container.args),
                environment={variable.name: variable.value for variable in container.env if variable.value},
            )
            for container in pod.spec.containers
        ),
        grace_seconds=DEFAULT_GRACE if grace is None else grace,
        restart_policy=pod.spec.restart_policy,
        declared=nearest_declared(
            [*map(read_declared, layers), read.namespaces.get(member.namespace, CheckpointAnnotations())]
        ),
        mounted=member.mounted,
        ephemeral_paths=member.ephemeral_paths,
        volume_paths=member.volume_paths,
        budgets=tuple(budget.name for budget in budgets if is_selected(budget.selector, member.labels)),
        strange_annotations=tuple(sorted(name for meta in layers for name in _unknown_annotations(meta))),
    )


def _unknown_annotations(meta: ObjectMeta) -> set[str]:
    return {name for name in meta.annotations if name.startswith(f"{names.GROUP}/") and name not in KNOWN_ANNOTATIONS}


def _job_settings(job: JobPolicy) -> JobSettings:
    policy = job.spec.pod_failure_policy
    return JobSettings(
        name=job.metadata.name,
        backoff_limit=job.spec.backoff_limit,
        rules=tuple(
            FailureRule(
                action=rule.action,
                conditions=tuple(on.type for on in rule.on_pod_conditions or () if on.status == "True"),
                operator=rule.on_exit_codes.operator if rule.on_exit_codes is not None else "",
                exit_codes=tuple(rule.on_exit_codes.values) if rule.on_exit_codes is not None else (),
            )
            for rule in (policy.rules if policy is not None else ())
        ),
    )


def most_at_once(budget: Budget) -> int | None:
    """Maximum number of pods that may be evicted if all are healthy; None if unknown. Percentages are rounded up."""
    if any(
        condition.type == "DisruptionAllowed" and condition.reason == "SyncFailed"
        for condition in budget.status.conditions
    ):
        return 0  # the number of expected pods is unknown, so no eviction is allowed
    pods, most, least = budget.status.expected_pods, budget.spec.max_unavailable, budget.spec.min_available
    if most is not None:
        return _resolve_percentage(most, pods)
    kept = _resolve_percentage(least, pods) if least is not None else None
    if least == "100%":
        return 0
    return max(0, pods - kept) if pods is not None and kept is not None else None


def _resolve_percentage(value: int | str, pods: int | None) -> int | None:
    if isinstance(value, int):
        return value
    percent = untrusted.parse_whole(value.removesuffix("%"))
    if percent is None:
        return None
    if percent == 0:
        return 0
    return math.ceil(pods * percent / 100) if pods is not None else None
