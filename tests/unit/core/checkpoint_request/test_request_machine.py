"""The next step of a request, sentence by sentence; every arrow of the state machine has one."""

import msgspec
import pytest

from tests.support.request_cases import (
    BOTH,
    DRAINING,
    FENCE,
    LATE_ASK,
    OURS,
    PAST,
    PREPARED,
    RELEASED,
    UNASKED,
    UPGRADED,
    WITHDRAW,
    N,
    R,
    answer,
    around,
    go,
    member,
    stopped,
    view,
)
from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision
from upgrader.core.model.phases import TRANSITIONS, RequestPhase, is_final
from upgrader_dev.simulated.cluster.ports import START

CASES = {
    # ---- Requested
    "a member that was not asked yet is asked": (
        view(R.REQUESTED, present=UNASKED, answers=()),
        PREPARED,
        go(R.REQUESTED, "WaitingForAnswers", "train-a has not answered yet", GangAct.REQUEST),
    ),
    "a member that carries an earlier request is asked anew": (
        view(R.REQUESTED, present=(member("a", request="6"), member("b")), answers=()),
        PREPARED,
        go(R.REQUESTED, "WaitingForAnswers", "train-a has not answered yet", GangAct.REQUEST),
    ),
    "a member that has succeeded is not asked": (
        view(R.REQUESTED, present=(member("a", request="", phase="Succeeded"), member("b")), answers=()),
        PREPARED,
        go(R.REQUESTED, "WaitingForAnswers", "train-b has not answered yet"),
    ),
    "who was asked is waited for": (
        view(R.REQUESTED, answers=(answer("a"),)),
        PREPARED,
        go(R.REQUESTED, "WaitingForAnswers", "train-b has not answered yet"),
    ),
    "who trains on is waited for": (
        view(R.REQUESTED, answers=(answer("a"), answer("b", parked=False))),
        PREPARED,
        go(
            R.REQUESTED,
            "NotParked",
            "train-b continues to train after its checkpoint; only acknowledgements of parked members count",
        ),
    ),
    "all have acknowledged": (
        view(R.REQUESTED, acknowledged_step=None),
        PREPARED,
        go(R.PARKED, "Acknowledged", "2 member(s) parked at step 100"),
    ),
    "a refusal lets the gang train on": (
        view(R.REQUESTED, answers=(answer("a"), answer("b", refused="busy"))),
        PREPARED,
        go(R.WITHDRAWN, "Refused", "train-b refuses: busy", WITHDRAW),
    ),
    "parking ends before all have acknowledged": (
        view(R.REQUESTED, answers=(), stop_before=START),
        PREPARED,
        go(R.EXPIRED, "ParkingExpires", "parking ends within a minute; the request is repeated"),
    ),
    "nobody answers in time": (
        view(R.REQUESTED, answers=()),
        LATE_ASK,
        go(
            R.WITHDRAWN,
            "WaitingForAnswers",
            "no acknowledgement of the whole upgrade group in time (train-a has not answered yet); the gang continues",
            WITHDRAW,
        ),
    ),
    "where parking is over, too, who did not answer is named all the same": (
        view(R.REQUESTED, answers=(), stop_before=START),
        LATE_ASK,
        go(
            R.WITHDRAWN,
            "WaitingForAnswers",
            "no acknowledgement of the whole upgrade group in time (train-a has not answered yet); the gang continues",
            WITHDRAW,
        ),
    ),
    "asked without an upgrade group, its own deadline counts": (
        view(R.REQUESTED, answers=(), deadline=PAST),
        PREPARED,
        go(
            R.WITHDRAWN,
            "WaitingForAnswers",
            "no acknowledgement of the whole upgrade group in time (train-a has not answered yet); the gang continues",
            WITHDRAW,
        ),
    ),
    "the plan is aborted while asking": (
        view(R.REQUESTED),
        around(N.PREPARED, undo=True),
        go(R.WITHDRAWN, "Aborted", "the plan was aborted; the gang continues", WITHDRAW),
    ),
    "a node of the upgrade group cannot be upgraded": (
        view(R.REQUESTED),
        around(N.PREPARED, N.FAILED),
        go(R.WITHDRAWN, "GroupReleased", "the upgrade group was released; the gang continues", WITHDRAW),
    ),
    "the job is deleted while asking": (
        view(R.REQUESTED, owner={"present": False}),
        PREPARED,
        go(R.ENDED, "Deleted", "the job was deleted"),
    ),
    "the job finishes while asking": (
        view(R.REQUESTED, owner={"finished": True}),
        PREPARED,
        go(R.ENDED, "Finished", "the job ended"),
    ),
    "somebody suspends the job while asking": (
        view(R.REQUESTED, owner={"suspended": True}),
        PREPARED,
        go(R.ENDED, "SuspendedByOthers", "another user or controller suspended the job and must resume it", WITHDRAW),
    ),
    # ---- Parked
    "parked members wait for the nodes to be closed": (
        view(R.PARKED),
        around(N.DRAINING, N.TAINTING),
        go(R.PARKED, "Acknowledged", "2 member(s) parked at step 100"),
    ),
    "no gang of an upgrade group is stopped before all hold valid acknowledgements": (
        view(R.PARKED),
        around(N.DRAINING, siblings=(R.REQUESTED,)),
        go(R.PARKED, "WaitingForFellows", "another gang of the upgrade group has not acknowledged yet"),
    ),
    "it is not stopped while a pod is left that may keep its nodes from being upgraded": (
        view(R.PARKED),
        around(N.DRAINING, pods_left="waiting for pod default/web to end first"),
        go(R.PARKED, "WaitingForPods", "not stopped yet: waiting for pod default/web to end first"),
    ),
    "nor does one that came after its stop was intended let it be stopped": (
        view(R.STOPPING),
        around(N.DRAINING, pods_left="waiting for pod default/web to end first"),
        go(R.STOPPING, "WaitingForPods", "not stopped yet: waiting for pod default/web to end first"),
    ),
    "all nodes are closed": (
        view(R.PARKED),
        around(N.DRAINING, N.DRAINING, siblings=(R.PARKED,)),
        go(R.STOPPING, "Stopping", "acknowledged step 100; stopping the whole gang"),
    ),
    "a parked member is replaced": (
        view(R.PARKED, present=(member("a"), member("c"))),
        DRAINING,
        go(
            R.WITHDRAWN,
            "MembersChanged",
            "train-c was added after the request; the request is repeated later",
            WITHDRAW,
        ),
    ),
    "parking ends before the nodes are closed": (
        view(R.PARKED, stop_before=START),
        PREPARED,
        go(R.EXPIRED, "ParkingExpires", "parking ends within a minute; the request is repeated"),
    ),
    "a fellow did not acknowledge": (
        view(R.PARKED),
        around(N.PREPARED, siblings=(R.WITHDRAWN,)),
        go(
            R.WITHDRAWN,
            "FellowNotAcknowledged",
            "another gang on the same nodes did not acknowledge; this gang continues",
            WITHDRAW,
        ),
    ),
    "parked, but the upgrade group was not ready in time": (
        view(R.PARKED),
        LATE_ASK,
        go(
            R.WITHDRAWN,
            "NotAcknowledged",
            "no acknowledgement of the whole upgrade group in time (2 member(s) parked at step "
            "100); the gang continues",
            WITHDRAW,
        ),
    ),
    "the job finishes while parked": (
        view(R.PARKED, owner={"finished": True}),
        PREPARED,
        go(R.ENDED, "Finished", "the job ended"),
    ),
    # ---- Expired
    "after parking ended the gang is asked again": (
        view(R.EXPIRED),
        PREPARED,
        go(R.REQUESTED, "AskedAgain", "the request is repeated with a higher ID", step=None, new_id=True),
    ),
    "after parking ended with nodes closed, all is released": (
        view(R.EXPIRED),
        DRAINING,
        go(R.WITHDRAWN, "ParkingExpires", "parking ended before the upgrade group was ready", WITHDRAW),
    ),
    "the job is deleted after parking ended": (
        view(R.EXPIRED, owner={"present": False}),
        PREPARED,
        go(R.ENDED, "Deleted", "the job was deleted"),
    ),
    # ---- Stopping
    "the stop, judged once more": (
        view(R.STOPPING),
        DRAINING,
        go(R.STOPPING, "Stopping", "stopping; acknowledged step 100", GangAct.STOP),
    ),
    "an answer that cannot be read right now holds the stop": (
        view(R.STOPPING, answers=(answer("a"),)),
        DRAINING,
        go(R.STOPPING, "WaitingForAnswers", "not stopped yet: train-b has not answered yet"),
    ),
    "a member took its parking back": (
        view(R.STOPPING, answers=(answer("a"), answer("b", parked=False))),
        DRAINING,
        go(
            R.WITHDRAWN,
            "NotParked",
            "not stopped: train-b continues to train after its checkpoint; only acknowledgements of "
            "parked members count",
            WITHDRAW,
            FENCE,
        ),
    ),
    "a pod joined before the stop": (
        view(R.STOPPING, present=(*BOTH, member("c"))),
        DRAINING,
        go(
            R.WITHDRAWN,
            "MembersChanged",
            "not stopped: train-c was added after the request; the request is repeated later",
            WITHDRAW,
            FENCE,
        ),
    ),
    "parking ends before the stop": (
        view(R.STOPPING, stop_before=START),
        DRAINING,
        go(
            R.WITHDRAWN,
            "ParkingExpires",
            "not stopped: parking ends within a minute; the request is repeated",
            WITHDRAW,
            FENCE,
        ),
    ),
    "a node was released before the stop": (
        view(R.STOPPING),
        around(N.DRAINING, N.RELEASING),
        go(R.WITHDRAWN, "GroupReleased", "the upgrade group was released before the stop", WITHDRAW, FENCE),
    ),
    "the stop does not succeed in time": (
        view(R.STOPPING, deadline=PAST),
        DRAINING,
        go(R.WITHDRAWN, "NotStopped", "the stop did not succeed in time; the gang continues", WITHDRAW, FENCE),
    ),
    "somebody suspends the job right before our stop": (
        view(R.STOPPING, owner={"suspended": True}),
        DRAINING,
        go(R.ENDED, "SuspendedByOthers", "another user or controller suspended the job and must resume it"),
    ),
    "pods of a stopped gang are waited for": (
        view(R.STOPPING, owner={**OURS, "active": 2}),
        DRAINING,
        go(R.STOPPING, "Stopping", "waiting for 2 pod(s) to end"),
    ),
    "pods are gone and the job has not noticed": (
        stopped(R.STOPPING, owner={"active": 1}),
        DRAINING,
        go(R.STOPPING, "Stopping", "waiting for 1 pod(s) to end"),
    ),
    "all pods are gone": (
        stopped(R.STOPPING),
        DRAINING,
        go(R.STOPPED, "Stopped", "stopped at step 100"),
    ),
    "a pod ignores SIGTERM until the deadline": (
        view(R.STOPPING, owner={**OURS, "active": 1}, deadline=PAST),
        DRAINING,
        go(R.RESTARTING, "StopUndone", "the upgrade group was released while the gang stopped; restarting it"),
    ),
    "the plan is aborted while the gang stops": (
        view(R.STOPPING, owner={**OURS, "active": 1}),
        around(N.DRAINING, undo=True),
        go(R.RESTARTING, "StopUndone", "the upgrade group was released while the gang stopped; restarting it"),
    ),
    "somebody resumes the job right after our stop": (
        view(R.STOPPING, owner={"stopped_by": "r1"}),
        DRAINING,
        go(R.RESTARTING, "ResumedByOthers", "another user or controller resumed the job; waiting for its progress"),
    ),
    "the job finishes while it is stopped": (
        view(R.STOPPING, owner={**OURS, "finished": True}),
        DRAINING,
        go(R.ENDED, "Finished", "the job ended", GangAct.RESUME),
    ),
    # ---- Stopped
    "stopped, while its nodes are upgraded": (
        stopped(R.STOPPED),
        UPGRADED,
        go(R.STOPPED, "Stopped", "stopped at step 100; its nodes are upgraded"),
    ),
    "one node is done, another is not": (
        stopped(R.STOPPED),
        around(N.RELEASING, N.VALIDATING),
        go(R.STOPPED, "Stopped", "stopped at step 100; its nodes are upgraded"),
    ),
    "the upgrades are over": (
        stopped(R.STOPPED),
        around(N.RELEASING, N.FAILED, N.NODE_DELETED),
        go(R.RESTARTING, "Restarting", "the upgrades have ended; restarting the gang"),
    ),
    "the upgrades take too long": (
        stopped(R.STOPPED, restart_by=PAST),
        UPGRADED,
        go(R.RESTARTING, "RestartByPassed", "the upgrades take too long; restarting the gang on other nodes"),
    ),
    "somebody resumes a stopped job": (
        stopped(R.STOPPED, owner={"suspended": False}),
        UPGRADED,
        go(R.RESTARTING, "ResumedByOthers", "another user or controller resumed the job; waiting for its progress"),
    ),
    "somebody takes a stopped job over": (
        stopped(R.STOPPED, owner={"stopped_by": ""}),
        UPGRADED,
        go(R.ENDED, "SuspendedByOthers", "another user or controller suspended the job and must resume it"),
    ),
    "a stopped job is deleted": (
        stopped(R.STOPPED, owner={"present": False}),
        UPGRADED,
        go(R.ENDED, "Deleted", "the job was deleted"),
    ),
    # ---- Restarting
    "the restart": (
        stopped(R.RESTARTING),
        RELEASED,
        go(R.RESTARTING, "Restarting", "restarting the gang", GangAct.RESUME),
    ),
    "the restart is tried on after its deadline": (
        stopped(R.RESTARTING, deadline=PAST),
        RELEASED,
        go(R.RESTARTING, "Restarting", "restarting the gang", GangAct.RESUME),
    ),
    "our record goes also where somebody else resumed the job": (
        view(R.RESTARTING, owner={"stopped_by": "r1"}),
        RELEASED,
        go(R.RESTARTING, "Restarting", "restarting the gang", GangAct.RESUME),
    ),
    "not every member is past the step": (
        view(R.RESTARTING, progress=(101, 100)),
        RELEASED,
        go(R.RESTARTING, "Restarting", "1 of 2 member(s) past step 100"),
    ),
    "not every member is there": (
        view(R.RESTARTING, progress=(101,)),
        RELEASED,
        go(R.RESTARTING, "Restarting", "1 of 2 member(s) past step 100"),
    ),
    "every member is past the step": (
        view(R.RESTARTING, progress=(101, 102)),
        RELEASED,
        go(R.RESTORED, "Restored", "every member is past step 100"),
    ),
    "a gang that does not come back": (
        view(R.RESTARTING, progress=(None, 100), deadline=PAST),
        RELEASED,
        go(R.ENDED, "NotRestored", "the gang did not pass step 100 in time"),
    ),
    "the job finishes after its restart": (
        view(R.RESTARTING, owner={"finished": True}),
        RELEASED,
        go(R.ENDED, "Finished", "the job ended"),
    ),
}


@pytest.mark.parametrize(("seen", "group", "expected"), CASES.values(), ids=CASES)
def test_the_next_step_of_a_request(seen, group, expected):
    assert request_machine.decide(seen, group, START) == expected


def test_every_arrow_has_its_sentence():
    arrows = {(row.phase, to) for row in TRANSITIONS if row.machine == "CheckpointRequest" for to in row.to}
    taken = {(seen.phase, expected.phase) for seen, _, expected in CASES.values() if seen.phase is not expected.phase}
    assert taken == arrows


@pytest.mark.parametrize("phase", [phase for phase in RequestPhase if is_final(phase)])
def test_an_ended_request_is_left_alone(phase):
    assert request_machine.decide(view(phase), RELEASED, START) == GangDecision(phase=phase, step=100)


def test_a_gang_without_an_acknowledged_step_is_restored_by_any_step():
    seen = msgspec.structs.replace(view(R.RESTARTING, progress=(0, 0)), acknowledged_step=None)
    assert request_machine.decide(seen, RELEASED, START).phase is R.RESTORED
