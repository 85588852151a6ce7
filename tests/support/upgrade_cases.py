"""What tests of core.node_upgrade are made of: nodes at each station of their upgrade, groups, decisions."""

from datetime import timedelta

from tests.support.facts import node as node_facts
from upgrader.core.model.phases import NodePhase, RequestPhase, UpgradeReason
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.core.node_upgrade.upgrade_state import (
    Decision,
    NodeView,
    OperandFacts,
    OtherPod,
    PodOutcome,
    PodResult,
    RequestFacts,
)
from upgrader_dev.simulated.cluster.ports import START

N, R = NodePhase, RequestPhase
PAST, FUTURE = START - timedelta(seconds=1), START + timedelta(seconds=600)

# What a node shows at each station of its upgrade.
UNTOUCHED = {"driver_key": "k-old", "plugin_key": "p-old", "operands": "on", "revision": "old"}
CLOSED = {**UNTOUCHED, "claimed_by": "u1"}
SWITCHED_OFF = {"driver_key": "none", "plugin_key": "p-old", "operands": "off", "revision": "", "claimed_by": "u1"}
SILENT = {**SWITCHED_OFF, "ready": False}
DRIVER_ON = {**SWITCHED_OFF, "driver_key": "k-new", "plugin_key": "p-new"}
WHOLE = {**DRIVER_ON, "operands": "on"}
AFTER_RELEASE = {**WHOLE, "claimed_by": "", "released_by": "u1", "revision": "new"}

DONE = PodResult(outcome=PodOutcome.SUCCEEDED, result=OrderResult(reason=Reason.DONE, message="well"))
RUNS = PodResult(outcome=PodOutcome.WAITING)
BUSY = PodResult(outcome=PodOutcome.FAILED, result=OrderResult(reason=Reason.BUSY, message="in use by pid 7"))
BLOCKED = PodResult(outcome=PodOutcome.WAITING, result=BUSY.result, trouble="in use by pid 7")
NO_IMAGE = PodResult(outcome=PodOutcome.FAILED, trouble="image r/driver cannot be pulled")
ONE = OperandFacts(pods=1, ready=1)
STARTING = OperandFacts(pods=1)


def view(phase, node=None, **changes):
    facts = {
        "name": "v1",
        "uid": "u1",
        "reason": UpgradeReason.ROLLOUT,
        "phase": phase,
        "phase_since": START - timedelta(seconds=10),
        "deadline": FUTURE,
        "node": None if node is None else node_facts("node-1", **node),
        "source_key": "k-old",
        "driver_key": "k-new",
        "plugin_key": "p-new",
        "revision": "new",
        "expected_gpus": 8,
    }
    return NodeView(**{**facts, **changes})


def sibling(phase, **changes):
    return view(phase, CLOSED, **{"name": "v2", "uid": "u2", **changes})


def gang(phase, **changes):
    return RequestFacts(**{"name": "r1", "gang": "default/Job/train", "phase": phase, "message": "why", **changes})


def pod(name="stranger", **changes):
    return OtherPod(**{"name": name, "namespace": "default", "uid": name, **changes})


def around(*siblings, requests=(), gangs=None, undo=False):
    """The group without the node itself, which the test puts first."""
    return siblings, requests, len(requests) if gangs is None else gangs, undo


ALONE = around()
MEMBER, EVICTABLE, STRANGER = pod("m", member=True), pod("web", evictable=True), pod()
GONE_MESSAGE = "the node was deleted, or another node of that name joined"
GIVE_UP = (
    "the revert failed: operands stay off and the taint stays; repair the node, then delete NodeUpgrade v1 to have "
    "the node installed again"
)
BACK = {"reverting": True, "failure": "UpgradeFailed", "driver_key": "k-old", "plugin_key": "p-old"}
REPAIR = {"reason": UpgradeReason.REPAIR}


def stay(phase, message, *acts, **more):
    return Decision(phase=phase, message=message, acts=acts, **more)


def go(phase, message, failure="", **more):
    return Decision(phase=phase, message=message, failure=failure, **more)
