"""Our finalizer: an object that carries it stays, when it is deleted, until what it stands for is over."""

from typing import TypeVar

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import ResourceKind
from upgrader.reconcile.runtime.context import Context

T = TypeVar("T")


async def put(context: Context, kind: ResourceKind[T], meta: ObjectMeta) -> T:
    """The object with our finalizer; the API server refuses that of one that is being deleted.

    Raises:
        ConflictError: the object changed since it was read.
    """
    return await _write(context, kind, meta, [*_others(meta), names.FINALIZER])


async def take(context: Context, kind: ResourceKind[T], meta: ObjectMeta) -> T:
    """The object without it; a deleted one is gone then.

    Raises:
        ConflictError: the object changed since it was read.
    """
    return await _write(context, kind, meta, _others(meta))


def _others(meta: ObjectMeta) -> list[str]:
    return [one for one in meta.finalizers if one != names.FINALIZER]


async def _write(context: Context, kind: ResourceKind[T], meta: ObjectMeta, finalizers: list[str]) -> T:
    context.leadership.check()
    return await context.cluster.merge(kind, meta, {"metadata": {"finalizers": finalizers}})
