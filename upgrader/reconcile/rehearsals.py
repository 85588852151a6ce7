"""Showing the API server what a visit will make, while nobody has been asked for it."""

from datetime import timedelta
from typing import Any

import structlog

from upgrader.api.kubernetes import Condition
from upgrader.api.resources import GPU_STACKS, PODS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core import timing
from upgrader.core.errors import REFUSED, ConfigurationError
from upgrader.core.fleet import NodeFacts
from upgrader.core.visit_facts import REFUSAL
from upgrader.reconcile.context import Context
from upgrader.reconcile.other_plans import taken_back
from upgrader.reconcile.visit_view import held
from upgrader.stack import manifests

log = structlog.get_logger()

AGAIN = timedelta(seconds=15)
"""How often it is asked again what it refused: a webhook of a whole fleet is not asked each second for each node."""


async def rehearse(context: Context, upgrade: NodeUpgrade, node: NodeFacts) -> None:
    """See that the API server will take every pod that the visit makes, before anybody is asked for it.

    What leads back to a revision that is taken back itself may be refused: that may be why it is left.

    Raises:
        ConfigurationError: it would not, with its words; it is asked again in a while.
    """
    told = held(upgrade.status)
    if told is not None and told.reason == REFUSAL and not _due(context, told):
        raise ConfigurationError(told.message)
    shown = manifests.rehearsal(upgrade, node, context.stack)
    for pod in shown.there:
        await _show(context, pod, "which this visit makes later")
    try:
        for pod in shown.back:
            await _show(context, pod, "which this visit makes if it goes back")
    except ConfigurationError as error:
        if not await _leaves_for_good(context, upgrade):
            raise
        log.warning("goes without a way back", visit=upgrade.metadata.name, because=error.brief)


def _due(context: Context, told: Condition) -> bool:
    if told.last_transition_time is None:
        return True
    waited = context.clock.now() - timing.parse(told.last_transition_time)
    return waited % AGAIN < timedelta(seconds=2 * context.active_seconds)


async def _show(context: Context, pod: dict[str, Any], what: str) -> None:
    try:
        await context.cluster.rehearse(PODS, pod)
    except REFUSED as error:
        if not error.refused:
            raise
        raise ConfigurationError(
            f"the API server would refuse pod {pod['metadata']['name']}, {what}: {error.said or error.brief}",
            details=error.details,
            resolution="Put right what it names. Nobody has been asked to stop.",
        ) from error


async def _leaves_for_good(context: Context, upgrade: NodeUpgrade) -> bool:
    """Whether the visit is of a rollback, away from the revision that the stack still asks for."""
    stacks, plans = await context.cluster.list(GPU_STACKS), await context.cluster.list(UPGRADE_PLANS)
    return upgrade.spec.source.revision == taken_back(stacks, plans, upgrade.spec.stack) != ""
