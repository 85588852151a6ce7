"""What puts back a change of the journal. Each action can be repeated, and finds nothing to do if it was done."""

from collections.abc import Awaitable, Callable, Mapping

import click

from upgrader.api.resources import NODES, PODS
from upgrader.cli.doctor.node_pod import Sleep
from upgrader.cli.first_node.stack_change import StackChange, restore_stack
from upgrader.core import untrusted
from upgrader.core.first_node.journal import PutBack, UndoAction
from upgrader.reconcile.runtime.context import Context

Undo = Callable[[Context, Sleep, PutBack], Awaitable[None]]


async def _delete_pod(context: Context, _: Sleep, change: PutBack) -> None:
    pod = await context.cluster.get(PODS, change.name, change.namespace)
    if pod is not None:
        await context.cluster.delete(PODS, pod.metadata)


async def _uncordon_node(context: Context, _: Sleep, change: PutBack) -> None:
    node = await context.cluster.get(NODES, change.name)
    if node is not None and node.spec.unschedulable:
        await context.cluster.merge(NODES, node.metadata, {"spec": {"unschedulable": False}})


async def _restore_stack(context: Context, sleep: Sleep, change: PutBack) -> None:
    click.echo(f"stack {change.name} and its node are led back to what they were; this takes a while", err=True)
    await restore_stack(context, sleep, change.name, untrusted.decode_json(change.value, StackChange))


UNDO: Mapping[UndoAction, Undo] = {
    UndoAction.DELETE_POD: _delete_pod,
    UndoAction.UNCORDON: _uncordon_node,
    UndoAction.RESTORE_STACK: _restore_stack,
}
