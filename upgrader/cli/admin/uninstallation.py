"""`upgrader uninstall`: abort all plans, wait until no gang is stopped and no node is tainted, and delete all objects.

The controller reverts what it has started (law 9). This command requests that, waits for it, and then removes the
rest: labels, taints of failed upgrades, records on owners of gangs. What users set (the label skip, cordons) is not
changed.
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
from upgrader.core.model.phases import DesiredState, is_final
from upgrader.core.workloads import placement, suspend_patches
from upgrader.kube.install import CRDS
from upgrader.reconcile.checkpoint_request import live_owners
from upgrader.reconcile.checkpoint_request.live_owners import LiveOwner
from upgrader.reconcile.checkpoint_request.orphaned_annotations import annotated_pods, remove_annotations
from upgrader.reconcile.observe import own_requests
from upgrader.reconcile.operands import gpu_features, node_features, scraping
from upgrader.reconcile.render import node_patches
from upgrader.reconcile.runtime.context import Context

POLL_SECONDS = 1.0
DELETED: tuple[ResourceKind[Any], ...] = (GPU_STACKS, UPGRADE_PLANS, CHECKPOINT_REQUESTS, NODE_UPGRADES, DRIVER_IMAGES)
"""Deleted in this order: stacks first, so that no new upgrade is created."""
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
    names.ANNOTATION_PARAMETERS,
    names.ANNOTATION_NODE_FEATURES,
    names.ANNOTATION_ADOPT,
)

Tell = Callable[[str], None]
Sleep = Callable[[float], Awaitable[None]]


async def uninstall_all(
    context: Context,
    *,
    patience: float,
    crds: bool,
    tell: Tell,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Remove all objects, labels, annotations, taints and stops from the cluster.

    Raises:
        DeadlineError: a plan, upgrade or request has not ended; nothing was deleted.
    """
    waiting = UninstallationWait(context, patience, tell, sleep)
    await waiting.until_quiet()
    for kind in DELETED:
        await _delete_all(context, kind, tell)
        if kind is GPU_STACKS:
            await waiting.until_ordered_upgrades_end()
    await waiting.until_gone()
    # Neither has an owner reference: a revision may outlive its stack, and operands may serve several stacks.
    for revision in await context.cluster.list(CONTROLLER_REVISIONS, context.stack.namespace):
        if names.LABEL_STACK in revision.metadata.labels:
            await context.cluster.delete(CONTROLLER_REVISIONS, revision.metadata)
    await scraping.remove_scraping(context)
    for operand in await context.cluster.list(DAEMONSETS, context.stack.namespace):
        if names.LABEL_COMPONENT in operand.metadata.labels:
            await context.cluster.delete(DAEMONSETS, operand.metadata)
    await _restart_owners(context, tell)
    refused = await remove_annotations(context, annotated_pods(await context.cluster.list(PODS)))
    await _clean_nodes(context, tell)  # even if pods of a namespace could not be patched
    for pod in refused:
        tell(f"the checkpoint request on pod {pod.pod} is not removed: {pod.error}")
    if refused:
        raise refused[0].error
    await policies.remove_policies(
        context, tell
    )  # before the custom resource definitions: one policy reads CheckpointRequests
    if crds:
        for custom in KINDS:
            definition = await context.cluster.get(CRDS, f"{custom.resource.plural}.{custom.resource.group}")
            if definition is not None:
                await context.cluster.delete(CRDS, definition.metadata)
        tell("the custom resource definitions are deleted")
    tell("upgrader is uninstalled; drivers stay loaded until their nodes are rebooted")


class UninstallationWait:
    """Waits for actions of the controller, with one deadline for all."""

    def __init__(self, context: Context, patience: float, tell: Tell, sleep: Sleep) -> None:
        self._context = context
        self._patience = patience
        self._until = context.clock.now() + timedelta(seconds=patience)
        self._tell = tell
        self._sleep = sleep
        self._said = ""

    async def until_quiet(self) -> None:
        """Wait until every plan, upgrade and request has ended."""

        async def list_remaining() -> list[str]:
            await _abort_plans(self._context, self._tell)
            return await _under_way(self._context)

        await self._wait(list_remaining, "some objects have not ended; nothing was deleted")

    async def until_ordered_upgrades_end(self) -> None:
        """Wait until the stacks are deleted and the upgrades that they created immediately before have ended."""

        async def list_remaining() -> list[str]:
            stacks = await self._context.cluster.list(GPU_STACKS)
            return [*await _under_way(self._context), *(f"GpuStack {stack.metadata.name}" for stack in stacks)]

        await self._wait(list_remaining, "a node upgrade that started while its stack was deleted has not ended")

    async def until_gone(self) -> None:
        """Wait until no custom resource exists: the controller removes its finalizers."""
        await self._wait(lambda: _list_remaining(self._context), "some objects still exist, because of their finalizer")

    async def _wait(self, list_remaining: Callable[[], Awaitable[list[str]]], otherwise: str) -> None:
        while left := await self._look(list_remaining):
            if self._context.clock.now() >= self._until:
                raise DeadlineError(
                    f"after {self._patience:.0f} s {otherwise}",
                    details="\n".join(left),
                    resolution="Check that a controller is running, which reverts what it has started. Then try again.",
                )
            if left[0] != self._said:
                self._said = left[0]
                more = f" and {len(left) - 1} more" if len(left) > 1 else ""
                self._tell(f"waiting for {left[0]}{more}")
            await self._sleep(POLL_SECONDS)

    @staticmethod
    async def _look(list_remaining: Callable[[], Awaitable[list[str]]]) -> list[str]:
        try:
            return await list_remaining()
        except UnreachableError as error:
            return [f"the API server: {error.brief}"]


async def _abort_plans(context: Context, tell: Tell) -> None:
    for plan in await context.cluster.list(UPGRADE_PLANS):
        if is_final(plan.status.phase) or plan.spec.state is DesiredState.ABORTED:
            continue
        await consent.amend_plan(context, plan, lambda _: {"state": DesiredState.ABORTED.value})
        tell(f"plan {plan.metadata.name} is aborted")


async def _under_way(context: Context) -> list[str]:
    every_plan, every_upgrade = await context.cluster.list(UPGRADE_PLANS), await context.cluster.list(NODE_UPGRADES)
    named = {plan.metadata.name: plan for plan in every_plan}
    vouched = own_requests.find_vouchers(every_upgrade)
    plans = [plan for plan in every_plan if not is_final(plan.status.phase)]
    upgrades = [upgrade for upgrade in every_upgrade if not is_final(upgrade.status.phase)]
    asking = [
        request for request in await context.cluster.list(CHECKPOINT_REQUESTS) if not is_final(request.status.phase)
    ]
    # The controller ignores a request that names a plan and was not created by it: it would never end.
    requests = [
        request
        for request in asking
        if request.spec.plan is None or own_requests.is_own(request, named.get(request.spec.plan), vouched)
    ]
    return [
        *(f"gang {request.spec.gang} ({request.status.phase.value})" for request in requests),
        *(f"node {upgrade.spec.node.name} ({upgrade.status.phase.value})" for upgrade in upgrades),
        *(f"plan {plan.metadata.name} ({plan.status.phase.value})" for plan in plans),
    ]


async def _list_remaining(context: Context) -> list[str]:
    return [f"{kind.kind} {item.metadata.name}" for kind in DELETED for item in await context.cluster.list(kind)]


async def _delete_all(context: Context, kind: ResourceKind[Any], tell: Tell) -> None:
    objects: Sequence[Any] = await context.cluster.list(kind)
    for item in objects:
        await context.cluster.delete(kind, item.metadata)
    if objects:
        tell(f"{len(objects)} {kind.kind}{'s' if len(objects) > 1 else ''} deleted")


async def _restart_owners(context: Context, tell: Tell) -> None:
    """Restart owners that still carry a record of a stop: their request is deleted."""
    version = await context.cluster.version()
    for owner in await live_owners.list_recorded_owners(context):
        for attempt in range(1, consent.ATTEMPTS + 1):
            try:
                if await _restart_owner(context, owner, version):
                    tell(f"{owner.row.kind.lower()} {owner.meta.namespace}/{owner.meta.name} is restarted")
                break
            except ConflictError:
                if attempt == consent.ATTEMPTS:
                    raise


async def _restart_owner(context: Context, owner: LiveOwner, version: str) -> bool:
    """Restart one owner, without the placement that earlier restarts wrote into its templates; False if it was not
    stopped.
    """
    body = await context.cluster.get(owner.resource, owner.meta.name, owner.meta.namespace)
    if body is None or body["metadata"]["uid"] != owner.meta.uid:
        return False
    live = msgspec.structs.replace(owner, body=body)
    record = suspend_patches.record_of(live.meta.annotations)
    if record is not None:
        where = placement.Placement() if placement.is_steerable(live.row, version) else None
        live = await live_owners.resume_owner(context, live, record.request, where)
    if names.ANNOTATION_FENCE in live.meta.annotations:
        await context.cluster.merge(
            live.resource, live.meta, {"metadata": {"annotations": {names.ANNOTATION_FENCE: None}}}
        )
    return record is not None


async def _clean_nodes(context: Context, tell: Tell) -> None:
    count = kept = 0
    for node in await context.cluster.list(NODES):
        kept += _kept_adoption(node) is not None
        if _cleanup_patch(node) is not None:
            await _patch_with_retries(context, NODES, node, _cleanup_patch)
            count += 1
    if count:
        tell(f"labels and taints are removed from {count} node{'s' if count > 1 else ''}")
    if kept:
        nodes = f"{kept} node{'s' if kept > 1 else ''}"
        tell(f"annotation {names.ANNOTATION_ADOPTED} stays on {nodes}: it stores the labels of another operator")


def _cleanup_patch(node: Node) -> dict[str, Any] | None:
    # The controller removes features with their stack; those of a stack that was deleted without a controller remain.
    labels = [*(name for name in NODE_LABELS if name in node.metadata.labels), *_feature_labels(node)]
    cleared: dict[str, str | None] = {name: None for name in NODE_ANNOTATIONS if name in node.metadata.annotations}
    kept = _kept_adoption(node)
    if kept != node.metadata.annotations.get(names.ANNOTATION_ADOPTED):
        cleared[names.ANNOTATION_ADOPTED] = kept
    tainted = any(taint.key in {names.TAINT_MAINTENANCE, names.TAINT_RESERVED} for taint in node.spec.taints)
    if not labels and not cleared and not tainted:
        return None
    patch: dict[str, Any] = {"metadata": {"labels": dict.fromkeys(labels) | _handed_back(node), "annotations": cleared}}
    if tainted:
        patch["spec"] = {"taints": node_patches.foreign_taints(node) or None}
    return patch


def _feature_labels(node: Node) -> list[str]:
    return [*node_features.recorded_labels(node), *gpu_features.recorded_labels(node)]


def _handed_back(node: Node) -> dict[str, str]:
    """Restored labels of another operator on a node that is not managed any more, or never was; on a managed node only
    those of paused operands.

    On a managed node the driver is loaded and jobs run: a user who returns it to the other operator drains it first.
    The annotation stores the values of the labels until then. It also identifies a node whose labels an earlier run
    removed.
    """
    labels, kept = node.metadata.labels, node.metadata.annotations.get(names.ANNOTATION_ADOPTED)
    if labels.get(names.LABEL_OPERANDS) != names.OFF:
        return adoption.resumed_labels(labels, kept)[0]
    return adoption.handed_back(labels, kept)


def _kept_adoption(node: Node) -> str | None:
    """The record of a take-over that stays on the node until a user drains it; None if there is none."""
    if node.metadata.labels.get(names.LABEL_OPERANDS) == names.OFF:
        return None
    labels, kept = node.metadata.labels, node.metadata.annotations.get(names.ANNOTATION_ADOPTED)
    return adoption.still_over(labels, adoption.resumed_labels(labels, kept)[1])


async def _patch_with_retries(
    context: Context,
    kind: ResourceKind[Any],
    current: Any,  # noqa: ANN401 - a Node
    patch: Callable[[Any], dict[str, Any] | None],
) -> None:
    """Patch an object; after a conflict, read it again and retry."""
    for attempt in range(1, consent.ATTEMPTS + 1):
        body = patch(current) if current is not None else None
        if body is None:
            return
        try:
            await context.cluster.merge(kind, current.metadata, body)
        except NotFoundError:
            return
        except ConflictError:
            if attempt == consent.ATTEMPTS:
                raise
            current = await context.cluster.get(kind, current.metadata.name, current.metadata.namespace)
        else:
            return
