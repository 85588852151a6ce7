"""The next step of a request until its gang is stopped: sentence, request, group, decision."""

from tests.support.request_cases import (
    DRAINING,
    LATE_ASK,
    PAST,
    PREPARED,
    UNASKED,
    WITHDRAW,
    N,
    R,
    answer,
    around,
    go,
    member,
    view,
)
from upgrader.core.checkpoint_request.request_state import GangAct
from upgrader_dev.simulated.cluster.ports import START

BEFORE_STOP = {
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
}
