"""What `upgrader apply` writes is taken by a real API server as it was meant, with every option."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from upgrader.api.resources import UPGRADE_PLANS
from upgrader.cli.base.session import Session
from upgrader.cli.plan import pace_parser
from upgrader.cli.shared import consent
from upgrader.cli.shared.consent import ApprovalTerms
from upgrader.core.model.phases import OnFailure
from upgrader.core.model.strategy import StrategyFacts, TopologyBudget
from upgrader.reconcile.facts.strategies import strategy_of

pytestmark = [pytest.mark.cluster, pytest.mark.gate]

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
FULL = StrategyFacts(
    max_unavailable=64,
    topology=(
        TopologyBudget(key="example.com/rack", max_unavailable="50%"),
        TopologyBudget(key="p", max_unavailable=8),
    ),
    min_available_gpus=8,
    canary=True,
    soak_seconds=5400,
    completion_until=NOW + timedelta(hours=2),
    deadline=NOW + timedelta(days=1),
    windows=(pace_parser.parse_window("Mon-Fri 22:00-06:00 Europe/Berlin"), pace_parser.parse_window("00:00-24:00")),
    lane_width=2,
    checkpoint_seconds=600,
    expendable=("ml/Job/toy",),
    wait_for=("web/ReplicaSet/serve",),
    placement_unguaranteed=True,
    on_failure=OnFailure.ROLLBACK,
)


@pytest.mark.parametrize("strategy", [StrategyFacts(), FULL], ids=["nothing said", "everything said"])
async def test_a_plan_says_what_was_agreed_to(api, kubeconfig, strategy):
    agreed = ApprovalTerms(
        by="sre@example",
        max_interruptions=3,
        max_lost_gpu_hours=12.4,
        expendable=strategy.expendable,
        placement_unguaranteed=strategy.placement_unguaranteed,
    )
    name = f"t{uuid.uuid4().hex[:10]}"
    async with Session(kubeconfig=str(kubeconfig)).open() as context:
        checkpoint = consent.checkpoint_spec(strategy, 60)
        body = consent.plan_body(context, name, "s", "0123456789", strategy, agreed, checkpoint, made_at=NOW)
        await consent.create_plan(context, body)
    written = await api.get(UPGRADE_PLANS, name)
    assert strategy_of(written, NOW) == strategy
    assert written.spec.checkpoint == checkpoint
    assert written.spec.approval.limits.max_lost_gpu_hours == 12.4
    await api.delete(UPGRADE_PLANS, written.metadata)
