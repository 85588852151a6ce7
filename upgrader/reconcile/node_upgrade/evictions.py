"""Evictions of single pods under their budgets: the API server's refusals, and the pause until the next attempt.

A refusal is recorded in the upgrade, so that a restarted controller keeps the pause; there are no tight retry loops.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from upgrader.api.kubernetes import Pod
from upgrader.api.resources import PDBS, PODS
from upgrader.core import timing
from upgrader.core.errors import REFUSED, ConflictError, NotFoundError, ThrottledError, TwoBudgetsError
from upgrader.core.node_upgrade.upgrade_state import OtherPod
from upgrader.core.workloads.pod_disruption_budgets import is_selected
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()

PAUSE_SECONDS = 10.0
"""Pause after a budget that allows no disruption, if the API server gives no Retry-After."""

LONG_SECONDS = 60.0
"""Pause after a permanent refusal: a user may change its cause."""

LONGEST_SECONDS = 300.0
"""Longest pause, whatever the API server answers."""


class EvictionRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod was not evicted, as a sentence, and the pause until the next attempt, in seconds."""

    message: str
    seconds: float


async def evict_pods(context: Context, pods: Sequence[OtherPod]) -> EvictionRefusal | None:
    """Evict all pods that can be evicted now; returns the refusal of the first refused pod, or None.

    Raises:
        UnreachableError: no answer; the step is repeated.
    """
    refused = [refusal for pod in pods if (refusal := await _evict_pod(context, pod)) is not None]
    if not refused:
        return None
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return EvictionRefusal(message=f"{refused[0].message}{more}", seconds=min(refusal.seconds for refusal in refused))


async def _evict_pod(context: Context, pod: OtherPod) -> EvictionRefusal | None:
    fresh = await context.cluster.get(PODS, pod.name, pod.namespace)
    if fresh is None or fresh.metadata.uid != pod.uid or fresh.metadata.deletion_timestamp is not None:
        return None
    name = f"{pod.namespace}/{pod.name}"
    try:
        if pod.forced:
            await context.cluster.delete(PODS, fresh.metadata)
        else:
            await context.cluster.evict(fresh.metadata)
    except (ConflictError, NotFoundError) as error:
        log.info("conflict, requeued", pod=name, because=error.brief)
        return None
    except ThrottledError as error:
        seconds = PAUSE_SECONDS if error.retry_after is None else error.retry_after
        why = "its PodDisruptionBudget does not allow its eviction now, or the API server is busy"
        refusal = EvictionRefusal(message=f"pod {name}: {why}", seconds=min(max(seconds, 1.0), LONGEST_SECONDS))
    except TwoBudgetsError:
        names = " and ".join(await _budgets_of_pod(context, fresh))
        why = f"PodDisruptionBudgets {names} both select it, so the API server never evicts it; delete one of them"
        refusal = EvictionRefusal(message=f"pod {name}: {why}", seconds=LONG_SECONDS)
    except REFUSED as error:
        if not error.refused:
            raise
        refusal = EvictionRefusal(message=f"pod {name}: {error.brief} ({error.details})", seconds=LONG_SECONDS)
    else:
        return None
    log.info("eviction refused", pod=name, because=refusal.message, again_in=refusal.seconds)
    return refusal


async def _budgets_of_pod(context: Context, pod: Pod) -> list[str]:
    budgets = [
        cluster_snapshot.disruption_budget(budget)
        for budget in await context.cluster.list(PDBS, pod.metadata.namespace)
    ]
    return sorted(budget.name for budget in budgets if is_selected(budget.selector, pod.metadata.labels))


def eviction_status(context: Context, refusal: EvictionRefusal) -> dict[str, Any]:
    """The refusal as stored in a node upgrade's status."""
    again = timing.add_seconds(context.clock.now(), refusal.seconds)
    return {"message": refusal.message, "notBefore": timing.format_time(again)}
