from datetime import timedelta

import msgspec
import pytest

from tests.support.facts import KERNEL, NEW, OLD, fresh_node, gang, image, node, snapshot, target
from tests.support.forecasts import H, blockers, foresee, shape
from upgrader.core.constraints.upgrade_groups import group_name
from upgrader.core.errors import ConfigurationError
from upgrader.core.forecast.duration_model import GroupDurations, longest_of, longest_of_spreads
from upgrader.core.forecast.forecast import BatchForecast, BatchKind, Blocker, Forecast, GroupForecast, Summary
from upgrader.core.gpu_stack.drift import find_drift
from upgrader.core.model.prediction import Durations, Interruption, Prediction
from upgrader_dev.simulated.cluster.ports import START

PACE = GroupDurations(Durations())
ALONE, PAIR = PACE.upgrade_duration(1).mean, PACE.upgrade_duration(2).mean
ASKED = longest_of(1, *PACE.durations.checkpoint).mean
BACK = longest_of(1, *PACE.durations.restart).mean
ONE, TWO = (PACE.group_duration(nodes=nodes, gangs=nodes - 1, checkpoint=PACE.durations.checkpoint) for nodes in (1, 2))
FIRST, SECOND = round(longest_of_spreads([ONE, ONE]).mean), round(longest_of_spreads([TWO]).mean)

# ------------------------------------------------------------------------------------------------------ batches


def test_a_whole_forecast():
    world = snapshot(
        [node("a"), node("b"), node("c"), node("d"), node("e", NEW), node("f", skip=True), fresh_node("g")],
        [gang("train", ["a", "b"])],
    )
    made = foresee(world, budget="50%")
    idle = [GroupForecast(name=group_name([name]), nodes=(name,), gpus=8, added=8) for name in "cd"]
    busy = GroupForecast(name=group_name(["a", "b"]), nodes=("a", "b"), gangs=("ml/Job/train",), gpus=16, added=16)
    assert made == Forecast(
        stack="pool-a",
        revision=target().revision,
        made_at=START,
        summary=Summary(drifted=6, nodes=4, batches=2, interruptions=1, blocked=1, installs=1),
        batches=(
            BatchForecast(number=1, groups=tuple(idle), kind=BatchKind.IDLE, starts_at=START, seconds=FIRST),
            BatchForecast(number=2, groups=(busy,), starts_at=START + timedelta(seconds=FIRST), seconds=SECOND),
        ),
        blockers=(
            Blocker(
                subject="f",
                reason=H.NODE_SKIPPED,
                message="Node f carries the label gpu-upgrader.io/skip=true; remove it to have the node upgraded.",
                nodes=("f",),
            ),
        ),
        installs=("g",),
        drift=find_drift(world, target()),
        gpus=48,
        allowed=24,
        taken=0,
        prediction=Prediction(
            # two nodes by themselves, and for the gang's: their upgrade, its checkpoint and its restart
            lost_gpu_hours=pytest.approx((16 * ALONE + 16 * (PAIR + ASKED + BACK)) / 3600, abs=1e-3),
            lower_bound_gpu_hours=pytest.approx((16 * ALONE + 16 * (PAIR + ASKED + BACK)) / 3600, abs=1e-3),
            interruptions=(
                Interruption(
                    gang="ml/Job/train",
                    gpus=16,
                    asked_at=START + timedelta(seconds=FIRST + round(PACE.preparation_duration(2).mean)),
                    seconds=round(PAIR + ASKED + BACK),
                    lost_gpu_hours=pytest.approx(16 * (PAIR + ASKED + BACK) / 3600, abs=1e-3),
                    because="It runs on a, b and is stopped. The node has driver sim 560.1, the stack requires sim "
                    "570.10.",
                ),
            ),
        ),
    )
    assert made.prediction.gap == 1
    assert made.interrupted == {"ml/Job/train"}
    assert [(batch.gpus, batch.nodes) for batch in made.batches] == [
        (16, ("c", "d")),
        (16, ("a", "b")),
    ]


def test_nothing_to_do():
    made = foresee(snapshot([node("a", NEW)], [gang("train", ["a"])]))
    assert (made.summary, made.batches, made.blockers, made.installs) == (Summary(), (), (), ())


def test_idle_nodes_come_first_and_by_themselves():
    world = snapshot([node(name) for name in "abc"], [gang("x", ["a"])])
    first, second = shape(foresee(world))
    assert sorted(first) == [(("b",), ()), (("c",), ())]
    assert second == [(("a",), ("ml/Job/x",))]


def test_evictions_come_with_the_gangs():
    web = gang("web", ["a"], replicated=True, method="", owner=None)
    first, second = foresee(snapshot([node("a"), node("b")], [web])).batches
    assert [group.nodes for group in first.groups] == [("b",)]
    assert [(group.nodes, group.evicted, group.gangs) for group in second.groups] == [(("a",), ("ml/Job/web",), ())]


def test_the_largest_groups_come_first_and_the_gaps_are_filled():
    gangs = [gang("four", "abcd"), gang("three", "efg"), gang("one", "h")]
    world = snapshot([node(name) for name in "abcdefgh"], gangs)
    assert [[group[0] for group in batch] for batch in shape(foresee(world, budget=40))] == [
        [("a", "b", "c", "d"), ("h",)],
        [("e", "f", "g")],
    ]


def test_nodes_of_this_plan_are_not_upgraded_again_nor_held():
    made = foresee(snapshot([node("a"), node("b", skip=True)]), already=frozenset({"a", "b"}))
    assert (made.summary, made.batches, made.blockers) == (Summary(), (), ())


def test_a_cordoned_node_is_upgraded_and_counts_as_down_already():
    world = snapshot([node("a", unschedulable=True), node("b"), node("c")])
    made = foresee(world, budget=16)
    assert sorted(shape(made)[0]) == [(("a",), ()), (("b",), ())]
    assert (made.taken, made.allowed) == (8, 16)
    assert [len(batch.groups) for batch in made.batches] == [2, 1]


def test_a_batch_never_takes_more_than_the_budget_even_of_what_is_down():
    world = snapshot([node(name, unschedulable=True) for name in "abc"], [gang(name, [name]) for name in "abc"])
    assert [batch.gpus for batch in foresee(world, budget=8).batches] == [8, 8, 8]


def test_a_node_in_a_node_upgrade_takes_its_share_of_the_budget():
    world = snapshot([node("a", claimed_by="v"), node("b")])
    made = foresee(world, budget=8, already=frozenset({"a"}))
    assert blockers(made) == {(group_name(["b"]), H.BUDGET_TAKEN): ("b",)}


def test_a_budget_that_cannot_be_read_is_an_error():
    with pytest.raises(ConfigurationError):
        foresee(snapshot([node("a")]), budget="half")


# ------------------------------------------------------------------------------------------------------ installs


def test_a_fresh_node_is_installed_without_a_plan_unless_something_speaks_against_it():
    world = snapshot([fresh_node("a"), fresh_node("b", skip=True), fresh_node("c", kernel="6.1.0-99"), node("z", NEW)])
    made = foresee(world)
    assert made.installs == ("a",)
    assert blockers(made) == {("b", H.NODE_SKIPPED): ("b",), ("c", H.NO_DRIVER_IMAGE): ("c",)}
    assert made.batches == ()


def test_a_fresh_node_with_somebodys_pods_is_not_touched():
    world = snapshot([fresh_node("a", gpus=8, gpus_allocatable=8), node("b")], [gang("x", ["a", "b"])])
    made = foresee(world)
    assert made.installs == ()
    assert blockers(made) == {("a", H.FOREIGN_DRIVER): ("a", "b")}
    assert made.blockers[0].message == (
        "Node a runs pods with GPUs on a driver that the operator did not install; drain the node, then its driver is "
        "installed."
    )


def test_the_same_bytes_whatever_the_order():
    nodes = [node(name) for name in "abcd"] + [node("e", skip=True), node("f", kernel=KERNEL + "x")]
    gangs = [gang("x", ["a", "b"]), gang("y", ["c"]), gang("z", ["d"], method="")]
    one = foresee(snapshot(nodes, gangs), budget=16)
    other = foresee(snapshot(nodes[::-1], gangs[::-1], images=(image(NEW), image(OLD))), budget=16)
    assert msgspec.json.encode(one) == msgspec.json.encode(other)
