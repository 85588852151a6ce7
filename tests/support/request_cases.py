"""What tests of core/checkpoint_request/request_machine are made of: gangs, answers, groups, decisions."""

from datetime import timedelta

from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.checkpoint_request.delivery_failures import Miss
from upgrader.core.checkpoint_request.request_state import GangAct, GangDecision, GroupOfGang, OwnerFacts, RequestView
from upgrader.core.model.fleet import MemberFacts
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader_dev.simulated.cluster.ports import START

R, N = RequestPhase, NodePhase
PAST, FUTURE = START - timedelta(seconds=1), START + timedelta(seconds=600)
STOPPED_BY_REQUEST = {"suspended": True, "stopped_by": "r1"}


def member(uid, **changes):
    facts = {"pod": f"train-{uid}", "uid": uid, "namespace": "default", "node": "n", "container": "t", "request": "7"}
    return MemberFacts(**{**facts, "phase": "Running", "volume_paths": ("/data",), **changes})


def answer(uid, **changes):
    said = {"pod_uid": uid, "request_id": 7, "step": 100, "uri": "/data/c", "parked": True}
    return Ack(**{**said, **changes})


def miss(**changes):
    return Miss(**{"pod_uid": "a", "at": START - timedelta(seconds=9), "why": "no program listens", **changes})


BOTH = (member("a"), member("b"))
SAID = (answer("a"), answer("b"))


def view(phase, *, owner=None, **changes):
    facts = {
        "name": "r1",
        "gang": "default/Job/train",
        "phase": phase,
        "deadline": FUTURE,
        "request_id": 7,
        "asked_at": START - timedelta(seconds=10),
        "stop_before": FUTURE,
        "restart_by": FUTURE,
        "members": ("a", "b"),
        "present": BOTH,
        "answers": SAID,
        "owner": OwnerFacts(**{"active": 2, "wanted": 2, **(owner or {})}),
        "acknowledged_step": 100,
    }
    return RequestView(**{**facts, **changes})


def stopped(phase, *, owner=None, **changes):
    """A gang that we stopped, all its pods gone."""
    return view(phase, owner={**STOPPED_BY_REQUEST, "active": 0, **(owner or {})}, **{"present": (), **changes})


def around(*nodes, **changes):
    return GroupOfGang(nodes=nodes, **changes)


def go(phase, reason, message, *acts, step=100, new_id=False):
    return GangDecision(phase=phase, reason=reason, message=message, acts=acts, step=step, new_id=new_id)


PREPARED, DRAINING = around(N.PREPARED), around(N.DRAINING)
EXPENDABLE = around(N.PREPARED, expendable=frozenset({"default/Job/train"}))
UPGRADED, RELEASED = around(N.UPGRADING), around(N.RELEASING)
FENCE = GangAct.FENCE
WITHDRAW = GangAct.WITHDRAW
UNASKED = (member("a", request=""), member("b"))
LATE_ASK = around(N.PREPARED, ask_until=PAST)
