"""The next step of a request, sentence by sentence; every arrow of the state machine has one."""

import msgspec
import pytest

from tests.support.request_cases import (
    BOTH,
    DRAINING,
    FENCE,
    PAST,
    RELEASED,
    STOPPED_BY_REQUEST,
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
from tests.support.request_sentences_before_stop import BEFORE_STOP
from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision
from upgrader.core.model.phases import TRANSITIONS, RequestPhase, is_final
from upgrader_dev.simulated.cluster.ports import START

CASES = BEFORE_STOP | {
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
        view(R.STOPPING, owner={**STOPPED_BY_REQUEST, "active": 2}),
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
        view(R.STOPPING, owner={**STOPPED_BY_REQUEST, "active": 1}, deadline=PAST),
        DRAINING,
        go(R.RESTARTING, "StopUndone", "the upgrade group was released while the gang stopped; restarting it"),
    ),
    "the plan is aborted while the gang stops": (
        view(R.STOPPING, owner={**STOPPED_BY_REQUEST, "active": 1}),
        around(N.DRAINING, undo=True),
        go(R.RESTARTING, "StopUndone", "the upgrade group was released while the gang stopped; restarting it"),
    ),
    "somebody resumes the job right after our stop": (
        view(R.STOPPING, owner={"stopped_by": "r1"}),
        DRAINING,
        go(R.RESTARTING, "ResumedByOthers", "another user or controller resumed the job; waiting for its progress"),
    ),
    "the job finishes while it is stopped": (
        view(R.STOPPING, owner={**STOPPED_BY_REQUEST, "finished": True}),
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
