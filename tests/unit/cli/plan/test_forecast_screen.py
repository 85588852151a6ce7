"""The screen of `upgrader plan`: everything that a forecast may hold, a fleet of thousands, and a cluster at rest."""

import io
from datetime import timedelta
from pathlib import Path

import msgspec

from tests.support.facts import NEW, OLD, gang, node, snapshot, target
from tests.support.golden import assert_golden
from upgrader.cli.base import render
from upgrader.cli.plan import forecast_screen
from upgrader.core.constraints.blockers import BlockedReason, Blocker
from upgrader.core.explain.plan_file import SavedForecast, limits_of
from upgrader.core.explain.source_revisions import find_origins
from upgrader.core.forecast.forecast import BatchForecast, BatchKind, Forecast, GroupForecast, Summary, forecast_rollout
from upgrader.core.model.prediction import Completion, Durations, Interruption, Prediction
from upgrader.core.model.strategy import StrategyFacts
from upgrader_dev.simulated.cluster.ports import START
from upgrader_dev.vendor.sim import FACTS

GOLDEN = Path(__file__).parents[1] / "golden"


def later(**span):
    return START + timedelta(**span)


def group(*nodes, gangs=(), evicted=()):
    return GroupForecast(name="c", nodes=nodes, gangs=gangs, evicted=evicted, gpus=8 * len(nodes))


def empty(**parts):
    facts = {
        "stack": "pool-a",
        "revision": target().revision,
        "made_at": START,
        "summary": Summary(),
        "batches": (),
        "blockers": (),
        "installs": (),
        "drift": (),
        "gpus": 64,
        "allowed": 16,
        "taken": 8,
    }
    return Forecast(**facts | parts)


def saved(made, **changes):
    strategy = changes.pop("strategy", StrategyFacts())
    facts = {
        "cluster": "uid-cluster",
        "stack": "pool-a",
        "stack_uid": "uid-stack",
        "stack_generation": 3,
        "spec": {"driver": {"vendor": "nvidia", "version": NEW}},
        "revision": made.revision,
        "created_at": START,
        "strategy": strategy,
        "limits": limits_of(made, strategy),
        "images": (),
        "forecast": made,
    }
    return SavedForecast(**facts | changes)


def screen(of):
    stream = io.StringIO()
    render.print_renderable(forecast_screen.forecast_tables(of), stream)
    return stream.getvalue()


def test_everything_that_a_forecast_may_hold():
    batches = (
        BatchForecast(number=1, groups=(group("n-1"),), kind=BatchKind.CANARY, starts_at=START, seconds=240),
        BatchForecast(
            number=2,
            groups=(group("n-2", "n-3"),),
            kind=BatchKind.IDLE,
            starts_at=later(minutes=34),
            seconds=300,
            waits_for="the canaries are watched for 30m",
        ),
        BatchForecast(
            number=3,
            groups=(group("n-4", "n-5", gangs=("ml/Job/train",), evicted=("web/ReplicaSet/serve",)),),
            starts_at=later(hours=16),
            seconds=900,
        ),
    )
    lost = Interruption(
        gang="ml/Job/train",
        gpus=16,
        asked_at=later(hours=16),
        seconds=780,
        lost_gpu_hours=3.47,
        because="it declares no end, and its nodes n-4, n-5 have the old driver",
    )
    blockers = (
        Blocker(
            subject="n-6",
            reason=BlockedReason.NODE_SKIPPED,
            message="A person said so; remove the label.",
            nodes=("n-6",),
        ),
        Blocker(subject="ml/Job/a", reason=BlockedReason.VETOED, message="Job a forbids it; remove x.", nodes=("n-7",)),
        Blocker(
            subject="ml/Job/b", reason=BlockedReason.VETOED, message="Job b forbids it; remove x.", nodes=("n-8", "n-7")
        ),
    )
    made = empty(
        summary=Summary(drifted=9, nodes=5, batches=3, interruptions=1, blocked=3, installs=1),
        batches=batches,
        blockers=blockers,
        completions=(Completion(nodes=("n-9",), gangs=("ml/Job/short",), at=later(minutes=20)),),
        prediction=Prediction(
            finish_p50=later(hours=16, minutes=15),
            finish_p95=later(hours=18),
            lost_gpu_hours=6.31,
            lower_bound_gpu_hours=6.0,
            interruptions=(lost,),
            durations=Durations(measured=12),
        ),
        drift=forecast_rollout(
            snapshot([node("n-1"), node("n-4")], [gang("train", ["n-4"])]), target(), StrategyFacts(), now=START
        ).drift,
    )
    nodes = [node("n-1"), node("n-2", revision="")]
    shown = saved(
        made,
        strategy=StrategyFacts(canary=True, soak_seconds=1800, expendable=("ml/Job/toy",)),
        origins=find_origins(nodes, {target(OLD).revision: target(OLD)}, target()),
        steering=False,
    )
    assert_golden(GOLDEN / "plan-everything.txt", screen(shown))


def test_a_fleet_of_thousands_is_folded():
    count = 2000
    batches = tuple(
        BatchForecast(
            number=number,
            groups=tuple(group(f"n-{number}-{part}", gangs=(f"ml/Job/{number}-{part}",)) for part in range(20)),
            starts_at=later(minutes=15 * number),
            seconds=600,
        )
        for number in range(1, 101)
    )
    interruptions = tuple(
        Interruption(
            gang=f"ml/Job/{number}",
            gpus=8,
            asked_at=later(minutes=number),
            seconds=600,
            lost_gpu_hours=1.5,
            because="x",
        )
        for number in range(count)
    )
    completions = tuple(
        Completion(nodes=(f"h-{one}",), gangs=(f"ml/Job/h-{one}",), at=later(hours=one)) for one in range(50)
    )
    blockers = tuple(
        Blocker(
            subject=f"ml/Job/v-{one}",
            reason=BlockedReason.VETOED,
            message=f"Job v-{one} forbids it.",
            nodes=(f"v-{one}",),
        )
        for one in range(500)
    )
    made = empty(
        gpus=16000,
        summary=Summary(drifted=count, nodes=count, batches=100, interruptions=count, blocked=500),
        batches=batches,
        completions=completions,
        blockers=blockers,
        prediction=Prediction(interruptions=interruptions, lost_gpu_hours=3000.0, lower_bound_gpu_hours=2900.0),
        drift=forecast_rollout(
            snapshot([node(f"n-{one}") for one in range(count)]), target(), StrategyFacts(), now=START
        ).drift,
    )
    text = screen(saved(made))
    assert len(text.splitlines()) < 75
    assert "and 90 more batches, the last at Sun 22 Nov 10:00 (+1d 01h)" in text
    assert "and 1990 more gangs with 15920 GPUs, 2985.0 GPU-hours lost" in text
    assert "and 40 more groups of nodes" in text
    assert "ml/Job/v-3, ml/Job/v-4, ml/Job/v-5 and 494 more" in text
    assert "n-0, n-1, n-10, n-100, n-1000, n-1001 and 1994 more" in text


def test_nothing_to_do():
    assert screen(saved(empty())) == (
        f"Stack pool-a → revision {target().revision}\n"
        "64 GPUs in the pool; at most 16 out of service at the same time (25%), 8 are now\n"
        "\n"
        "Drift\n"
        "none: all nodes match the stack\n"
        "\n"
        "No changes.\n"
    )


def test_what_is_simulated_is_called_so():
    shown = saved(empty(), spec={"driver": {"vendor": "sim", "version": NEW}})
    assert FACTS.notice in screen(shown)
    shown = saved(empty(), spec={"driver": {"vendor": "nvidia", "version": NEW}})
    assert "simulated" not in screen(shown)


def test_placement_is_spoken_of_only_where_somebody_is_stopped():
    made = empty(summary=Summary(drifted=1, nodes=1, batches=1))
    assert "Placement" not in screen(saved(made, steering=False))
    stopping = msgspec.structs.replace(made, summary=Summary(drifted=1, nodes=1, batches=1, interruptions=1))
    assert "Placement is not guaranteed" in screen(saved(stopping, steering=False))
    assert "Placement" not in screen(saved(stopping))


def test_reboots_are_counted_with_the_pods_that_they_end():
    groups = (
        GroupForecast(name="c", nodes=("a", "b"), gpus=16, rebooted=("a", "b"), other_pods=3),
        GroupForecast(name="d", nodes=("c",), gpus=8),
    )
    assert "2 nodes rebooted, which also ends 3 pods without GPUs" in summed_up(groups)
    reconfigured = GroupForecast(name="e", nodes=("d",), gpus=8, reconfigured=("d",), other_pods=1)
    both = "2 nodes rebooted and 1 node with other kubelet settings, which also ends 4 pods without GPUs"
    assert both in summed_up((*groups, reconfigured))
    perhaps = GroupForecast(name="f", nodes=("e",), gpus=8, perhaps_rebooted=("e",), other_pods=2)
    assert "1 node rebooted if the driver cannot be unloaded, which also ends 2 pods" in summed_up((perhaps,))


def summed_up(groups):
    """The screen of a plan with one batch, without its line ends."""
    made = empty(summary=Summary(drifted=3, nodes=3, batches=1), batches=(BatchForecast(number=1, groups=groups),))
    return " ".join(screen(saved(made)).split())
