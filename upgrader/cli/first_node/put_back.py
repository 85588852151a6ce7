"""What puts back a change of the journal. Each action can be repeated, and finds nothing to do if it was done."""

from collections.abc import Awaitable, Callable, Mapping

from upgrader.api.resources import NODES, PODS
from upgrader.core.first_node.journal import PutBack, UndoAction
from upgrader.reconcile.runtime.context import Context


async def _delete_pod(context: Context, change: PutBack) -> None:
    pod = await context.cluster.get(PODS, change.name, change.namespace)
    if pod is not None:
        await context.cluster.delete(PODS, pod.metadata)


async def _uncordon_node(context: Context, change: PutBack) -> None:
    node = await context.cluster.get(NODES, change.name)
    if node is not None and node.spec.unschedulable:
        await context.cluster.merge(NODES, node.metadata, {"spec": {"unschedulable": False}})


UNDO: Mapping[UndoAction, Callable[[Context, PutBack], Awaitable[None]]] = {
    UndoAction.DELETE_POD: _delete_pod,
    UndoAction.UNCORDON: _uncordon_node,
}
