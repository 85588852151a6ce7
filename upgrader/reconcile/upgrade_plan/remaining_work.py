"""What a plan has still to do, for itself and the CLI: the world less what its upgrades and requests settled."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct, structs

from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade, UpgradePlan
from upgrader.core.forecast.forecast import BatchForecast, Forecast, forecast
from upgrader.core.model.fleet import Snapshot, Target
from upgrader.core.model.phases import NodePhase, ends
from upgrader.core.model.prediction import Durations
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.upgrade_plan.plan_state import settled_nodes
from upgrader.reconcile.checkpoint_request import request_history
from upgrader.reconcile.observe.stopped_gangs import stopped_gangs
from upgrader.reconcile.render.custom_objects import LABEL_BATCH
from upgrader.reconcile.upgrade_plan import ended_batches, plan_view


class Rest(Struct, frozen=True, kw_only=True):
    """A snapshot as a plan sees it; as it is for a plan that has done nothing yet."""

    snapshot: Snapshot
    already: frozenset[str] = frozenset()
    """Nodes that the plan has taken, or leaves alone for a while: neither upgraded again nor blocked."""
    cooling: frozenset[str] = frozenset()
    """Those of them that are only left alone for a while."""
    stopped_gangs: frozenset[str] = frozenset()
    proven: tuple[str, ...] = ()
    """Classes of nodes of which it has upgraded a canary."""

    def foresee(
        self,
        target: Target,
        strategy: StrategyFacts,
        now: datetime,
        durations: Durations,
        *,
        remainder: Sequence[BatchForecast] = (),
    ) -> Forecast:
        """The forecast of it; `remainder` and errors as for `forecast`."""
        return forecast(
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
    """What is left of a plan with these upgrades and requests."""
    retry = timedelta(seconds=plan.spec.checkpoint.retry_seconds)
    blocked = request_history.declined_by_gangs(requests, upgrades)
    settled, cooling = settled_nodes(plan_view.upgrade_facts(upgrades), retry, now, blocked=blocked)
    under_way = {one.spec.node.name for one in upgrades if not ends(one.status.phase)}
    return Rest(
        snapshot=request_history.with_refusals(snapshot, requests, retry),
        already=settled | cooling | under_way,
        cooling=cooling,
        stopped_gangs=stopped_gangs(plan, requests, snapshot),
        proven=_proven(plan, upgrades),
    )


def _proven(plan: UpgradePlan, upgrades: Sequence[NodeUpgrade]) -> tuple[str, ...]:
    """Classes of which a canary was given back upgraded; one that was let go, or failed, proves nothing."""
    classes = {(str(one.batch), one.node): one.node_class for one in ended_batches.canaries(plan)}
    upgraded = [one for one in upgrades if one.status.phase is NodePhase.SUCCEEDED]
    found = (classes.get((one.metadata.labels.get(LABEL_BATCH, ""), one.spec.node.name)) for one in upgraded)
    return tuple(sorted({one for one in found if one is not None}))
