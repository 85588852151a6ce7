"""`upgrader uninstall`: nothing of ours stays stopped or marked, then our objects go.

The controller does the taking back (law 9); this asks for it, waits for it, and then removes what is left: labels,
taints of upgrades that failed, records on owners of gangs. What people set (the label skip, cordons) stays.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from upgrader.api import names
from upgrader.api.kinds import KINDS
from upgrader.api.kubernetes import Node
from upgrader.api.resources import (
    CHECKPOINT_REQUESTS,
    CONTROLLER_REVISIONS,
    DAEMONSETS,
    DRIVER_IMAGES,
    GPU_STACKS,
    NODE_UPGRADES,
    NODES,
    PODS,
    UPGRADE_PLANS,
    ResourceKind,
)
from upgrader.cli.shared import consent, policies
from upgrader.core.errors import ConflictError, DeadlineError, NotFoundError, UnreachableError
from upgrader.core.gpu_stack import adoption
from upgrader.core.model.phases import DesiredState, ends
from upgrader.core.workloads import placement, suspend_patches
from upgrader.kube.install import CRDS
from upgrader.reconcile.checkpoint_request import live_owners
from upgrader.reconcile.checkpoint_request.live_owners import LiveOwner
from upgrader.reconcile.checkpoint_request.orphaned_annotations import marked, take_away
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.operands import gpu_features, node_features, scraping
from upgrader.reconcile.render import node_patches
from upgrader.reconcile.runtime.context import Context

POLL_SECONDS = 1.0
DELETED: tuple[ResourceKind[Any], ...] = (GPU_STACKS, UPGRADE_PLANS, CHECKPOINT_REQUESTS, NODE_UPGRADES, DRIVER_IMAGES)
"""In this order: stacks first, so that nothing new is ordered."""
NODE_LABELS = (
    names.LABEL_DRIVER,
    names.LABEL_RUNTIME,
    names.LABEL_DEVICE_PLUGIN,
    names.LABEL_OPERANDS,
    names.LABEL_REVISION,
)
NODE_ANNOTATIONS = (
    names.ANNOTATION_CLAIMED_BY,
    names.ANNOTATION_RELEASED_BY,
    names.ANNOTATION_REMOVED_DRIVER,
    names.ANNOTATION_GPU_FEATURES,
    names.ANNOTATION_KUBELET,
    names.ANNOTATION_NODE_FEATURES,
    names.ANNOTATION_ADOPT,
)

Tell = Callable[[str], None]
Sleep = Callable[[float], Awaitable[None]]


async def uninstall(
    context: Context,
    *,
    patience: float,
    crds: bool,
    tell: Tell,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Leave nothing stopped, marked or stored.

    Raises:
        DeadlineError: something is still under way; nothing was deleted.
    """
    waiting = Waiting(context, patience, tell, sleep)
    await waiting.until_quiet()
    for kind in DELETED:
        await _delete_all(context, kind, tell)
        if kind is GPU_STACKS:
            await waiting.until_ordered_upgrades_end()
    await waiting.until_gone()
    # Neither has an owner: a revision outlives its stack's mistakes, and operands may serve several stacks.
    for revision in await context.cluster.list(CONTROLLER_REVISIONS, context.stack.namespace):
        if names.LABEL_STACK in revision.metadata.labels:
            await context.cluster.delete(CONTROLLER_REVISIONS, revision.metadata)
    await scraping.leave(context)
    for operand in await context.cluster.list(DAEMONSETS, context.stack.namespace):
        if names.LABEL_COMPONENT in operand.metadata.labels:
            await context.cluster.delete(DAEMONSETS, operand.metadata)
    await _restart_owners(context, tell)
    refused = await take_away(context, marked(await context.cluster.list(PODS)))
    await _unmark_nodes(context, tell)  # one namespace that refuses keeps no node closed
    for pod in refused:
        tell(f"pod {pod.pod} stays asked for a checkpoint: {pod.error}")
    if refused:
        raise refused[0].error
    await policies.remove(context, tell)  # before our kinds: one of them reads our CheckpointRequests
    if crds:
        for custom in KINDS:
            found = await context.cluster.get(CRDS, f"{custom.resource.plural}.{custom.resource.group}")
            if found is not None:
                await context.cluster.delete(CRDS, found.metadata)
        tell("our kinds are removed from the API server")
    tell("nothing of ours is stopped or marked; drivers stay loaded until their nodes are started anew")


class Waiting:
    """Waiting for what only the controller can do, up to one deadline."""

    def __init__(self, context: Context, patience: float, tell: Tell, sleep: Sleep) -> None:
        self._context = context
        self._patience = patience
        self._until = context.clock.now() + timedelta(seconds=patience)
        self._tell = tell
        self._sleep = sleep
        self._said = ""

    async def until_quiet(self) -> None:
        """Until every plan, upgrade and request has ended."""

        async def look() -> list[str]:
            await _abort_plans(self._context, self._tell)
            return await _under_way(self._context)

        await self._wait(look, "something is still under way; nothing was deleted")

    async def until_ordered_upgrades_end(self) -> None:
        """Until the stacks are gone, and with them what they ordered in the moment before they were deleted."""

        async def look() -> list[str]:
            stacks = await self._context.cluster.list(GPU_STACKS)
            return [*await _under_way(self._context), *(f"GpuStack {one.metadata.name}" for one in stacks)]

        await self._wait(look, "a node upgrade that began while its stack was deleted has not ended")

    async def until_gone(self) -> None:
        """Until nothing of our kinds is there: the controller takes its finalizers away."""
        await self._wait(lambda: _present(self._context), "something is still there, held by our finalizer")

    async def _wait(self, look: Callable[[], Awaitable[list[str]]], otherwise: str) -> None:
        while left := await self._look(look):
            if self._context.clock.now() >= self._until:
                raise DeadlineError(
                    f"after {self._patience:.0f} s {otherwise}",
                    details="\n".join(left),
                    resolution="Is a controller running? It takes back what it has started. Then try again.",
                )
            if left[0] != self._said:
                self._said = left[0]
                more = f" and {len(left) - 1} more" if len(left) > 1 else ""
                self._tell(f"waiting for {left[0]}{more}")
            await self._sleep(POLL_SECONDS)

    @staticmethod
    async def _look(look: Callable[[], Awaitable[list[str]]]) -> list[str]:
        try:
            return await look()
        except UnreachableError as error:
            return [f"the API server: {error.brief}"]


async def _abort_plans(context: Context, tell: Tell) -> None:
    for plan in await context.cluster.list(UPGRADE_PLANS):
        if ends(plan.status.phase) or plan.spec.state is DesiredState.ABORTED:
            continue
        await consent.amend(context, plan, lambda _: {"state": DesiredState.ABORTED.value})
        tell(f"plan {plan.metadata.name} is aborted")


async def _under_way(context: Context) -> list[str]:
    every_plan, every_upgrade = await context.cluster.list(UPGRADE_PLANS), await context.cluster.list(NODE_UPGRADES)
    named = {plan.metadata.name: plan for plan in every_plan}
    vouched = own_requests.vouchers(every_upgrade)
    plans = [one for one in every_plan if not ends(one.status.phase)]
    upgrades = [one for one in every_upgrade if not ends(one.status.phase)]
    asking = [one for one in await context.cluster.list(CHECKPOINT_REQUESTS) if not ends(one.status.phase)]
    # What carries a plan's name and is not its own is driven by nobody: it would be waited for in vain.
    requests = [
        request
        for request in asking
        if request.spec.plan is None or own_requests.is_own(request, named.get(request.spec.plan), vouched)
    ]
    return [
        *(f"gang {one.spec.gang} ({one.status.phase.value})" for one in requests),
        *(f"node {one.spec.node.name} ({one.status.phase.value})" for one in upgrades),
        *(f"plan {one.metadata.name} ({one.status.phase.value})" for one in plans),
    ]


async def _present(context: Context) -> list[str]:
    return [f"{kind.kind} {one.metadata.name}" for kind in DELETED for one in await context.cluster.list(kind)]


async def _delete_all(context: Context, kind: ResourceKind[Any], tell: Tell) -> None:
    found: Sequence[Any] = await context.cluster.list(kind)
    for one in found:
        await context.cluster.delete(kind, one.metadata)
    if found:
        tell(f"{len(found)} {kind.kind}{'s' if len(found) > 1 else ''} deleted")


async def _restart_owners(context: Context, tell: Tell) -> None:
    """Owners that still carry a mark of ours: their request is gone, so they are restarted here."""
    version = await context.cluster.version()
    for one in await live_owners.marked(context):
        for attempt in range(1, consent.ATTEMPTS + 1):
            try:
                if await _freed(context, one, version):
                    tell(f"{one.row.kind.lower()} {one.meta.namespace}/{one.meta.name} is restarted")
                break
            except ConflictError:
                if attempt == consent.ATTEMPTS:
                    raise


async def _freed(context: Context, owner: LiveOwner, version: str) -> bool:
    """Whether it was restarted: as it is now, without what our own restarts had put into its templates."""
    found = await context.cluster.get(owner.resource, owner.meta.name, owner.meta.namespace)
    if found is None or found["metadata"]["uid"] != owner.meta.uid:
        return False
    live = msgspec.structs.replace(owner, body=found)
    record = suspend_patches.record_of(live.meta.annotations)
    if record is not None:
        where = placement.Placement() if placement.possible(live.row, version) else None
        live = await live_owners.restart(context, live, record.request, where)
    if names.ANNOTATION_FENCE in live.meta.annotations:
        await context.cluster.merge(
            live.resource, live.meta, {"metadata": {"annotations": {names.ANNOTATION_FENCE: None}}}
        )
    return record is not None


async def _unmark_nodes(context: Context, tell: Tell) -> None:
    count = kept = 0
    for node in await context.cluster.list(NODES):
        kept += _kept(node) is not None
        if _unmark(node) is not None:
            await _patched(context, NODES, node, _unmark)
            count += 1
    if count:
        tell(f"our labels and taints are removed from {count} node{'s' if count > 1 else ''}")
    if kept:
        nodes = f"{kept} node{'s' if kept > 1 else ''}"
        tell(f"annotation {names.ANNOTATION_ADOPTED} stays on {nodes}: what another operator's labels said there")


def _unmark(node: Node) -> dict[str, Any] | None:
    # The controller takes features back with their stack; those of a stack that went while none ran are still there.
    labels = [*(name for name in NODE_LABELS if name in node.metadata.labels), *_features(node)]
    marked: dict[str, str | None] = {name: None for name in NODE_ANNOTATIONS if name in node.metadata.annotations}
    kept = _kept(node)
    if kept != node.metadata.annotations.get(names.ANNOTATION_ADOPTED):
        marked[names.ANNOTATION_ADOPTED] = kept
    tainted = any(one.key in {names.TAINT_MAINTENANCE, names.TAINT_RESERVED} for one in node.spec.taints)
    if not labels and not marked and not tainted:
        return None
    patch: dict[str, Any] = {"metadata": {"labels": dict.fromkeys(labels) | _handed_back(node), "annotations": marked}}
    if tainted:
        patch["spec"] = {"taints": node_patches.foreign_taints(node) or None}
    return patch


def _features(node: Node) -> list[str]:
    return [*node_features.written(node), *gpu_features.written(node)]


def _handed_back(node: Node) -> dict[str, str]:
    """Labels of another operator on a node that is not ours any more, or never was. On one that is, they stay.

    Its driver is loaded, and jobs run on it: whoever wants the other operator back there drains the node first. What
    the labels said stays on the node until then. A node of which an earlier run took our labels is still that one.
    """
    labels = node.metadata.labels
    if labels.get(names.LABEL_OPERANDS) != names.OFF:
        return {}
    return adoption.handed_back(labels, node.metadata.annotations.get(names.ANNOTATION_ADOPTED))


def _kept(node: Node) -> str | None:
    """What the node keeps of a take-over, to be given back by whoever drains it; None: nothing."""
    if node.metadata.labels.get(names.LABEL_OPERANDS) == names.OFF:
        return None
    return adoption.still_over(node.metadata.labels, node.metadata.annotations.get(names.ANNOTATION_ADOPTED))


async def _patched(
    context: Context,
    kind: ResourceKind[Any],
    one: Any,  # noqa: ANN401 - a Node
    patch: Callable[[Any], dict[str, Any] | None],
) -> None:
    """Patch what was read; read it again when somebody else wrote it meanwhile."""
    for attempt in range(1, consent.ATTEMPTS + 1):
        body = patch(one) if one is not None else None
        if body is None:
            return
        try:
            await context.cluster.merge(kind, one.metadata, body)
        except NotFoundError:
            return
        except ConflictError:
            if attempt == consent.ATTEMPTS:
                raise
            one = await context.cluster.get(kind, one.metadata.name, one.metadata.namespace)
        else:
            return
