"""What `upgrader force` does: a person's order for a node upgrade that waits, written down with who and why."""

from collections.abc import Iterable

from msgspec import Struct

from upgrader.api import names
from upgrader.api.explicit import explicit
from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, NODE_UPGRADES, NODES
from upgrader.api.v1alpha1 import Force, NodeUpgrade
from upgrader.cli.shared import cluster_reading, consent
from upgrader.core import timing
from upgrader.core.errors import BlockedError, ConfigurationError
from upgrader.core.model.fleet import Gang
from upgrader.core.model.phases import NodePhase, RequestPhase, ends
from upgrader.core.node_upgrade.force import FORCEABLE, refusal
from upgrader.reconcile.node_upgrade import force_requests
from upgrader.reconcile.observe import own_requests, revisions
from upgrader.reconcile.runtime.context import Context


class ForcedStep(Struct, frozen=True, kw_only=True):
    """What a person wants to go on."""

    node: str
    step: NodePhase
    reason: str
    by: str | None = None


async def force(context: Context, wish: ForcedStep) -> str:
    """Write the order into the node's upgrade; a sentence that says what happens now.

    Raises:
        ConfigurationError: no upgrade waits there, or this step cannot be forced.
        BlockedError: a gang that declares how it is asked is still on the node.
    """
    if why := refusal(wish.step):
        known = ", ".join(step.value for step in FORCEABLE)
        raise ConfigurationError(
            f"step {wish.step.value} cannot be forced: {why}", resolution=f"Steps that can be forced: {known}."
        )
    upgrade = await _upgrade(context, wish.node)
    if upgrade.status.phase is not wish.step:
        raise ConfigurationError(
            f"the upgrade of node {wish.node} is at {upgrade.status.phase.value}, not at {wish.step.value}",
            details=upgrade.status.message,
        )
    if wish.step is NodePhase.DRAINING and (gangs := await _declared(context, upgrade)):
        raise BlockedError(
            f"{gangs[0]} declares how it is asked, and has not stopped: no order ends it",
            resolution="Wait for it, or name it expendable in the approval: "
            f"`upgrader approve {upgrade.spec.plan or 'PLAN'} --expendable {gangs[0]}`.",
        )
    order = Force(
        step=wish.step,
        by=wish.by or consent.whoever(),
        at=timing.show(context.clock.now()),
        reason=wish.reason,
    )
    orders = [explicit(one) for one in (*upgrade.spec.force, order)]
    await context.cluster.merge(NODE_UPGRADES, upgrade.metadata, {"spec": {"force": orders}})
    return f"node {wish.node}: {FORCEABLE[wish.step]}, by order of {order.by}: {order.reason}"


async def _upgrade(context: Context, node: str) -> NodeUpgrade:
    """The upgrade that is under way at a node, or that ended there and left its mark."""
    there = await context.cluster.get(NODES, node)
    if there is None:
        raise ConfigurationError(f"there is no node {node}")
    holder = there.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY)
    upgrades = [one for one in await context.cluster.list(NODE_UPGRADES) if one.spec.node.uid == there.metadata.uid]
    found = [one for one in upgrades if one.metadata.uid == holder or not ends(one.status.phase)]
    if not found:
        raise ConfigurationError(
            f"no upgrade waits at node {node}", resolution=f"`upgrader why {node}` says what becomes of it."
        )
    return max(found, key=lambda one: one.metadata.uid == holder)


async def _declared(context: Context, upgrade: NodeUpgrade) -> list[str]:
    """Gangs on the node that are asked and neither have acknowledged nor have been stopped."""
    stack = await context.cluster.get(GPU_STACKS, upgrade.spec.stack)
    target = await revisions.read_target(context, upgrade.spec.stack, upgrade.spec.target.revision)
    if stack is None or target is None:
        raise ConfigurationError(f"stack {upgrade.spec.stack} is not there: nobody can say whose pods are on the node")
    requests = await context.cluster.list(CHECKPOINT_REQUESTS, labels=f"{names.LABEL_GROUP}={upgrade.spec.group}")
    vouched = own_requests.vouchers([upgrade])
    own = (request for request in requests if own_requests.is_own(request, None, vouched))
    going = {request.spec.gang for request in own if request.status.phase in _GOING}
    snapshot = await cluster_reading.look(context, stack, target)
    return sorted(_asked(snapshot.gangs, upgrade.spec.node.name) - going)


_GOING = frozenset({RequestPhase.PARKED, RequestPhase.STOPPING, RequestPhase.STOPPED})
"""Those of them that have acknowledged are stopped when the pods are gone that an order ends."""


def _asked(gangs: Iterable[Gang], node: str) -> set[str]:
    return {gang.name for gang in gangs if node in gang.nodes and force_requests.declares(gang)}


def step_named(text: str) -> NodePhase:
    """A step by its name as `upgrader status` shows it, in any case.

    Raises:
        ConfigurationError: there is no such step.
    """
    found = next((one for one in NodePhase if one.value.lower() == text.lower()), None)
    if found is None:
        raise ConfigurationError(
            f"there is no step {text}", resolution=f"Steps are: {', '.join(one.value for one in NodePhase)}."
        )
    return found
