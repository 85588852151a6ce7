"""What a job declares about being asked, and what the approval says, in the next step of a request."""

from datetime import timedelta

import pytest
from msgspec import structs

from tests.support.request_cases import (
    DRAINING,
    EXPENDABLE,
    FENCE,
    LATE_ASK,
    PREPARED,
    RELEASED,
    UNASKED,
    WITHDRAW,
    N,
    R,
    answer,
    around,
    go,
    member,
    miss,
    view,
)
from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision
from upgrader_dev.simulated.cluster.ports import START

CASES = {
    "others of its lane write their checkpoints": (
        view(R.REQUESTED, present=UNASKED, answers=(), acknowledged_step=None, lane="fast"),
        around(N.PREPARED, turns=frozenset({"r2"})),
        go(
            R.REQUESTED,
            "WaitingForLane",
            "other gangs write checkpoints to lane fast; the request waits for them",
            step=None,
        ),
    ),
    "nobody knows its lane": (
        view(R.REQUESTED, present=UNASKED, answers=(), acknowledged_step=None),
        around(N.PREPARED, turns=frozenset()),
        go(
            R.REQUESTED,
            "WaitingForLane",
            "other gangs write checkpoints to the unnamed lane; the request waits for them",
            step=None,
        ),
    ),
    "its turn comes, which is written before it is asked": (
        view(R.REQUESTED, present=UNASKED, answers=(), acknowledged_step=None),
        around(N.PREPARED, turns=frozenset({"r1"})),
        GangDecision(phase=R.REQUESTED, reason="LaneFree", message="the lane is free", admitted=True),
    ),
    "its turn has come": (
        view(R.REQUESTED, present=UNASKED, answers=(), acknowledged_step=None, admitted_at=START),
        around(N.PREPARED, turns=frozenset({"r1"})),
        go(R.REQUESTED, "WaitingForAnswers", "train-a has not answered yet", GangAct.REQUEST, step=None),
    ),
    "a refusal that says for how long": (
        view(R.REQUESTED, answers=(answer("a", refused="no", retry_after_seconds=60), answer("b"))),
        PREPARED,
        structs.replace(go(R.WITHDRAWN, "Refused", "train-a refuses: no", WITHDRAW), retry_after_seconds=60),
    ),
    "no answer in time, and its nodes are to be left out then": (
        view(R.REQUESTED, answers=(), on_deadline="skip-node"),
        LATE_ASK,
        go(
            R.WITHDRAWN,
            "NodesLeftOut",
            "no acknowledgement of the whole upgrade group in time (train-a has not answered yet); the gang "
            "continues; the plan skips its nodes (on-deadline: skip-node)",
            WITHDRAW,
        ),
    ),
    "no answer in time, and the approval does not name it": (
        view(R.REQUESTED, answers=(), on_deadline="terminate"),
        LATE_ASK,
        go(
            R.WITHDRAWN,
            "WaitingForAnswers",
            "no acknowledgement of the whole upgrade group in time (train-a has not answered yet); the gang "
            "continues; on-deadline: terminate applies only if the approval names the gang expendable",
            WITHDRAW,
        ),
    ),
    "a gang whose fellow was released right before the stop is not stopped for nothing": (
        view(R.STOPPING),
        around(N.DRAINING, siblings=(R.STOPPING, R.WITHDRAWN)),
        go(
            R.WITHDRAWN,
            "FellowNotAcknowledged",
            "the request to another gang on the same nodes was withdrawn",
            WITHDRAW,
            FENCE,
        ),
    ),
    "members that somebody else asked later are left to that one": (
        view(R.REQUESTED, present=(member("a", request="8"), member("b", request="8")), answers=()),
        around(N.PREPARED),
        go(R.REQUESTED, "WaitingForAnswers", "train-a has not answered yet"),
    ),
    "an expendable gang has as long as a checkpoint may take": (
        view(R.REQUESTED, answers=(), acknowledged_step=None, timeout_seconds=11),
        EXPENDABLE,
        go(R.REQUESTED, "WaitingForAnswers", "train-a has not answered yet", step=None),
    ),
    "an expendable gang took longer than that": (
        view(R.REQUESTED, answers=(), acknowledged_step=None, timeout_seconds=10),
        EXPENDABLE,
        go(
            R.PARKED,
            "Expendable",
            "named expendable by the approval (train-a has not answered yet)",
            step=None,
        ),
    ),
    "an expendable gang whose turn has just come": (
        view(R.REQUESTED, answers=(), acknowledged_step=None, timeout_seconds=10, admitted_at=START),
        EXPENDABLE,
        go(R.REQUESTED, "WaitingForAnswers", "train-a has not answered yet", step=None),
    ),
    "an expendable gang refuses": (
        view(R.REQUESTED, answers=(answer("a", refused="no"), answer("b")), acknowledged_step=None),
        EXPENDABLE,
        go(R.PARKED, "Expendable", "named expendable by the approval (train-a refuses: no)", step=None),
    ),
    "a member that did not hear it is not asked again in the same breath": (
        view(R.REQUESTED, present=UNASKED, answers=(), misses=(miss(at=START - timedelta(seconds=4)),)),
        PREPARED,
        go(R.REQUESTED, "Unheard", ""),
    ),
    "a member that did not hear it once is asked again": (
        view(R.REQUESTED, present=UNASKED, answers=(), misses=(miss(at=START - timedelta(seconds=5)),)),
        PREPARED,
        go(R.REQUESTED, "WaitingForAnswers", "train-a has not answered yet", GangAct.REQUEST),
    ),
    "a member that did not hear it twice in a row rules the way out": (
        view(R.REQUESTED, present=UNASKED, answers=(), misses=(miss(times=2),), fallbacks=("file", "api")),
        PREPARED,
        structs.replace(
            go(
                R.REQUESTED,
                "NextMethod",
                "no program listens; the request to all members is repeated by file instead",
                WITHDRAW,
            ),
            method="file",
        ),
    ),
    "the last way is ruled out": (
        view(R.REQUESTED, present=UNASKED, answers=(), acknowledged_step=None, misses=(miss(times=2),)),
        PREPARED,
        go(
            R.WITHDRAWN,
            "Unaskable",
            "no checkpoint method reaches the gang (no program listens); the gang continues",
            WITHDRAW,
            step=None,
        ),
    ),
    "the last way is ruled out, and its nodes are to be left out then": (
        view(
            R.REQUESTED,
            present=UNASKED,
            answers=(),
            acknowledged_step=None,
            misses=(miss(times=2),),
            on_deadline="skip-node",
        ),
        PREPARED,
        go(
            R.WITHDRAWN,
            "NodesLeftOut",
            "no checkpoint method reaches the gang (no program listens); the gang continues; the plan skips its nodes "
            "(on-deadline: skip-node)",
            WITHDRAW,
            step=None,
        ),
    ),
    "the last way to ask an expendable gang is ruled out": (
        view(R.REQUESTED, present=UNASKED, answers=(), acknowledged_step=None, misses=(miss(times=2),)),
        EXPENDABLE,
        go(R.PARKED, "Expendable", "named expendable by the approval (no program listens)", step=None),
    ),
    "an expendable gang that cannot be asked": (
        view(R.REQUESTED, present=UNASKED, answers=(), acknowledged_step=None, method="none"),
        EXPENDABLE,
        go(R.PARKED, "Expendable", "named expendable by the approval (train-a has not answered yet)", step=None),
    ),
    "an expendable gang that is not complete": (
        view(R.REQUESTED, present=(member("a"),), answers=(), acknowledged_step=None, method="none"),
        EXPENDABLE,
        go(
            R.WITHDRAWN,
            "MembersChanged",
            "a member was deleted after the request; the request is repeated later",
            WITHDRAW,
            step=None,
        ),
    ),
    "an expendable gang, and all nodes are closed": (
        view(R.PARKED, answers=(), acknowledged_step=None, method="none"),
        around(N.DRAINING, expendable=frozenset({"default/Job/train"})),
        go(
            R.STOPPING,
            "Expendable",
            "named expendable by the approval (train-a has not answered yet); stopping the whole gang",
            step=None,
        ),
    ),
    "the approval names it no longer": (
        view(R.PARKED, answers=(), acknowledged_step=None, method="none"),
        DRAINING,
        go(R.WITHDRAWN, "WaitingForAnswers", "train-a has not answered yet", WITHDRAW, step=None),
    ),
    "an expendable gang that acknowledged and whose parking ends is asked again": (
        view(R.PARKED, stop_before=START),
        EXPENDABLE,
        go(R.EXPIRED, "ParkingExpires", "parking ends within a minute; the request is repeated"),
    ),
    "the stop of an expendable gang": (
        view(R.STOPPING, answers=(), acknowledged_step=None, method="none"),
        around(N.DRAINING, expendable=frozenset({"default/Job/train"})),
        go(
            R.STOPPING,
            "Expendable",
            "stopping; named expendable by the approval (train-a has not answered yet)",
            GangAct.STOP,
            step=None,
        ),
    ),
    "the approval names it no longer, right before the stop": (
        view(R.STOPPING, answers=(answer("a", refused="no"), answer("b")), acknowledged_step=None),
        DRAINING,
        go(R.WITHDRAWN, "Refused", "not stopped: train-a refuses: no", WITHDRAW, FENCE, step=None),
    ),
    "a gang that cannot say how far it is runs again": (
        view(R.RESTARTING, progress=(None, None), method="none", acknowledged_step=None),
        RELEASED,
        go(R.RESTORED, "Restored", "every member runs again; its checkpoint method reports no progress", step=None),
    ),
}


@pytest.mark.parametrize(("seen", "group", "expected"), CASES.values(), ids=CASES)
def test_what_was_declared_or_approved_counts(seen, group, expected):
    assert request_machine.decide(seen, group, START) == expected
