"""`upgrader force`: a user forces a waiting node upgrade; the name of the user and the reason are recorded."""

from collections.abc import Iterable

from msgspec import Struct

from upgrader.api import names
from upgrader.api.explicit import explicit_json
from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, NODE_UPGRADES, NODES
from upgrader.api.v1alpha1 import Force, NodeUpgrade
from upgrader.cli.shared import cluster_reading, consent
from upgrader.core import timing
from upgrader.core.errors import BlockedError, ConfigurationError
from upgrader.core.model.fleet import Gang
from upgrader.core.model.phases import NodePhase, RequestPhase, is_final
from upgrader.core.node_upgrade.force import FORCEABLE, force_refusal
from upgrader.reconcile.node_upgrade import force_requests
from upgrader.reconcile.observe import own_requests, revisions
from upgrader.reconcile.runtime.context import Context


class ForcedStep(Struct, frozen=True, kw_only=True):
    """A step that a user forces."""

    node: str
    step: NodePhase
    reason: str
    by: str | None = None


async def force_step(context: Context, wish: ForcedStep) -> str:
    """Write the forced step into the NodeUpgrade; returns a sentence with the effect.

    Raises:
        ConfigurationError: no upgrade of the node waits, or the step cannot be forced.
        BlockedError: a gang that declares a checkpoint method still runs on the node.
    """
    if why := force_refusal(wish.step):
        known = ", ".join(step.value for step in FORCEABLE)
        raise ConfigurationError(
            f"step {wish.step.value} cannot be forced: {why}", resolution=f"Steps that can be forced: {known}."
        )
    upgrade = await _find_upgrade(context, wish.node)
    if upgrade.status.phase is not wish.step:
        raise ConfigurationError(
            f"the upgrade of node {wish.node} is in phase {upgrade.status.phase.value}, not {wish.step.value}",
            details=upgrade.status.message,
        )
    if wish.step is NodePhase.DRAINING and (gangs := await _gangs_not_stopped(context, upgrade)):
        raise BlockedError(
            f"gang {gangs[0]} declares a checkpoint method and has not stopped: it cannot be forced",
            resolution="Wait until it stops, or approve it as expendable: "
            f"`upgrader approve {upgrade.spec.plan or 'PLAN'} --expendable {gangs[0]}`.",
        )
    order = Force(
        step=wish.step,
        by=wish.by or consent.current_user(),
        at=timing.format_time(context.clock.now()),
        reason=wish.reason,
    )
    orders = [explicit_json(entry) for entry in (*upgrade.spec.force, order)]
    await context.cluster.merge(NODE_UPGRADES, upgrade.metadata, {"spec": {"force": orders}})
    return f"node {wish.node}: {FORCEABLE[wish.step]}, forced by {order.by}: {order.reason}"


async def _find_upgrade(context: Context, node: str) -> NodeUpgrade:
    """The upgrade of a node that has not ended, or that has ended and still claims the node."""
    there = await context.cluster.get(NODES, node)
    if there is None:
        raise ConfigurationError(f"node {node} not found")
    holder = there.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY)
    upgrades = [
        upgrade for upgrade in await context.cluster.list(NODE_UPGRADES) if upgrade.spec.node.uid == there.metadata.uid
    ]
    candidates = [
        upgrade for upgrade in upgrades if upgrade.metadata.uid == holder or not is_final(upgrade.status.phase)
    ]
    if not candidates:
        raise ConfigurationError(
            f"no upgrade of node {node} waits", resolution=f"See `upgrader why {node}` for the state of the node."
        )
    return max(candidates, key=lambda upgrade: upgrade.metadata.uid == holder)


async def _gangs_not_stopped(context: Context, upgrade: NodeUpgrade) -> list[str]:
    """Gangs on the node that declare a checkpoint method and have neither acknowledged nor been stopped."""
    stack = await context.cluster.get(GPU_STACKS, upgrade.spec.stack)
    target = await revisions.read_target(context, upgrade.spec.stack, upgrade.spec.target.revision)
    if stack is None or target is None:
        raise ConfigurationError(
            f"stack {upgrade.spec.stack} or its revision not found: the gangs on the node are unknown"
        )
    requests = await context.cluster.list(CHECKPOINT_REQUESTS, labels=f"{names.LABEL_GROUP}={upgrade.spec.group}")
    vouched = own_requests.find_vouchers([upgrade])
    own = (request for request in requests if own_requests.is_own(request, None, vouched))
    going = {request.spec.gang for request in own if request.status.phase in _GOING}
    snapshot = await cluster_reading.read_snapshot(context, stack, target)
    return sorted(_declaring_gangs(snapshot.gangs, upgrade.spec.node.name) - going)


_GOING = frozenset({RequestPhase.PARKED, RequestPhase.STOPPING, RequestPhase.STOPPED})
"""Gangs in these phases have acknowledged; they are stopped when the forced pods are deleted."""


def _declaring_gangs(gangs: Iterable[Gang], node: str) -> set[str]:
    return {gang.name for gang in gangs if node in gang.nodes and force_requests.declares_method(gang)}


def step_named(text: str) -> NodePhase:
    """A step by its name in `upgrader status`, case-insensitive.

    Raises:
        ConfigurationError: the step does not exist.
    """
    phase = next((candidate for candidate in NodePhase if candidate.value.lower() == text.lower()), None)
    if phase is None:
        raise ConfigurationError(
            f"unknown step {text}", resolution=f"Valid steps: {', '.join(one.value for one in NodePhase)}."
        )
    return phase
