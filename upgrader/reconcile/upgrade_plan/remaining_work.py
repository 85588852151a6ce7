"""The remaining work of a plan, for itself and the CLI: the snapshot without nodes that its upgrades have settled."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct, structs

from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade, UpgradePlan
from upgrader.core.forecast.forecast import BatchForecast, Forecast, forecast_rollout
from upgrader.core.model.fleet import Snapshot, Target
from upgrader.core.model.phases import NodePhase, is_final
from upgrader.core.model.prediction import Durations
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.upgrade_plan.plan_state import settled_nodes
from upgrader.reconcile.checkpoint_request import request_history
from upgrader.reconcile.observe.stopped_gangs import stopped_gangs
from upgrader.reconcile.render.custom_objects import LABEL_BATCH
from upgrader.reconcile.upgrade_plan import ended_batches, plan_view


class Rest(Struct, frozen=True, kw_only=True):
    """A snapshot with the progress of a plan; the defaults are those of a plan without progress."""

    snapshot: Snapshot
    already: frozenset[str] = frozenset()
    """Nodes that the plan has upgraded, upgrades now, or retries later: neither upgraded again nor blocked."""
    cooling: frozenset[str] = frozenset()
    """The nodes among them that are retried later."""
    stopped_gangs: frozenset[str] = frozenset()
    proven: tuple[str, ...] = ()
    """Node classes of which the plan has upgraded a canary."""

    def forecast_rest(
        self,
        target: Target,
        strategy: StrategyFacts,
        now: datetime,
        durations: Durations,
        *,
        remainder: Sequence[BatchForecast] = (),
    ) -> Forecast:
        """The forecast of the remaining work; `remainder` and errors as for `forecast_rollout`."""
        return forecast_rollout(
            self.snapshot,
            target,
            structs.replace(strategy, proven=self.proven),
            now=now,
            already=self.already,
            stopped_gangs=self.stopped_gangs,
            remainder=remainder,
            durations=durations,
        )


def rest_of(
    plan: UpgradePlan,
    snapshot: Snapshot,
    upgrades: Sequence[NodeUpgrade],
    requests: Sequence[CheckpointRequest],
    now: datetime,
) -> Rest:
    """The remaining work of a plan with these upgrades and requests."""
    retry = timedelta(seconds=plan.spec.checkpoint.retry_seconds)
    blocked = request_history.declined_by_gangs(requests, upgrades)
    settled, cooling = settled_nodes(plan_view.upgrade_facts(upgrades), retry, now, blocked=blocked)
    under_way = {upgrade.spec.node.name for upgrade in upgrades if not is_final(upgrade.status.phase)}
    return Rest(
        snapshot=request_history.with_refusals(snapshot, requests, retry),
        already=settled | cooling | under_way,
        cooling=cooling,
        stopped_gangs=stopped_gangs(plan, requests, snapshot),
        proven=_proven_classes(plan, upgrades),
    )


def _proven_classes(plan: UpgradePlan, upgrades: Sequence[NodeUpgrade]) -> tuple[str, ...]:
    """Node classes of which a canary was upgraded and released; a withdrawn or failed canary proves nothing."""
    classes = {(str(canary.batch), canary.node): canary.node_class for canary in ended_batches.all_canaries(plan)}
    upgraded = [upgrade for upgrade in upgrades if upgrade.status.phase is NodePhase.SUCCEEDED]
    canary_classes = (
        classes.get((upgrade.metadata.labels.get(LABEL_BATCH, ""), upgrade.spec.node.name)) for upgrade in upgraded
    )
    return tuple(sorted({name for name in canary_classes if name is not None}))
