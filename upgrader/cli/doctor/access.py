"""Access reviews: the API server evaluates each right that deploy/ grants."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import msgspec

from upgrader.api.resources import GPU_STACKS, ResourceKind
from upgrader.api.reviews import ACCESS_OF, OWN_ACCESS, AccessReview
from upgrader.cli.shared import cluster_reading
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.rights import CHANGES, DIAGNOSES, Right, Scope, check_rights, forecast_rights
from upgrader.reconcile.runtime.context import Context

AT_ONCE = 16
"""Maximum number of concurrent access reviews."""

ACCOUNT = "gpu-upgrader"
"""ServiceAccount of the controller in deploy/rbac.yaml."""


def required_rights() -> tuple[Right, ...]:
    """The rights that deploy/ grants, written to rights.json by `make generate`."""
    raw = (resources.files("upgrader.cli.doctor") / "rights.json").read_bytes()
    return msgspec.json.decode(raw, type=tuple[Right, ...])


async def own_rights(context: Context) -> list[Advice]:
    """The rights of the current user."""
    wanted = forecast_rights(required_rights())
    unseen, unsaid, undiagnosed = [
        await _missing_rights(context, OWN_ACCESS, {}, rights) for rights in (wanted, CHANGES, DIAGNOSES)
    ]
    return [
        check_rights(
            "your read access",
            "OwnRights",
            len(wanted),
            unseen,
            severity=Severity.PROBLEM,
            fix="Request the read rules of deploy/rbac.yaml.",
        ),
        check_rights(
            "your write access",
            "OwnRights",
            len(CHANGES),
            unsaid,
            severity=Severity.WARNING,
            fix="`plan`, `status` and `why` do not require these rights; `apply` and `approve` do.",
        ),
        check_rights(
            "your access for diagnosis",
            "OwnRights",
            len(DIAGNOSES),
            undiagnosed,
            severity=Severity.WARNING,
            fix="Only `doctor` requires these rights: request them, or run it as another user.",
        ),
    ]


async def controllers_rights(context: Context) -> list[Advice]:
    """The rights of the ServiceAccount of the controller, in the cluster and in namespaces with jobs."""
    namespace = context.stack.namespace
    user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    who = {"user": user, "groups": groups}
    rights = required_rights()
    general = [right for right in rights if right.scope is not Scope.JOBS]
    findings = [
        check_rights(
            "the controller's rights",
            "ControllerRights",
            len(general),
            await _missing_rights(context, ACCESS_OF, who, general),
            severity=Severity.PROBLEM,
            fix="Apply deploy/rbac.yaml of this release.",
        )
    ]
    of_jobs = [right for right in rights if right.scope is Scope.JOBS]
    return findings + [
        check_rights(
            f"the controller's rights in {space}",
            "JobRights",
            len(of_jobs),
            await _missing_rights(context, ACCESS_OF, who, of_jobs, space),
            severity=Severity.WARNING,
            fix=f"Jobs in this namespace are not requested or stopped. To grant the rights: "
            f"sed s/NAMESPACE/{space}/ deploy/job-namespace.yaml | "
            "kubectl apply -f -",
        )
        for space in await _job_namespaces(context)
    ]


async def _missing_rights(
    context: Context,
    kind: ResourceKind[AccessReview],
    who: Mapping[str, Any],
    rights: Sequence[Right],
    jobs_in: str = "",
) -> list[Right]:
    gate = asyncio.Semaphore(AT_ONCE)
    spaces = {Scope.OWN: context.stack.namespace, Scope.JOBS: jobs_in}

    async def is_allowed(right: Right) -> bool:
        space = spaces.get(right.scope, "")
        attributes = right.attributes | ({"namespace": space} if space else {})
        async with gate:
            seen = await context.cluster.create(
                kind, {"metadata": {}, "spec": {**who, "resourceAttributes": attributes}}
            )
        return seen.status.allowed

    answers = await asyncio.gather(*(is_allowed(right) for right in rights))
    return [right for right, yes in zip(rights, answers, strict=True) if not yes]


async def _job_namespaces(context: Context) -> list[str]:
    namespaces: set[str] = set()
    # The check of images reports stacks without a target.
    valid, _ = cluster_reading.split_targets(await context.cluster.list(GPU_STACKS))
    for stack, target in valid:
        snapshot = await cluster_reading.read_snapshot(context, stack, target)
        namespaces |= {gang.namespace for gang in snapshot.gangs}
    return sorted(namespaces)
