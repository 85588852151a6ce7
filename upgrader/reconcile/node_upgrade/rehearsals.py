"""Dry runs of the objects that a node upgrade will create, before any checkpoint is requested for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from upgrader.api.resources import GPU_STACKS, PODS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.errors import REFUSED, ConfigurationError, UnreachableError
from upgrader.core.model.fleet import NodeFacts
from upgrader.reconcile.node_upgrade.upgrade_jobs import rehearse_start
from upgrader.reconcile.observe.other_plans import taken_back
from upgrader.reconcile.runtime.context import Context
from upgrader.stack import manifests

log = structlog.get_logger()

UNANSWERED = "no answer"
"""Key of one pause for all upgrades: a webhook that does not answer would delay each of them."""


async def rehearse_upgrade(context: Context, upgrade: NodeUpgrade, node: NodeFacts) -> None:
    """Check that the API server accepts the objects of the upgrade, before any checkpoint is requested for it.

    Objects for the way back to a revision that is rolled back itself may be refused: that may be why it is left.

    Raises:
        ConfigurationError: it would refuse, with its message; the check is repeated after a pause, so that a webhook
            is not called each second for each node.
        UnreachableError: it did not answer; the check is repeated after a pause.
    """
    uid, now = upgrade.metadata.uid, context.clock.now()
    failure = context.rehearsals.failure(UNANSWERED, now) or context.rehearsals.failure(uid, now)
    if failure is not None:
        raise failure
    try:
        await _rehearse_objects(context, upgrade, node)
    except ConfigurationError as error:
        context.rehearsals.keep(uid, error, context.clock.now())
        raise
    except UnreachableError as error:
        context.rehearsals.keep(UNANSWERED, error, context.clock.now())
        raise


async def _rehearse_objects(context: Context, upgrade: NodeUpgrade, node: NodeFacts) -> None:
    name = manifests.upgrade_name(upgrade, reverting=False)
    with _explain_refusal(f"to start Job {name}", "Apply deploy/rbac.yaml of this release."):
        await rehearse_start(context, upgrade)
    shown = manifests.rehearsal_pods(upgrade, node, context.stack)
    for pod in shown.forward:
        await _rehearse_pod(context, pod, "which this upgrade creates later")
    try:
        for pod in shown.revert:
            await _rehearse_pod(context, pod, "which this upgrade creates if it reverts")
    except ConfigurationError as error:
        if not await _leaves_for_good(context, upgrade):
            raise
        log.warning(
            "API server would refuse the pods of a revert; this upgrade cannot revert",
            upgrade=upgrade.metadata.name,
            because=error.brief,
        )


async def _rehearse_pod(context: Context, pod: dict[str, Any], what: str) -> None:
    with _explain_refusal(f"pod {pod['metadata']['name']}, {what}", "Correct the named fields."):
        await context.cluster.rehearse(PODS, pod)


@contextmanager
def _explain_refusal(what: str, resolution: str) -> Iterator[None]:
    """Turn a refusal inside into an error that names the refused object and the resolution."""
    try:
        yield
    except REFUSED as error:
        if not error.refused:
            raise
        raise ConfigurationError(
            f"the API server would refuse {what}: {error.refusal_text or error.brief}",
            details=error.details,
            resolution=f"{resolution} No checkpoint was requested.",
        ) from error


async def _leaves_for_good(context: Context, upgrade: NodeUpgrade) -> bool:
    """Whether the upgrade is part of a rollback from the revision that the stack still requests."""
    stacks, plans = await context.cluster.list(GPU_STACKS), await context.cluster.list(UPGRADE_PLANS)
    return upgrade.spec.source.revision == taken_back(stacks, plans, upgrade.spec.stack) != ""
