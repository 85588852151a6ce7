"""Trouble that a fleet makes while it is upgraded, each as one sentence, over virtual time."""

from datetime import timedelta

import pytest

from tests.support.simulated import HOUR, event, fleet, job, rollout
from upgrader.core.model.strategy import Window
from upgrader.simulate import stack
from upgrader.simulate.fleets.fleet import EventKind
from upgrader.simulate.job import JobState
from upgrader.simulate.settings import BEGIN

NEW = stack.make_target(stack.NEW).revision


def reasons(simulation):
    return [(request.job, request.reason) for request in simulation.controller.requests]


def test_a_gang_over_more_nodes_than_the_budget_is_blocked_and_the_rest_goes_on():
    made = fleet("n1", "n2", "n3", "n4", jobs=(job("large", "n1", "n2", "n3"),))
    simulation = rollout(made, budget="50%")
    result = simulation.run()
    assert (result.upgraded, result.interruptions, result.seconds) == (1, 0, None)
    assert result.ended == "Running: 3 node(s) are blocked, see status.blockers"
    assert simulation.world.jobs["large"].state is JobState.TRAINING


def test_of_two_gangs_on_a_node_one_refuses_and_the_one_that_parked_is_released_and_trains_on():
    jobs = (job("parks", "n1", gpus=4, checkpoint=1), job("refuses", "n1", gpus=4, refuses=1))
    simulation = rollout(fleet("n1", jobs=jobs))
    while not all(request.is_over for request in simulation.controller.requests) or not simulation.controller.requests:
        assert simulation.step()
    assert sorted(reasons(simulation)) == [("parks", "FellowNotAcknowledged"), ("refuses", "Refused")]
    assert simulation.world.jobs["parks"].state is JobState.TRAINING
    result = simulation.run()
    assert (result.upgraded, result.interruptions, result.most_interruptions) == (1, 2, 1), "asked again, both accept"


def test_a_gang_that_refuses_n_times_is_asked_n_times_again_and_stopped_once():
    simulation = rollout(fleet("n1", jobs=(job("train", "n1", refuses=3),)))
    result = simulation.run()
    assert [reason for _, reason in reasons(simulation)] == ["Refused", "Refused", "Refused", "Restored"]
    assert (result.interruptions, result.upgraded) == (1, 1)
    assert result.seconds is not None
    assert result.seconds > 3 * 600, "left alone for ten minutes after each"


def test_unequal_steps_stop_nobody():
    made = fleet("n1", "n2", jobs=(job("train", "n1", "n2"),), events=(event(0, EventKind.UNEQUAL_STEPS, "train"),))
    result = rollout(made, horizon=24 * HOUR).run()
    assert (result.interruptions, result.upgraded) == (0, 0)


def test_an_acknowledgement_that_expires_while_another_gang_still_writes_is_asked_for_again():
    """One parks at once for 60 s + 300 s; the other writes for 700 s. The fellow's word has expired by then."""
    jobs = (job("quick", "n1", gpus=4, checkpoint=1, timeout=60), job("slow", "n1", gpus=4, checkpoint=700, timeout=60))
    simulation = rollout(fleet("n1", jobs=jobs), horizon=6 * HOUR)
    ids = set()
    while simulation.step():
        ids |= {(request.job, request.request_id) for request in simulation.controller.requests}
        for one in simulation.world.jobs.values():
            if one.record:
                assert one.state in {JobState.ENDING, JobState.AWAY, JobState.STARTING, JobState.OVER}
    assert len([one for one in ids if one[0] == "quick"]) > 1
    assert simulation.make_result().interruptions in {0, 2}, "both or neither"


def test_gangs_of_one_lane_write_one_after_the_other_where_the_lane_is_one_wide():
    jobs = (job("first", "n1", lane="scratch"), job("second", "n2", lane="scratch"))
    simulation = rollout(fleet("n1", "n2", jobs=jobs), pace={"lane_width": 1})
    most = 0
    while simulation.step():
        writing = [one for one in simulation.world.jobs.values() if one.state is JobState.HALTED and one.answer is None]
        most = max(most, len(writing))
    assert most == 1
    assert [batch.ended_at is not None for batch in simulation.controller.batches] == [True]
    assert simulation.make_result().upgraded == 2


def test_a_job_that_ends_between_ask_and_stop_is_neither_stopped_nor_restarted():
    made = fleet("n1", jobs=(job("train", "n1"),), events=(event(100, EventKind.JOB_ENDS, "train"),))
    simulation = rollout(made)
    result = simulation.run()
    assert reasons(simulation) == [("train", "Finished")]
    assert (result.upgraded, result.interruptions) == (1, 0)


def test_a_job_that_grows_after_it_was_asked_is_released_and_asked_again_whole():
    made = fleet("n1", "n2", jobs=(job("train", "n1"),), events=(event(300, EventKind.JOB_GROWS, "train", "n2"),))
    simulation = rollout(made)
    result = simulation.run()
    assert [(request.members, request.reason) for request in simulation.controller.requests] == [
        (("train-0.1",), "MembersChanged"),
        (("train-0.1", "train-1.1"), "Restored"),
    ]
    assert (result.upgraded, result.interruptions) == (2, 1)


def test_a_gang_that_its_user_resumes_while_we_have_it_stopped_is_watched_and_not_stopped_again():
    simulation = rollout(fleet("n1", jobs=(job("train", "n1"),), events=(event(230, EventKind.JOB_RESUMED, "train"),)))
    result = simulation.run()
    assert (result.interruptions, result.upgraded) == (1, 1)
    assert simulation.world.jobs["train"].record == ""
    assert simulation.world.jobs["train"].state is JobState.TRAINING


def test_a_budget_of_pods_that_never_allows_holds_the_gang():
    made = fleet("n1", "n2", jobs=(job("train", "n1"),), events=(event(0, EventKind.PDB_BLOCKS, "train", "keep"),))
    result = rollout(made).run()
    assert (result.upgraded, result.left, result.interruptions) == (1, 1, 0)


def test_a_budget_of_pods_that_forbids_right_before_the_stop_keeps_the_gang_training():
    made = fleet("n1", jobs=(job("train", "n1"),), events=(event(190, EventKind.PDB_BLOCKS, "train", "keep"),))
    simulation = rollout(made, horizon=3 * HOUR)
    assert simulation.run().interruptions == 0
    assert simulation.world.jobs["train"].state is JobState.TRAINING


def test_nodes_that_join_leave_and_are_renamed_meanwhile():
    events = (
        event(30, EventKind.NODE_LEAVES, "n1"),
        event(70, EventKind.NODE_RENAMED, "n2", "n2b"),
        event(100, EventKind.NODE_JOINS, "n9", "n3"),
    )
    simulation = rollout(fleet("n1", "n2", "n3", events=events))
    simulation.run()
    assert {name: node.revision for name, node in simulation.world.nodes.items()} == {
        "n2b": NEW,
        "n3": NEW,
        "n9": NEW,
    }
    assert {upgrade.node: upgrade.phase.value for upgrade in simulation.controller.upgrades[:2]} == {
        "n1": "NodeDeleted",
        "n2": "NodeDeleted",
    }


def test_a_window_that_closes_in_the_middle_of_a_batch_lets_it_end_and_starts_no_other():
    """Open for the first three minutes of each day: one of two nodes a day."""
    window = Window(start="00:00", end="00:03")
    simulation = rollout(fleet("n1", "n2"), budget="50%", pace={"windows": (window,)})
    result = simulation.run()
    starts = [batch.started_at for batch in simulation.controller.batches]
    ends = [batch.ended_at for batch in simulation.controller.batches]
    assert result.upgraded == 2
    assert all(start % (24 * HOUR) < 180 for start in starts)
    assert any(end is not None and end % (24 * HOUR) > 180 for end in ends), "it ended after the window had closed"


@pytest.mark.parametrize("skew", [-HOUR, HOUR])
def test_an_hour_of_clock_skew_changes_nothing_that_is_judged(skew):
    made = fleet("n1", jobs=(job("train", "n1"),))
    assert rollout(made, skew=skew).run() == rollout(made).run()


def test_a_time_slice_counts_on_the_clock_that_says_when_pods_started():
    """Nodes an hour ahead: the slice of two hours, begun a minute ago, is over after three by our clock."""
    simulation = rollout(fleet("n1", jobs=(job("train", "n1", start=-60, min_runtime=2 * HOUR),)), skew=HOUR)
    simulation.run()
    (request,) = simulation.controller.requests
    assert request.stopped_at is not None
    assert request.stopped_at >= BEGIN + timedelta(seconds=3 * HOUR - 60)


def test_in_a_full_cluster_every_freed_gpu_is_taken_at_once_and_gangs_come_back_to_their_own_nodes():
    jobs = (job("train", "n1", "n2"), job("ends", "n3", end=300))
    simulation = rollout(fleet("n1", "n2", "n3", jobs=jobs), budget="67%", refill=HOUR, horizon=24 * HOUR)
    result = simulation.run()
    assert simulation.world.jobs["train"].places == ("n1", "n2")
    assert simulation.world.jobs["train"].restored == 1
    assert (result.upgraded, result.most_interruptions) == (3, 1)
    assert any(name.startswith("filler") for name in simulation.world.jobs)


def test_128_members_that_acknowledge_at_the_same_moment_are_one_answer():
    names = tuple(f"n{number:03}" for number in range(128))
    simulation = rollout(fleet(*names, jobs=(job("train", *names),)))
    result = simulation.run()
    (request,) = simulation.controller.requests
    assert len(request.acks) == 128
    assert {ack.step for ack in request.acks} == {10 * HOUR + 65}
    assert (result.upgraded, result.interruptions, result.batches) == (128, 1, 1)


def test_a_node_whose_upgrade_fails_is_brought_back_with_its_gang_and_the_plan_pauses():
    made = fleet("n1", "n2", jobs=(job("train", "n1", "n2"),), events=(event(0, EventKind.UPGRADE_FAILS, "n2"),))
    simulation = rollout(made)
    result = simulation.run()
    old = stack.make_target(stack.OLD).revision
    assert result.ended.startswith("Paused: paused: n2: ")
    assert {node.revision for node in simulation.world.nodes.values()} == {old}, "one driver, the one it had"
    assert simulation.world.jobs["train"].state is JobState.TRAINING


def test_a_node_that_is_lost_in_its_upgrade_keeps_nobody_waiting_for_ever():
    made = fleet("n1", "n2", jobs=(job("train", "n1"),), events=(event(260, EventKind.NODE_NOT_READY, "n1"),))
    simulation = rollout(made, tolerated_failures=5)
    simulation.run()
    assert all(one.is_over for one in (*simulation.controller.upgrades, *simulation.controller.requests))
    assert simulation.world.jobs["train"].state is JobState.TRAINING
    assert simulation.world.jobs["train"].places == ("n2",)


def test_a_slow_checkpoint_is_waited_for_until_the_plan_s_time_out_and_then_left_alone():
    made = fleet(
        "n1", jobs=(job("train", "n1", timeout=600),), events=(event(0, EventKind.SLOW_CHECKPOINT, "train", "7200"),)
    )
    result = rollout(made, horizon=12 * HOUR).run()
    assert (result.interruptions, result.upgraded) == (0, 0)
