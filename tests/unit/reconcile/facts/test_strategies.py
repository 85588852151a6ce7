"""What a plan's spec says, as the forecast goes by it, and back."""

from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support import manifests as m
from upgrader.api.v1alpha1 import UpgradePlan
from upgrader.core.model.phases import OnFailure
from upgrader.core.model.strategy import StrategyFacts, TopologyBudget, Weekday, Window
from upgrader.reconcile.facts.strategies import strategy_of, strategy_spec
from upgrader_dev.simulated.cluster.ports import START

SPEC = {
    "maxUnavailable": 16,
    "topologyBudgets": [{"key": "rack", "maxUnavailable": "50%"}],
    "minAvailableGPUs": 8,
    "canary": {"enabled": True, "soakSeconds": 60},
    "waitForCompletionSeconds": 120,
    "windows": [{"days": ["Fri", "Mon"], "start": "22:00", "end": "05:00", "timeZone": "Europe/Berlin"}, {}],
    "deadlineSeconds": 3600,
    "onFailure": "Rollback",
}
CHECKPOINT = {
    "timeoutSeconds": 90,
    "method": "http, file",
    "lanes": {"maxConcurrent": 2},
    "waitFor": ["default/Deployment/web"],
}
LIMITS = {"maxInterruptions": 3, "expendable": ["default/Job/toy"], "placementUnguaranteed": True}
APPROVAL = {"by": "ann", "at": "2026-11-21T09:00:00Z", "limits": LIMITS}


def plan(status=None, **spec):
    body = m.upgrade_plan() | {"status": status or {}}
    return msgspec.convert(body | {"spec": body["spec"] | spec}, UpgradePlan)


def test_everything_that_a_plan_says_is_in_its_strategy():
    made = plan(strategy=SPEC, checkpoint=CHECKPOINT, approval=APPROVAL)
    assert strategy_of(made, START) == StrategyFacts(
        max_unavailable=16,
        topology=(TopologyBudget(key="rack", max_unavailable="50%"),),
        min_available_gpus=8,
        canary=True,
        soak_seconds=60,
        completion_until=START + timedelta(seconds=120),
        deadline=START + timedelta(hours=1),
        windows=(Window(days=("Fri", "Mon"), start="22:00", end="05:00", time_zone="Europe/Berlin"), Window()),
        lane_width=2,
        checkpoint_seconds=90,
        checkpoint_method="http, file",
        expendable=("default/Job/toy",),
        wait_for=("default/Deployment/web",),
        placement_unguaranteed=True,
        on_failure=OnFailure.ROLLBACK,
    )


def test_times_count_from_the_start_and_canaries_are_watched_from_their_end_on():
    batch = {"number": 1, "groups": [], "startedAt": "2026-11-21T08:00:00Z", "askUntil": "2026-11-21T09:00:00Z"}
    status = {"startedAt": "2026-11-21T08:00:00Z", "soakUntil": "2026-11-21T08:20:00Z", "batches": [batch]}
    made = strategy_of(plan(status, strategy=SPEC), START + timedelta(hours=5))
    began = START.replace(hour=8, minute=0)
    assert (made.deadline, made.completion_until) == (
        began + timedelta(hours=1),
        began + timedelta(seconds=120),
    )
    assert (made.canary, made.not_before) == (True, began + timedelta(minutes=20))


WINDOWS = st.builds(
    Window,
    days=st.lists(st.sampled_from(Weekday), unique=True).map(tuple),
    start=st.sampled_from(("00:00", "22:30")),
    end=st.sampled_from(("00:00", "05:00")),
    time_zone=st.sampled_from(("UTC", "Asia/Kolkata")),
)


@given(
    st.builds(
        StrategyFacts,
        max_unavailable=st.sampled_from((4, "30%")),
        topology=st.lists(st.builds(TopologyBudget, key=st.just("rack"), max_unavailable=st.just(3)), max_size=1).map(
            tuple
        ),
        min_available_gpus=st.integers(0, 9),
        canary=st.booleans(),
        soak_seconds=st.integers(0, 900),
        completion_until=st.none() | st.integers(1, 9000).map(lambda s: START + timedelta(seconds=s)),
        deadline=st.none() | st.integers(60, 9000).map(lambda s: START + timedelta(seconds=s)),
        windows=st.lists(WINDOWS, max_size=2).map(tuple),
        on_failure=st.sampled_from(OnFailure),
    )
)
def test_a_strategy_survives_the_way_into_a_plan_and_back(strategy):
    made = plan(strategy=strategy_spec(strategy, START))
    assert strategy_of(made, START) == strategy
