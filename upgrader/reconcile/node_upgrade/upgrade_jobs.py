"""The Job of a node upgrade: created suspended, started by a patch of that Job, deleted.

A late request has no effect: a Job that is created after the end of its upgrade stays suspended, and a late patch
finds no Job.
"""

from typing import Any

from upgrader.api import names
from upgrader.api.kubernetes import Job, ObjectMeta
from upgrader.api.resources import JOBS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.errors import ConflictError, NotFoundError
from upgrader.reconcile.runtime.context import Context
from upgrader.stack import manifests

_STARTED = f"/metadata/annotations/{names.ANNOTATION_STARTED.replace('/', '~1')}"
_START = (
    {"op": "test", "path": "/spec/suspend", "value": True},
    {"op": "add", "path": _STARTED, "value": "true"},
    {"op": "replace", "path": "/spec/suspend", "value": False},
)


async def make_job(context: Context, body: dict[str, Any]) -> Job:
    """Get the Job by its name, or create it.

    Raises:
        ConflictError: it was created in the meantime; the next step finds it.
    """
    meta = body["metadata"]
    job = await context.cluster.get(JOBS, meta["name"], meta["namespace"])
    return job if job is not None else await context.cluster.create(JOBS, body)


async def start_job(context: Context, job: Job) -> None:
    """Start a Job that was never started, independent of status writes by its controller.

    Raises:
        ConflictError: it was started, or deleted and recreated; the next step decides.
    """
    if job.spec.suspend and names.ANNOTATION_STARTED not in job.metadata.annotations:
        await context.cluster.edit(JOBS, job.metadata, _START)


async def cancel_job(context: Context, name: str) -> None:
    """Delete a Job if it exists."""
    job = await context.cluster.get(JOBS, name, context.stack.namespace)
    if job is not None:
        await context.cluster.delete(JOBS, job.metadata)


async def rehearse_start(context: Context, upgrade: NodeUpgrade) -> None:
    """Patch the Job of an upgrade before it exists, which the API server refuses if the right is missing.

    Raises:
        ClusterError: it refused, or did not answer.
    """
    name = manifests.upgrade_name(upgrade, reverting=False)
    meta = ObjectMeta(name=name, namespace=context.stack.namespace, uid=upgrade.metadata.uid)
    try:
        await context.cluster.edit(JOBS, meta, _START)
    except (ConflictError, NotFoundError):
        return  # the API server checks rights first
