"""The operator's finalizer: it delays the deletion of an object until its work is done."""

from typing import TypeVar

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import ResourceKind
from upgrader.reconcile.runtime.context import Context

T = TypeVar("T")


async def add_finalizer(context: Context, kind: ResourceKind[T], meta: ObjectMeta) -> T:
    """Add the finalizer; the API server refuses that for an object that is being deleted.

    Raises:
        ConflictError: the object changed since it was read.
    """
    return await _write_finalizers(context, kind, meta, [*_other_finalizers(meta), names.FINALIZER])


async def remove_finalizer(context: Context, kind: ResourceKind[T], meta: ObjectMeta) -> T:
    """Remove the finalizer; this completes the deletion of an object that is being deleted.

    Raises:
        ConflictError: the object changed since it was read.
    """
    return await _write_finalizers(context, kind, meta, _other_finalizers(meta))


def _other_finalizers(meta: ObjectMeta) -> list[str]:
    return [finalizer for finalizer in meta.finalizers if finalizer != names.FINALIZER]


async def _write_finalizers(context: Context, kind: ResourceKind[T], meta: ObjectMeta, finalizers: list[str]) -> T:
    context.leadership.check()
    return await context.cluster.merge(kind, meta, {"metadata": {"finalizers": finalizers}})
