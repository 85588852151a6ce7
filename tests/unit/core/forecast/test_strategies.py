"""What a strategy makes of a forecast: limits, canaries, waiting, time slices, windows, the deadline, lanes."""

from datetime import timedelta

import pytest

from tests.support.facts import KERNEL, NEW, OLD, fresh_node, gang, image, member, node, snapshot
from tests.support.forecasts import H, blockers, foresee_by
from upgrader.core.constraints.upgrade_groups import group_name
from upgrader.core.forecast.canaries import node_class
from upgrader.core.forecast.duration_model import GroupDurations
from upgrader.core.forecast.forecast import BatchKind
from upgrader.core.model.prediction import Completion, Durations
from upgrader.core.model.strategy import TopologyBudget, Window
from upgrader_dev.simulated.cluster.ports import START

MODEL = "nvidia.com/gpu.product"
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
RACKS = (TopologyBudget(key="rack", max_unavailable="50%"),)


def racked(name, rack, **changes):
    return node(name, labels={"rack": rack} if rack else {}, **changes)


def nodes_of(made):
    return [(batch.kind, sorted(batch.nodes)) for batch in made.batches]


def since(name, at, started, **changes):
    return gang(name, [], members=tuple(member(f"{name}-{on}", on, started_at=started) for on in at), **changes)


# ------------------------------------------------------------------------------------------------------- limits


def test_no_rack_gives_more_than_its_share():
    world = snapshot([racked(name, rack) for name, rack in zip("abcdef", "112200", strict=True)])
    assert nodes_of(foresee_by(world, topology=RACKS)) == [
        (BatchKind.IDLE, ["a", "c", "e"]),
        (BatchKind.IDLE, ["b", "d", "f"]),
    ]


def test_nodes_without_the_label_are_one_domain():
    world = snapshot([racked(name, "") for name in "abcd"])
    assert [len(nodes) for _, nodes in nodes_of(foresee_by(world, topology=RACKS))] == [2, 2]


def test_a_group_larger_than_its_rack_allows_names_the_override():
    world = snapshot([racked(name, "r1") for name in "abc"], [gang("wide", "abc")])
    (blocker,) = foresee_by(world, topology=(TopologyBudget(key="rack", max_unavailable=16),)).blockers
    assert (blocker.reason, blocker.message) == (
        H.GROUP_OVER_BUDGET,
        (
            "It takes 24 GPUs of rack=r1 out of service, the topology budget is 16 of 24 there; maxUnavailable: 24 for "
            "rack would allow it."
        ),
    )


def test_what_is_down_in_a_rack_is_down_already():
    world = snapshot([racked("a", "r1", ready=False), racked("b", "r1"), racked("c", "r2"), racked("d", "r2")])
    made = foresee_by(world, topology=RACKS)
    assert blockers(made)[group_name("b"), H.BUDGET_TAKEN] == ("b",)
    assert nodes_of(made) == [(BatchKind.IDLE, ["c"]), (BatchKind.IDLE, ["d"])]


def test_members_of_a_stopped_gang_count_where_they_run():
    world = snapshot([racked("a", "r1"), racked("b", "r2", version=NEW), racked("c", "r2")], [gang("x", "ab")])
    made = foresee_by(world, topology=(TopologyBudget(key="rack", max_unavailable="50%"),))
    assert [blocker.message for blocker in made.blockers] == [
        (
            "It takes 8 GPUs of rack=r1 out of service, the topology budget is 4 of 8 there; maxUnavailable: 8 for "
            "rack would allow it."
        )
    ]


def test_the_floor_stays_in_service():
    world = snapshot([node(name) for name in "abcd"])
    assert [len(nodes) for _, nodes in nodes_of(foresee_by(world, min_available_gpus=20))] == [1, 1, 1, 1]


def test_a_group_below_the_floor_names_the_override():
    world = snapshot([node(name) for name in "abc"], [gang("wide", "abc")])
    (blocker,) = foresee_by(world, min_available_gpus=8).blockers
    assert (blocker.reason, blocker.message) == (
        H.GROUP_OVER_BUDGET,
        (
            "Together these 3 nodes and their gangs would leave 0 GPUs in service, the floor is 8; minAvailableGPUs: 0 "
            "would allow it."
        ),
    )


def test_a_floor_that_is_reached_by_what_is_down():
    world = snapshot([node("a", ready=False), node("b"), node("c")])
    made = foresee_by(world, min_available_gpus=16)
    assert [blocker.message for blocker in made.blockers if blocker.reason is H.BUDGET_TAKEN] == [
        (
            "It would take 8 more GPUs out of service; 16 are in service and 16 must stay. It waits until more are in "
            "service, or until minAvailableGPUs is lowered."
        )
    ] * 2


def test_gpus_of_other_plans_count():
    world = snapshot([node(name) for name in "abcd"], foreign_unavailable_gpus=16)
    assert [len(nodes) for _, nodes in nodes_of(foresee_by(world, max_unavailable=24))] == [1, 1, 1, 1]


# ------------------------------------------------------------------------------------------------------ canaries


def test_the_smallest_idle_node_of_each_class_comes_first_and_is_watched():
    world = snapshot(
        [
            node("a", labels={MODEL: "H100"}),
            node("b", labels={MODEL: "H100"}, gpus=4, gpus_allocatable=4),
            node("c", labels={MODEL: "A100"}),
            node("d", labels={MODEL: "A100"}),
        ],
        [gang("x", ["c"])],
    )
    made = foresee_by(world, canary=True, soak_seconds=3600)
    assert nodes_of(made) == [(BatchKind.CANARY, ["b", "d"]), (BatchKind.IDLE, ["a"]), (BatchKind.ASKED, ["c"])]
    first, second, _ = made.batches
    assert second.starts_at == first.starts_at + timedelta(seconds=first.seconds) + HOUR
    assert second.waits_for == "It waits until the soak of the canaries ends."


def test_where_no_node_of_a_class_is_idle_its_smallest_group_is_the_canary():
    world = snapshot([node(name) for name in "abc"], [gang("two", "ab"), gang("one", "c")])
    assert nodes_of(foresee_by(world, canary=True)) == [(BatchKind.CANARY, ["c"]), (BatchKind.ASKED, ["a", "b"])]


def test_an_idle_canary_goes_before_one_that_stops_a_gang_where_both_do_not_fit():
    models = {"a": "H100", "b": "A100", "c": "H100", "d": "H100"}
    world = snapshot([node(name, labels={MODEL: model}) for name, model in models.items()], [gang("both", "ab")])
    assert nodes_of(foresee_by(world, canary=True, max_unavailable="50%")) == [
        (BatchKind.CANARY, ["c"]),
        (BatchKind.CANARY, ["a", "b"]),
        (BatchKind.IDLE, ["d"]),
    ]


def test_a_class_is_proven_by_a_canary_of_its_own_only():
    models = zip("abcd", ("H100", "A100") * 2, strict=True)
    world = snapshot([node(name, labels={MODEL: model}) for name, model in models])
    h100, a100 = (node_class(world.nodes[at]) for at in (0, 1))
    assert (h100, a100) == tuple(f"{model}, {KERNEL}, {image(OLD).key}" for model in ("H100", "A100"))
    soak = {"canary": True, "not_before": START + HOUR}
    made = foresee_by(world, **soak, proven=(h100,))
    assert nodes_of(made) == [(BatchKind.CANARY, ["b"]), (BatchKind.IDLE, ["a", "c", "d"])]
    assert [one.starts_at for one in made.batches] == [START, START + HOUR], "it waits for no other class"
    assert nodes_of(foresee_by(world, **soak, proven=(a100, h100))) == [(BatchKind.IDLE, ["a", "b", "c", "d"])]


def test_a_canary_that_waits_for_a_time_slice_keeps_its_own_class_only():
    world = snapshot(
        [node("a", labels={MODEL: "A100"}), *(node(name, labels={MODEL: "H100"}) for name in "bcd")],
        [since("long", "a", START, min_runtime_seconds=36000)],
    )
    assert nodes_of(foresee_by(world, canary=True)) == [
        (BatchKind.CANARY, ["b"]),
        (BatchKind.IDLE, ["c", "d"]),
        (BatchKind.CANARY, ["a"]),
    ]


def test_nothing_starts_before_the_canaries_were_watched():
    made = foresee_by(snapshot([node("a")]), not_before=START + HOUR)
    assert (made.batches[0].starts_at, made.batches[0].waits_for) == (
        START + HOUR,
        "It waits until the soak of the canaries ends.",
    )


# ---- wait for completion


def test_jobs_that_end_in_time_are_not_asked_whether_they_could_be_or_not():
    world = snapshot(
        [node(name) for name in "abcd"],
        [
            gang("soon", "ab", ends_at=START + HOUR),
            gang("mute", "c", method="", ends_at=START + 2 * HOUR),
            gang("late", "d", ends_at=START + 4 * HOUR),
        ],
    )
    made = foresee_by(world, completion_until=START + 3 * HOUR)
    assert made.completions == (
        Completion(nodes=("a", "b"), gangs=("ml/Job/soon",), at=START + HOUR),
        Completion(nodes=("c",), gangs=("ml/Job/mute",), at=START + 2 * HOUR),
    )
    assert made.interrupted == {"ml/Job/late"}
    assert (made.summary.waiting_for_completion, made.summary.blocked, made.summary.nodes) == (3, 0, 1)
    assert made.prediction.finish_p50 > START + 2 * HOUR


def test_a_group_is_waited_for_only_when_all_its_gangs_end():
    gangs = [gang("soon", "a", gpus=4, ends_at=START + HOUR), gang("other", "a", gpus=4)]
    made = foresee_by(snapshot([node("a")], gangs), completion_until=START + 3 * HOUR)
    assert made.completions == ()
    assert made.interrupted == {"ml/Job/soon", "ml/Job/other"}
    # What ends by itself could have been let end: only the other one is beyond any order of upgrades.
    assert made.prediction.gap > 1


def test_one_that_overruns_its_word_is_waited_for_until_the_time_for_it_ends():
    world = snapshot([node("a")], [gang("over", "a", ends_at=START - HOUR)])
    assert foresee_by(world, completion_until=START + HOUR).completions[0].at == START
    assert foresee_by(world, completion_until=START).interrupted == {"ml/Job/over"}


def test_what_holds_a_node_holds_it_also_when_its_job_ends():
    world = snapshot([node("a", skip=True)], [gang("soon", "a", ends_at=START + HOUR)])
    made = foresee_by(world, completion_until=START + 3 * HOUR)
    assert (made.completions, list(blockers(made))) == ((), [("a", H.NODE_SKIPPED)])


def test_a_large_gang_that_ends_is_waited_for_whatever_the_budget():
    world = snapshot([node(name) for name in "abcd"], [gang("wide", "abcd", ends_at=START + HOUR)])
    made = foresee_by(world, max_unavailable=8, completion_until=START + 3 * HOUR)
    assert [one.nodes for one in made.completions] == [("a", "b", "c", "d")]
    # Four nodes, one after the other, once the job has ended.
    assert made.prediction.finish_p50 > START + HOUR + 4 * timedelta(seconds=240)


# -------------------------------------------------------------------------------------------- time slices, windows


def test_nobody_before_the_end_of_the_time_slice():
    world = snapshot(
        [node("a"), node("b")],
        [
            since("fresh", "a", START - 10 * MINUTE, min_runtime_seconds=3600),
            since("old", "b", START - 2 * HOUR, min_runtime_seconds=3600),
        ],
    )
    made = foresee_by(world)
    assert nodes_of(made) == [(BatchKind.ASKED, ["b"]), (BatchKind.ASKED, ["a"])]
    assert [batch.starts_at for batch in made.batches] == [START, START + 50 * MINUTE]
    assert made.batches[1].waits_for == "It waits for the end of the time slice that ml/Job/fresh declared."


def test_a_batch_starts_in_a_window():
    world = snapshot([node(name) for name in "ab"])
    made = foresee_by(world, max_unavailable=8, windows=(Window(start="22:00", end="22:05"),))
    assert [batch.starts_at for batch in made.batches] == [START + 13 * HOUR, START + 37 * HOUR]
    assert made.batches[0].waits_for == "It waits for a window, which opens 2026-11-21T22:00:00Z."


# ------------------------------------------------------------------------------------------------------ deadline


def test_what_would_not_end_in_time_is_blocked_and_what_does_is_not():
    world = snapshot([node(name) for name in "abcd"])
    (first, *_) = foresee_by(world, max_unavailable=8).batches
    surely = timedelta(
        seconds=round(GroupDurations(Durations()).group_duration(nodes=1, gangs=0, checkpoint=(0, 0)).quantile(0.95))
    )
    deadline = START + timedelta(seconds=first.seconds) + surely + MINUTE
    made = foresee_by(world, max_unavailable=8, deadline=deadline)
    assert [len(batch.nodes) for batch in made.batches] == [1, 1]
    assert {blocker.reason for blocker in made.blockers} == {H.WONT_FIT}
    assert made.summary.blocked == 2
    assert made.blockers[0].message.endswith(
        "; give the plan a later deadline, or leave it to another plan, or raise maxUnavailable."
    )


def test_after_the_deadline_all_is_blocked():
    made = foresee_by(snapshot([node("a"), fresh_node("f")]), deadline=START)
    assert [(blocker.reason, blocker.message) for blocker in made.blockers] == [
        (
            H.DEADLINE_PASSED,
            (
                "The plan's deadline 2026-11-21T09:00:00Z has passed; give the plan a later deadline, or leave it to "
                "another plan."
            ),
        )
    ]
    assert made.installs == ("f",)


def test_a_job_that_ends_too_late_for_the_deadline_is_asked_instead():
    world = snapshot([node("a")], [gang("soon", "a", ends_at=START + 2 * HOUR)])
    made = foresee_by(world, completion_until=START + 3 * HOUR, deadline=START + 2 * HOUR)
    assert (made.completions, made.interrupted) == ((), {"ml/Job/soon"})


# ------------------------------------------------------------------------------------------------- lanes, consent


def test_a_lane_lets_so_many_write_at_once_and_the_others_are_asked_later():
    names = [f"n{number}" for number in range(6)]
    world = snapshot([node(name) for name in names], [gang(name, [name], lane="fast") for name in names])
    free, laned = foresee_by(world), foresee_by(world, lane_width=2)
    asked = sorted(one.asked_at - START for one in laned.prediction.interruptions)
    assert asked[0] == asked[1] < asked[2] == asked[3] < asked[4] == asked[5]
    assert len({one.asked_at for one in free.prediction.interruptions}) == 1
    assert laned.batches[0].seconds > free.batches[0].seconds
    assert laned.prediction.lost_gpu_hours == free.prediction.lost_gpu_hours  # who is not asked trains on


def test_a_batch_asks_each_lane_four_times_at_most():
    names = [f"n{number}" for number in range(6)]
    world = snapshot([node(name) for name in names], [gang(name, [name], lane="slow") for name in names])
    assert [len(batch.groups) for batch in foresee_by(world, lane_width=1).batches] == [4, 2]


def test_gangs_of_one_group_that_share_a_lane_park_for_each_other():
    gangs = [gang(name, "a", gpus=4, lane="slow") for name in "xy"]
    world = snapshot([node("a")], gangs)
    made = foresee_by(world, lane_width=1)
    assert made.prediction.lost_gpu_hours > foresee_by(world).prediction.lost_gpu_hours
    assert made.prediction.gap > 1


def test_only_gangs_named_in_the_approval_are_ended_without_a_checkpoint():
    world = snapshot(
        [node(name) for name in "abcde"],
        [
            since("mute", "a", START - 3 * HOUR, method="file", owner=None, bare=True),
            gang("other", "b", method=""),
            gang("kept", "c", method="", veto="x=true"),
            gang("made-again", "d", method="", owner=None),
            gang("part", "e", method="", wanted=2),
        ],
        steering=False,  # what is never restarted needs no steering
    )
    named = ("mute", "kept", "made-again", "part")
    made = foresee_by(world, expendable=tuple(f"ml/Job/{name}" for name in named))
    assert made.interrupted == {"ml/Job/mute"}
    # What nobody could stop, or somebody else makes again, is no matter of consent: it would be asked in vain for ever.
    assert set(blockers(made)) == {
        ("ml/Job/other", H.GANG_UNDECLARED),
        ("ml/Job/kept", H.VETOED),
        ("ml/Job/kept", H.PLACEMENT_NOT_GUARANTEED),
        ("ml/Job/made-again", H.CANNOT_RESTART),
        ("ml/Job/made-again", H.PLACEMENT_NOT_GUARANTEED),
        ("ml/Job/part", H.GANG_NOT_COMPLETE),
        ("ml/Job/part", H.PLACEMENT_NOT_GUARANTEED),
    }
    (stopped,) = made.prediction.interruptions
    assert stopped.lost_gpu_hours > 8 * 3  # all its work since it started
    assert "ended without a checkpoint, as the approval allows" in stopped.because


def test_where_lanes_count_it_is_said_which_one_and_from_where():
    world = snapshot([node("a")], [gang("x", "a", lane="nfs-slow", lane_from_class=True)])
    (stopped,) = foresee_by(world, lane_width=1).prediction.interruptions
    assert stopped.because.endswith("Its checkpoint goes through lane nfs-slow, from StorageClass.")
    (stopped,) = foresee_by(world).prediction.interruptions
    assert "lane" not in stopped.because


def test_owners_that_are_waited_for_are_not_evicted():
    web = gang("web", ["a"], replicated=True, method="", owner=None)
    made = foresee_by(snapshot([node("a")], [web]), wait_for=("ml/Job/web",))
    assert (made.batches, blockers(made)) == ((), {("ml/Job/web", H.WAITED_FOR): ("a",)})


# ------------------------------------------------------------------------------------------------------ durations


@pytest.mark.parametrize("slower", [Durations(upgrade=(480, 1200)), Durations(restart=(600, 900))])
def test_what_was_measured_is_what_is_predicted(slower):
    world = snapshot([node("a")], [gang("x", "a")])
    usual, made = foresee_by(world), foresee_by(world, durations=slower)
    assert made.prediction.durations == slower
    assert made.prediction.lost_gpu_hours > usual.prediction.lost_gpu_hours
    assert made.prediction.finish_p50 > usual.prediction.finish_p50
    assert made.prediction.finish_p95 > made.prediction.finish_p50


def test_while_something_is_blocked_nobody_can_say_when_all_is_over():
    made = foresee_by(snapshot([node("a"), node("b", skip=True)]))
    assert (made.prediction.finish_p50, made.prediction.finish_p95) == (None, None)
    assert made.prediction.lost_gpu_hours > 0
