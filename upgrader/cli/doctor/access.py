"""Who may do what: the API server is asked for each right that deploy/ grants."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import msgspec

from upgrader.api.resources import GPU_STACKS, ResourceKind
from upgrader.api.reviews import ACCESS_OF, OWN_ACCESS, AccessReview
from upgrader.cli.shared import cluster_reading
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.rights import CHANGES, DIAGNOSES, Right, Scope, granted, looks
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context

AT_ONCE = 16
"""Questions to the API server at the same time."""

ACCOUNT = "gpu-upgrader"
"""The controller's ServiceAccount, as deploy/rbac.yaml names it."""


def needed() -> tuple[Right, ...]:
    """What deploy/ grants, kept beside this module by `make generate`."""
    raw = (resources.files("upgrader.cli.doctor") / "rights.json").read_bytes()
    return msgspec.json.decode(raw, type=tuple[Right, ...])


async def own_rights(context: Context) -> list[Advice]:
    """What the person at this command may do."""
    wanted = looks(needed())
    unseen, unsaid, undiagnosed = [
        await _missing(context, OWN_ACCESS, {}, rights) for rights in (wanted, CHANGES, DIAGNOSES)
    ]
    return [
        granted(
            "your rights to look",
            "OwnRights",
            len(wanted),
            unseen,
            severity=Severity.PROBLEM,
            fix="Ask for the reading part of deploy/rbac.yaml.",
        ),
        granted(
            "your rights to change",
            "OwnRights",
            len(CHANGES),
            unsaid,
            severity=Severity.WARNING,
            fix="`plan`, `status` and `why` work without; `apply` and `approve` do not.",
        ),
        granted(
            "your rights to diagnose",
            "OwnRights",
            len(DIAGNOSES),
            undiagnosed,
            severity=Severity.WARNING,
            fix="Only `doctor` reads these: ask for them, or have somebody who may run it.",
        ),
    ]


async def controllers_rights(context: Context) -> list[Advice]:
    """What the controller's ServiceAccount may do, and in which namespaces with jobs."""
    namespace = context.stack.namespace
    user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    who = {"user": user, "groups": groups}
    rights = needed()
    general = [one for one in rights if one.scope is not Scope.JOBS]
    found = [
        granted(
            "the controller's rights",
            "ControllerRights",
            len(general),
            await _missing(context, ACCESS_OF, who, general),
            severity=Severity.PROBLEM,
            fix="Apply deploy/rbac.yaml of this release.",
        )
    ]
    of_jobs = [one for one in rights if one.scope is Scope.JOBS]
    return found + [
        granted(
            f"the controller's rights in {space}",
            "JobRights",
            len(of_jobs),
            await _missing(context, ACCESS_OF, who, of_jobs, space),
            severity=Severity.WARNING,
            fix=f"Jobs there are never asked or stopped: sed s/NAMESPACE/{space}/ deploy/job-namespace.yaml | "
            "kubectl apply -f -",
        )
        for space in await _job_namespaces(context)
    ]


async def _missing(
    context: Context,
    kind: ResourceKind[AccessReview],
    who: Mapping[str, Any],
    rights: Sequence[Right],
    jobs_in: str = "",
) -> list[Right]:
    gate = asyncio.Semaphore(AT_ONCE)
    spaces = {Scope.OWN: context.stack.namespace, Scope.JOBS: jobs_in}

    async def allowed(right: Right) -> bool:
        space = spaces.get(right.scope, "")
        attributes = right.attributes | ({"namespace": space} if space else {})
        async with gate:
            seen = await context.cluster.create(
                kind, {"metadata": {}, "spec": {**who, "resourceAttributes": attributes}}
            )
        return seen.status.allowed

    answers = await asyncio.gather(*(allowed(right) for right in rights))
    return [right for right, yes in zip(rights, answers, strict=True) if not yes]


async def _job_namespaces(context: Context) -> list[str]:
    found: set[str] = set()
    for stack in await context.cluster.list(GPU_STACKS):
        snapshot = await cluster_reading.look(
            context, stack, cluster_snapshot.target_of(stack.spec, stack.metadata.name)
        )
        found |= {gang.namespace for gang in snapshot.gangs}
    return sorted(found)
