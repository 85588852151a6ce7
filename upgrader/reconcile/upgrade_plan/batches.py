"""The start of a batch: the batch is written into the plan first, then its upgrades and requests are created from it.

Every object's name follows from plan, batch and node (or gang), so a restarted controller creates no object twice.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec
import structlog

from upgrader.api.resources import CHECKPOINT_REQUESTS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader.api.v1alpha1 import (
    BatchStatus,
    CheckpointDefaults,
    CheckpointRequest,
    GangShare,
    GpuStack,
    GroupStatus,
    NodeState,
    NodeUpgrade,
    UpgradePlan,
)
from upgrader.core import timing
from upgrader.core.constraints.checkpoint_concurrency import LaneRequest, request_offsets
from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.forecast.canaries import node_class
from upgrader.core.forecast.forecast import BatchForecast, BatchKind
from upgrader.core.model.fleet import Gang, ImageFacts, NodeFacts, Snapshot, Target
from upgrader.core.model.phases import NodePhase, UpgradeReason, transition_of
from upgrader.core.model.validation import ValidationLevel
from upgrader.reconcile.checkpoint_request import request_history
from upgrader.reconcile.observe.revisions import read_target
from upgrader.reconcile.operands import daemonsets
from upgrader.reconcile.render import custom_objects
from upgrader.reconcile.render.custom_objects import next_request_id
from upgrader.reconcile.runtime import side_by_side
from upgrader.reconcile.runtime.context import Context, create_once
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_group.group_view import NODES_AT_ONCE
from upgrader.stack.parts import owner_reference

log = structlog.get_logger()


ASKING_MARGIN = 300
"""Seconds beyond the longest checkpoint until a group is released."""


def chain_of(gangs: Iterable[Gang], checkpoint: CheckpointDefaults) -> int:
    """The longest chain of checkpoints of these gangs, in sequence in their lanes, in seconds."""
    asked = [
        LaneRequest(gang=gang.name, lane=gang.lane, seconds=gang.timeout_seconds or checkpoint.timeout_seconds)
        for gang in gangs
    ]
    begins = request_offsets(asked, checkpoint.lanes.max_concurrent)
    return math.ceil(
        max((begins[request.gang] + request.seconds for request in asked), default=checkpoint.timeout_seconds)
    )


def batch_status(
    context: Context, plan: UpgradePlan, number: int, batch: BatchForecast, snapshot: Snapshot
) -> BatchStatus:
    """A batch as it is stored; it does not change afterwards."""
    now = context.clock.now()
    wanted = {gang for group in batch.groups for gang in group.gangs}
    bare = {gang.name: gang for gang in snapshot.gangs if gang.bare}  # the forecast admits expendable ones only
    chain = chain_of((gang for gang in snapshot.gangs if gang.name in wanted and not gang.bare), plan.spec.checkpoint)
    preparing = transition_of(NodePhase.PREPARING).seconds or 0
    return BatchStatus(
        number=number,
        kind=batch.kind,
        groups=[
            GroupStatus(
                name=custom_objects.group_name(plan.metadata.uid, number, group.nodes),
                nodes=list(group.nodes),
                gangs=list(group.gangs),
                gpus=group.gpus,
                expendable={
                    name: [member.uid for member in bare[name].members] for name in group.gangs if name in bare
                },
                shares={gang.name: _gang_share(gang) for gang in snapshot.gangs if gang.name in group.gangs},
            )
            for group in batch.groups
        ],
        started_at=timing.format_time(now),
        ask_until=timing.format_time(timing.add_seconds(now, preparing + chain + ASKING_MARGIN)),
        classes=_node_classes(batch, snapshot) if batch.kind is BatchKind.CANARY else {},
    )


def _gang_share(gang: Gang) -> GangShare:
    starts = [member.started_at for member in gang.members if member.started_at is not None]
    return GangShare(gpus=gang.gpus, since=timing.format_time(max(starts)) if starts else None)


def _node_classes(batch: BatchForecast, snapshot: Snapshot) -> dict[str, str]:
    # Recorded, since a node upgrade changes the values that a class is derived from.
    return {node.name: node_class(node) for node in snapshot.nodes if node.name in batch.nodes}


async def create_upgrades(
    context: Context,
    plan: UpgradePlan,
    stack: GpuStack,
    target: Target,
    batch: BatchStatus,
    snapshot: Snapshot,
    existing: Sequence[NodeUpgrade],
    faults: Faults,
) -> bool:
    """Create the missing upgrades of a batch, without nodes that have left the pool. Whether any was missing.

    A node without an upgrade does not stop the others; its group is released (see `revalidation.without_upgrade`).
    """
    catalogue = Catalogue(snapshot.images)
    facts = {node.name: node for node in snapshot.nodes}
    there = {upgrade.spec.node.name for upgrade in existing}
    wanted = [(group.name, facts[name]) for group in batch.groups for name in group.nodes if name in facts]
    chosen = [(group, node, catalogue.for_upgrade(node, target)) for group, node in wanted if node.name not in there]
    missing = [(group, node, image) for group, node, image in chosen if image is not None]
    ready = await _with_operands(context, stack, target, [image for _, _, image in missing], faults)

    async def make(group: str, node: NodeFacts, image: ImageFacts) -> None:
        order = custom_objects.Order(
            name=custom_objects.upgrade_name(node.name, plan.metadata.uid, str(batch.number), node.uid),
            node=node,
            stack=stack.metadata.name,
            group=group,
            reason=UpgradeReason.ROLLOUT,
            source=await source_state(context, stack, node, catalogue, target),
            target=custom_objects.wanted_state(target, image),
            reboot=custom_objects.reboot_state(node, target, image, stack.spec),
            limits=stack.spec.limits,
            validation=_validation_level(plan, batch),
            stop_units=stack.spec.host.stop,
            plan=plan.metadata.name,
            batch=batch.number,
        )
        await create_once(
            context, NODE_UPGRADES, custom_objects.node_upgrade(order, owner_reference(UPGRADE_PLANS, plan.metadata))
        )

    async def contained(item: tuple[str, NodeFacts, ImageFacts]) -> None:
        group, node, image = item
        if image.key in ready:
            with faults.contained(f"upgrade of node {node.name}"):
                await make(group, node, image)

    await side_by_side.for_each(missing, contained, NODES_AT_ONCE)
    return bool(missing)


def _validation_level(plan: UpgradePlan, batch: BatchStatus) -> ValidationLevel:
    strategy = plan.spec.strategy
    of_canaries = strategy.canary.validation if batch.kind is BatchKind.CANARY else None
    return strategy.validation if of_canaries is None else of_canaries


async def _with_operands(
    context: Context, stack: GpuStack, target: Target, images: Iterable[ImageFacts], faults: Faults
) -> set[str]:
    """Keys of the drivers whose operands exist: each driver is checked once, for any number of nodes."""
    ready = set()
    for image in {image.key: image for image in images}.values():
        with faults.contained(f"operands of driver {image.key}"):
            await daemonsets.ensure_daemonsets(context, stack, target, image)
            ready.add(image.key)
    return ready


async def source_state(
    context: Context, stack: GpuStack, node: NodeFacts, catalogue: Catalogue, target: Target
) -> NodeState:
    """The state of a node before its upgrade, from its own labels.

    If the node has no revision label (a user removed it), or the revision was deleted, its driver and its
    operands are still those of its labels, and not none; all other fields are then taken from the target.
    """
    had = await read_target(context, stack.metadata.name, node.revision) if node.revision else None
    image = catalogue.image_of(node)
    if had is not None or image is None:
        return custom_objects.present_state(node, had, image)
    return msgspec.structs.replace(
        custom_objects.present_state(node, target, image),
        revision="",
        plugin_key=node.plugin_key,
        runtime_key=node.runtime_key,
    )


async def create_requests(
    context: Context,
    plan: UpgradePlan,
    batch: BatchStatus,
    group: GroupStatus,
    snapshot: Snapshot,
    existing: Sequence[CheckpointRequest],
    earlier: Sequence[CheckpointRequest],
) -> int:
    """Create the requests of a group whose nodes are all prepared; returns the number of gangs that must answer.

    `earlier`: all requests of the plan.
    """
    to_ask = set(group.gangs) - group.expendable.keys()
    gangs = [gang for gang in snapshot.gangs if gang.name in to_ask and gang.nodes & set(group.nodes)]
    there = {request.spec.gang for request in existing}
    # One end for all gangs: no gang resumes training before the last one, in any lane, has had its turn.
    batch_gangs = {name for batch_group in batch.groups for name in batch_group.gangs}
    lanes = {gang.lane for gang in gangs}
    rivals = [gang for gang in snapshot.gangs if gang.name in batch_gangs and not gang.bare and gang.lane in lanes]
    park = chain_of(rivals, plan.spec.checkpoint) + ASKING_MARGIN
    now = context.clock.now()
    for gang in gangs:
        if gang.name in there or gang.owner is None:
            continue
        before = request_history.earlier_counts(earlier, gang.owner.uid)
        ask = custom_objects.Ask(
            gang=gang,
            name=custom_objects.request_name(plan.metadata.name, batch.number, gang.name),
            plan=plan.metadata.name,
            batch=batch.number,
            group=group.name,
            request_id=next_request_id(0, (member.request for member in gang.members), int(now.timestamp())),
            asked_at=now,
            park_seconds=park,
            timeout_seconds=gang.timeout_seconds or plan.spec.checkpoint.timeout_seconds,
            refused_before=before.refused,
            unanswered_before=before.unanswered,
        )
        body = custom_objects.checkpoint_request(ask)
        body["metadata"]["ownerReferences"] = [owner_reference(UPGRADE_PLANS, plan.metadata)]
        await create_once(context, CHECKPOINT_REQUESTS, body)
    return len(gangs)
