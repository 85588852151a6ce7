"""Requests with owners that are told by another object, confirm late, wait in a queue, or are under budgets."""

import pytest

from tests.support.request_cases import (
    DRAINING,
    FENCE,
    PAST,
    RELEASED,
    WITHDRAW,
    N,
    R,
    around,
    go,
    member,
    stopped,
    view,
)
from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.request_state import GangAct
from upgrader_dev.simulated.cluster.ports import START

ORDERED = {"stopped_by": "r1", "ordered": True}
BUDGET = "PodDisruptionBudget web does not allow its disruption"
QUEUED = "its queue has not admitted it"

CASES = {
    "all pods are gone and the owner's controller has not said so": (
        stopped(R.STOPPING, owner={"unconfirmed": True}),
        DRAINING,
        go(R.STOPPING, "Stopping", "waiting for its controller to confirm the stop"),
    ),
    "a pod that joined the gang after the stop is waited for too": (
        stopped(R.STOPPING, present=(member("c"),)),
        DRAINING,
        go(R.STOPPING, "Stopping", "waiting for 1 pod(s) to end"),
    ),
    "an order to stop is given again until it is taken": (
        view(R.STOPPING, owner=ORDERED),
        DRAINING,
        go(R.STOPPING, "Stopping", "stop requested; waiting for its controller", GangAct.STOP),
    ),
    "an order to stop is not given again to a gang that trains on": (
        view(R.STOPPING, owner=ORDERED, stop_before=PAST),
        DRAINING,
        go(R.RESTARTING, "StopUndone", "not stopped: parking ends within a minute; the request is repeated"),
    ),
    "an order to stop is not given again while nobody answers": (
        view(R.STOPPING, owner=ORDERED, answers=()),
        DRAINING,
        go(R.STOPPING, "Stopping", "the stop is not repeated yet: train-a has not answered yet"),
    ),
    "an order to stop an expendable gang is given again too": (
        view(R.STOPPING, owner=ORDERED, answers=(), acknowledged_step=None, method="none"),
        around(N.DRAINING, expendable=frozenset({"default/Job/train"})),
        go(R.STOPPING, "Stopping", "stop requested; waiting for its controller", GangAct.STOP, step=None),
    ),
    "an order to stop that is not taken is given up": (
        view(R.STOPPING, owner=ORDERED, deadline=PAST),
        DRAINING,
        go(R.RESTARTING, "StopUndone", "the upgrade group was released before the gang stopped"),
    ),
    "a budget that allows nothing right before the stop is waited for": (
        view(R.STOPPING, forbidden=BUDGET),
        DRAINING,
        go(R.STOPPING, "DisruptionForbidden", f"not stopped yet: {BUDGET}"),
    ),
    "a fellow that a budget keeps is waited for, so that nobody is stopped for nothing": (
        view(R.STOPPING),
        around(N.DRAINING, siblings=(R.STOPPING,), forbidden=BUDGET),
        go(R.STOPPING, "WaitingForFellows", f"not stopped yet: {BUDGET}"),
    ),
    "a fellow that is not about to be stopped yet is waited for": (
        view(R.STOPPING),
        around(N.DRAINING, siblings=(R.PARKED,)),
        go(R.STOPPING, "WaitingForFellows", "not stopped yet: another gang is not ready to be stopped"),
    ),
    "a budget that never allows it withdraws the request": (
        view(R.STOPPING, forbidden=BUDGET, deadline=PAST),
        DRAINING,
        go(R.WITHDRAWN, "NotStopped", f"{BUDGET}; the gang continues", WITHDRAW, FENCE),
    ),
    "a budget that allows nothing until parking ends withdraws the request": (
        view(R.STOPPING, forbidden=BUDGET, stop_before=PAST),
        DRAINING,
        go(
            R.WITHDRAWN,
            "ParkingExpires",
            f"not stopped: {BUDGET}; meanwhile parking ends within a minute; the request is repeated",
            WITHDRAW,
            FENCE,
        ),
    ),
    "a gang whose place the queue gave away waits for it": (
        view(R.RESTARTING, owner={"queued": QUEUED}, present=(), progress=()),
        RELEASED,
        go(R.RESTARTING, "WaitingForQueue", f"resumed; {QUEUED}"),
    ),
    "a gang that the queue never lets run again": (
        view(R.RESTARTING, owner={"queued": QUEUED}, present=(), progress=(), deadline=PAST),
        RELEASED,
        go(R.ENDED, "NotRestored", f"the gang did not pass step 100 in time: {QUEUED}"),
    ),
}


@pytest.mark.parametrize(("before", "group", "expected"), CASES.values(), ids=CASES)
def test_a_request_goes_on(before, group, expected):
    assert request_machine.decide(before, group, START) == expected
