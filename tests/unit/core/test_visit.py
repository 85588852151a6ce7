"""The next step of a visit, sentence by sentence; every arrow of the state machine has one."""

from datetime import timedelta

import pytest

from tests.support.facts import node as node_facts
from tests.support.world import START
from upgrader.core import visit
from upgrader.core.orders import OrderResult, Reason
from upgrader.core.phases import TRANSITIONS, NodePhase, RequestPhase, VisitReason, ends
from upgrader.core.visit_facts import (
    Act,
    ClosureView,
    Decision,
    Errand,
    NodeView,
    OperandFacts,
    OtherPod,
    Outcome,
    RequestFacts,
)

N, R = NodePhase, RequestPhase
PAST, FUTURE = START - timedelta(seconds=1), START + timedelta(seconds=600)

# What a node shows at each station of its visit.
UNTOUCHED = {"driver_key": "k-old", "plugin_key": "p-old", "operands": "on", "revision": "old"}
CLOSED = {**UNTOUCHED, "visit": "u1"}
SWITCHED_OFF = {"driver_key": "none", "plugin_key": "p-old", "operands": "off", "revision": "", "visit": "u1"}
DRIVER_ON = {**SWITCHED_OFF, "driver_key": "k-new", "plugin_key": "p-new"}
WHOLE = {**DRIVER_ON, "operands": "on"}
GIVEN_BACK = {**WHOLE, "visit": "", "revision": "new"}

DONE = Errand(outcome=Outcome.SUCCEEDED, result=OrderResult(reason=Reason.DONE, message="well"))
RUNS = Errand(outcome=Outcome.WAITING)
BUSY = Errand(outcome=Outcome.FAILED, result=OrderResult(reason=Reason.BUSY, message="in use by pid 7"))
NO_IMAGE = Errand(outcome=Outcome.FAILED, trouble="image r/driver cannot be pulled")
ONE = OperandFacts(pods=1, ready=1)
STARTING = OperandFacts(pods=1)


def view(phase, node=None, **changes):
    facts = {
        "name": "v1",
        "uid": "u1",
        "reason": VisitReason.ROLLOUT,
        "phase": phase,
        "phase_since": START - timedelta(seconds=10),
        "deadline": FUTURE,
        "node": None if node is None else node_facts("node-1", **node),
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
    """The closure without the node itself, which the test puts first."""
    return siblings, requests, len(requests) if gangs is None else gangs, undo


ALONE = around()
MEMBER, EVICTABLE, STRANGER = pod("m", member=True), pod("web", evictable=True), pod()
GONE_MESSAGE = "the node was deleted, or another node of that name joined"
GIVE_UP = (
    "this was the revert: operands stay off and the taint stays, a person must look; "
    "delete NodeUpgrade v1 to have the node installed anew"
)
BACK = {"reverting": True, "failure": "VisitFailed", "driver_key": "k-old", "plugin_key": "p-old"}
BRING_BACK = {"reason": VisitReason.BRING_BACK}


def stay(phase, message, *acts, **more):
    return Decision(phase=phase, message=message, acts=acts, **more)


def go(phase, message, failure="", **more):
    return Decision(phase=phase, message=message, failure=failure, **more)


CASES = {
    # ---- Pending
    "its stack was deleted before it began": (
        view(N.PENDING, UNTOUCHED, reason=VisitReason.INSTALL),
        around(undo=True),
        go(N.FAILED, "the stack was deleted before the node was touched", "Aborted"),
    ),
    "a visit begins with preparing": (view(N.PENDING, UNTOUCHED), ALONE, go(N.PREPARING, "")),
    "aborted before it began": (
        view(N.PENDING, UNTOUCHED),
        around(undo=True),
        go(N.FAILED, "the plan was aborted before the node was touched", "Aborted"),
    ),
    "the node is deleted before it began": (view(N.PENDING), ALONE, go(N.GONE, GONE_MESSAGE)),
    # ---- Preparing
    "the prepare pod is started": (
        view(N.PREPARING, UNTOUCHED),
        ALONE,
        stay(N.PREPARING, "starting the prepare pod", Act.PREPARE),
    ),
    "a bring-back is tainted before it is prepared": (
        view(N.PREPARING, UNTOUCHED, **BRING_BACK),
        ALONE,
        stay(N.PREPARING, "starting the prepare pod", Act.CLOSE, Act.PREPARE),
    ),
    "the prepare pod runs": (
        view(N.PREPARING, UNTOUCHED, prepare=RUNS),
        ALONE,
        stay(N.PREPARING, "pulling images and checking the node"),
    ),
    "an image cannot be pulled yet": (
        view(N.PREPARING, UNTOUCHED, prepare=Errand(outcome=Outcome.WAITING, trouble="image r/driver: no route")),
        ALONE,
        stay(N.PREPARING, "image r/driver: no route"),
    ),
    "the node can be visited": (
        view(N.PREPARING, UNTOUCHED, prepare=DONE),
        ALONE,
        go(N.PREPARED, "everything for the visit is on the node"),
    ),
    "an image is not there": (
        view(N.PREPARING, UNTOUCHED, prepare=NO_IMAGE),
        ALONE,
        go(N.FAILED, "image r/driver cannot be pulled", "NotPrepared"),
    ),
    "preparing takes too long": (
        view(N.PREPARING, UNTOUCHED, prepare=RUNS, deadline=START),
        ALONE,
        go(
            N.FAILED,
            "Preparing took longer than its deadline: pulling images and checking the node",
            "NotPrepared",
        ),
    ),
    "a bring-back that cannot be prepared gives up its taint": (
        view(N.PREPARING, CLOSED, prepare=NO_IMAGE, **BRING_BACK),
        ALONE,
        go(N.RELEASING, "image r/driver cannot be pulled", "NotPrepared"),
    ),
    "aborted while preparing": (
        view(N.PREPARING, UNTOUCHED, prepare=RUNS),
        around(undo=True),
        go(N.FAILED, "the plan was aborted before the node was touched", "Aborted"),
    ),
    "the node is deleted while preparing": (view(N.PREPARING), ALONE, go(N.GONE, GONE_MESSAGE)),
    # ---- Prepared
    "a sibling is not prepared yet": (
        view(N.PREPARED, UNTOUCHED),
        around(sibling(N.PREPARING)),
        stay(N.PREPARED, "waiting for 1 node(s) of the closure to be prepared"),
    ),
    "a sibling cannot be prepared": (
        view(N.PREPARED, UNTOUCHED),
        around(sibling(N.FAILED)),
        go(N.FAILED, "v2 of the same closure cannot be visited", "SiblingFailed"),
    ),
    "its gangs are still to be asked": (
        view(N.PREPARED, UNTOUCHED),
        around(gangs=1),
        stay(N.PREPARED, "waiting for the acknowledgement of gangs still to be asked"),
    ),
    "a gang has not acknowledged yet": (
        view(N.PREPARED, UNTOUCHED),
        around(requests=(gang(R.PARKED), gang(R.ASKING, gang="default/Job/other"))),
        stay(N.PREPARED, "waiting for the acknowledgement of default/Job/other"),
    ),
    "a gang is asked again": (
        view(N.PREPARED, UNTOUCHED),
        around(requests=(gang(R.EXPIRED),)),
        stay(N.PREPARED, "waiting for the acknowledgement of default/Job/train"),
    ),
    "a gang refuses": (
        view(N.PREPARED, UNTOUCHED),
        around(requests=(gang(R.WITHDRAWN),)),
        go(N.FAILED, "default/Job/train: why", "NotAcknowledged"),
    ),
    "all gangs have acknowledged or ended": (
        view(N.PREPARED, UNTOUCHED),
        around(sibling(N.PREPARED), requests=(gang(R.PARKED), gang(R.ENDED))),
        go(N.CLOSING, "all gangs of the closure have acknowledged"),
    ),
    "a node without gangs is closed at once": (
        view(N.PREPARED, UNTOUCHED),
        ALONE,
        go(N.CLOSING, "all gangs of the closure have acknowledged"),
    ),
    "no gang acknowledges in time": (
        view(N.PREPARED, UNTOUCHED, deadline=START),
        around(requests=(gang(R.ASKING),)),
        go(
            N.FAILED,
            "Prepared took longer than its deadline: waiting for the acknowledgement of default/Job/train",
            "NotAcknowledged",
        ),
    ),
    "a prepared bring-back gives up its taint with its sibling": (
        view(N.PREPARED, CLOSED, **BRING_BACK),
        around(sibling(N.RELEASING)),
        go(N.RELEASING, "v2 of the same closure cannot be visited", "SiblingFailed"),
    ),
    "the node is deleted when prepared": (view(N.PREPARED), ALONE, go(N.GONE, GONE_MESSAGE)),
    # ---- Closing
    "the node is tainted": (
        view(N.CLOSING, UNTOUCHED),
        ALONE,
        stay(N.CLOSING, "tainting the node", Act.CLOSE),
    ),
    "right after the taint pods are looked at once more": (
        view(N.CLOSING, CLOSED, phase_since=START - timedelta(seconds=4), others=(MEMBER, EVICTABLE)),
        around(requests=(gang(R.PARKED),)),
        stay(N.CLOSING, "listing pods once more before anything is stopped"),
    ),
    "five seconds later no new pod is there": (
        view(N.CLOSING, CLOSED, phase_since=START - timedelta(seconds=5), others=(MEMBER, EVICTABLE)),
        around(requests=(gang(R.PARKED),)),
        go(N.DRAINING, "closed; no new GPU pod"),
    ),
    "a pod with GPUs appeared after the acknowledgements": (
        view(N.CLOSING, CLOSED, others=(MEMBER, STRANGER)),
        around(requests=(gang(R.PARKED),)),
        go(
            N.RELEASING,
            "pod default/stranger with GPUs appeared after the acknowledgements; all are let go",
            "NewGpuPod",
        ),
    ),
    "a bring-back waits for such a pod later": (
        view(N.CLOSING, CLOSED, others=(STRANGER,), **BRING_BACK),
        ALONE,
        go(N.DRAINING, "closed; no new GPU pod"),
    ),
    "an acknowledgement is lost while closing": (
        view(N.CLOSING, UNTOUCHED),
        around(requests=(gang(R.EXPIRED),)),
        go(N.RELEASING, "default/Job/train: why", "AcknowledgementLost"),
    ),
    "a sibling is let go while closing": (
        view(N.CLOSING, CLOSED),
        around(sibling(N.RELEASING)),
        go(N.RELEASING, "v2 of the same closure was let go", "SiblingFailed"),
    ),
    "the taint cannot be set in time": (
        view(N.CLOSING, UNTOUCHED, deadline=START),
        ALONE,
        go(N.RELEASING, "Closing took longer than its deadline: tainting the node", "NotClosed"),
    ),
    "aborted while closing": (
        view(N.CLOSING, CLOSED),
        around(undo=True),
        go(N.RELEASING, "the plan was aborted; the marks are taken away", "Aborted"),
    ),
    "the node is deleted while closing": (view(N.CLOSING), ALONE, go(N.GONE, GONE_MESSAGE)),
    # ---- Draining
    "a sibling is not closed yet": (
        view(N.DRAINING, CLOSED, others=(EVICTABLE,)),
        around(sibling(N.PREPARED)),
        stay(N.DRAINING, "waiting for v2 of the closure to be closed"),
    ),
    "what is replicated is evicted, members are not": (
        view(N.DRAINING, CLOSED, others=(MEMBER, EVICTABLE, pod("both", member=True, evictable=True))),
        around(requests=(gang(R.STOPPING),)),
        stay(N.DRAINING, "evicting 1 pod(s) under their budgets", Act.EVICT, evict=(EVICTABLE,)),
    ),
    "a bring-back removes what does not run on this boot": (
        view(N.DRAINING, CLOSED, others=(pod("lost", before_boot=True),), **BRING_BACK),
        ALONE,
        stay(
            N.DRAINING,
            "evicting 1 pod(s) under their budgets",
            Act.EVICT,
            evict=(pod("lost", before_boot=True),),
        ),
    ),
    "a rollout waits for such a pod": (
        view(N.DRAINING, CLOSED, others=(pod("lost", before_boot=True),)),
        ALONE,
        stay(N.DRAINING, "waiting for pod default/lost to end", held="PodsLeft"),
    ),
    "the gang is waited for": (
        view(N.DRAINING, CLOSED, others=(MEMBER,)),
        around(requests=(gang(R.STOPPING),)),
        stay(N.DRAINING, "waiting for default/Job/train to stop"),
    ),
    "the gang has stopped and a pod is left": (
        view(N.DRAINING, CLOSED, others=(STRANGER,)),
        around(requests=(gang(R.STOPPED),)),
        stay(N.DRAINING, "waiting for pod default/stranger to end", held="PodsLeft"),
    ),
    "a job runs on a kernel that its driver is not for": (
        view(N.DRAINING, CLOSED, others=(STRANGER,), **BRING_BACK),
        ALONE,
        stay(N.DRAINING, "waiting for pod default/stranger to end", held="RunningOnUnsupportedKernel"),
    ),
    "no pod with GPUs is left": (
        view(N.DRAINING, CLOSED),
        around(sibling(N.OFF), requests=(gang(R.STOPPED), gang(R.ENDED))),
        go(N.OFF, "no pod with GPUs is left"),
    ),
    "a gang is let go while draining": (
        view(N.DRAINING, CLOSED),
        around(requests=(gang(R.WITHDRAWN),)),
        go(N.RELEASING, "default/Job/train: why", "AcknowledgementLost"),
    ),
    "a sibling fails while draining": (
        view(N.DRAINING, CLOSED),
        around(sibling(N.FAILED)),
        go(N.RELEASING, "v2 of the same closure was let go", "SiblingFailed"),
    ),
    "work on a kernel that its driver is not for is waited for without end": (
        view(N.DRAINING, CLOSED, others=(STRANGER,), deadline=START, **BRING_BACK),
        ALONE,
        stay(N.DRAINING, "waiting for pod default/stranger to end", held="RunningOnUnsupportedKernel"),
    ),
    "pods do not leave in time": (
        view(N.DRAINING, CLOSED, others=(STRANGER,), deadline=START),
        ALONE,
        go(
            N.RELEASING,
            "Draining took longer than its deadline: waiting for pod default/stranger to end",
            "NotDrained",
        ),
    ),
    "the node is deleted while draining": (view(N.DRAINING), ALONE, go(N.GONE, GONE_MESSAGE)),
    # ---- Off
    "the operands are switched off": (
        view(N.OFF, CLOSED),
        ALONE,
        stay(N.OFF, "switching the operands off", Act.OPERANDS_OFF),
    ),
    "operand pods are waited for": (
        view(N.OFF, SWITCHED_OFF, driver=ONE, plugin=STARTING),
        ALONE,
        stay(N.OFF, "waiting for 2 operand pod(s) to go"),
    ),
    "the operands are off": (view(N.OFF, SWITCHED_OFF), ALONE, go(N.VISITING, "operands are off")),
    "operand pods do not go in time": (
        view(N.OFF, SWITCHED_OFF, driver=ONE, deadline=START),
        ALONE,
        go(
            N.OFF,
            "Off took longer than its deadline: waiting for 1 operand pod(s) to go; going back",
            "OffLate",
            reverting=True,
        ),
    ),
    "operand pods do not go on the way back either": (
        view(N.OFF, SWITCHED_OFF, driver=ONE, deadline=START, **BACK),
        ALONE,
        go(
            N.FAILED,
            f"Off took longer than its deadline: waiting for 1 operand pod(s) to go; {GIVE_UP}",
            "RevertFailed",
            reverting=True,
        ),
    ),
    "the node is deleted while off": (view(N.OFF), ALONE, go(N.GONE, GONE_MESSAGE)),
    "an abort does not stop a node that was touched": (
        view(N.OFF, SWITCHED_OFF),
        around(undo=True),
        go(N.VISITING, "operands are off"),
    ),
    "an abort does not stop the sibling of a node that was touched": (
        view(N.DRAINING, CLOSED),
        around(sibling(N.OFF), undo=True),
        go(N.OFF, "no pod with GPUs is left"),
    ),
    # ---- Visiting
    "the visit Job is started": (
        view(N.VISITING, SWITCHED_OFF),
        ALONE,
        stay(N.VISITING, "starting the visit Job", Act.VISIT),
    ),
    "the visit Job runs": (
        view(N.VISITING, SWITCHED_OFF, visit=RUNS),
        ALONE,
        stay(N.VISITING, "the visit Job runs"),
    ),
    "the visit is done": (view(N.VISITING, SWITCHED_OFF, visit=DONE), ALONE, go(N.TURNING_ON, "well")),
    "the driver is busy": (
        view(N.VISITING, SWITCHED_OFF, visit=BUSY),
        ALONE,
        go(N.OFF, "in use by pid 7; going back", "VisitFailed", reverting=True),
    ),
    "the driver is busy on the way back": (
        view(N.VISITING, SWITCHED_OFF, visit=BUSY, **BACK),
        ALONE,
        go(N.FAILED, f"in use by pid 7; {GIVE_UP}", "RevertFailed", reverting=True),
    ),
    "the node is deleted while visited": (view(N.VISITING), ALONE, go(N.GONE, GONE_MESSAGE, acts=(Act.CANCEL,))),
    # ---- On
    "the driver is switched on": (
        view(N.TURNING_ON, SWITCHED_OFF),
        ALONE,
        stay(N.TURNING_ON, "switching the driver on", Act.DRIVER_ON),
    ),
    "the driver is waited for": (
        view(N.TURNING_ON, DRIVER_ON, driver=STARTING),
        ALONE,
        stay(N.TURNING_ON, "waiting for the driver to be loaded"),
    ),
    "the operands are switched on": (
        view(N.TURNING_ON, DRIVER_ON, driver=ONE),
        ALONE,
        stay(N.TURNING_ON, "switching the operands on", Act.OPERANDS_ON),
    ),
    "the plugin is waited for": (
        view(N.TURNING_ON, WHOLE, driver=ONE, plugin=STARTING),
        ALONE,
        stay(N.TURNING_ON, "waiting for the device plugin to register with the kubelet"),
    ),
    "the node is waited for": (
        view(N.TURNING_ON, {**WHOLE, "ready": False}, driver=ONE, plugin=ONE),
        ALONE,
        stay(N.TURNING_ON, "waiting for the node to be Ready"),
    ),
    "a GPU is missing": (
        view(N.TURNING_ON, {**WHOLE, "gpus_allocatable": 7}, driver=ONE, plugin=ONE),
        ALONE,
        stay(N.TURNING_ON, "7 GPUs allocatable, 8 expected"),
    ),
    "a new node must show at least one GPU": (
        view(N.TURNING_ON, {**WHOLE, "gpus_allocatable": 0}, driver=ONE, plugin=ONE, expected_gpus=0),
        ALONE,
        stay(N.TURNING_ON, "0 GPUs allocatable, some expected"),
    ),
    "all GPUs are there": (
        view(N.TURNING_ON, WHOLE, driver=ONE, plugin=ONE),
        ALONE,
        go(N.VALIDATING, "8 GPUs allocatable"),
    ),
    "a new node that goes back has nothing to switch on": (
        view(N.TURNING_ON, {**SWITCHED_OFF, "plugin_key": ""}, **{**BACK, "driver_key": "", "plugin_key": ""}),
        ALONE,
        go(
            N.RELEASING,
            "nothing was installed before, so nothing is switched on",
            "VisitFailed",
            reverting=True,
        ),
    ),
    "the driver is not loaded in time": (
        view(N.TURNING_ON, DRIVER_ON, driver=STARTING, deadline=START),
        ALONE,
        go(
            N.OFF,
            "On took longer than its deadline: waiting for the driver to be loaded; going back",
            "OnLate",
            reverting=True,
        ),
    ),
    "the former driver is not loaded in time either": (
        view(N.TURNING_ON, {**DRIVER_ON, "driver_key": "k-old", "plugin_key": "p-old"}, deadline=START, **BACK),
        ALONE,
        go(
            N.FAILED,
            f"On took longer than its deadline: waiting for the driver to be loaded; {GIVE_UP}",
            "RevertFailed",
            reverting=True,
        ),
    ),
    "the node is deleted while switched on": (view(N.TURNING_ON), ALONE, go(N.GONE, GONE_MESSAGE)),
    # ---- Validating
    "the validation pod is started": (
        view(N.VALIDATING, WHOLE),
        ALONE,
        stay(N.VALIDATING, "starting the validation pod", Act.VALIDATE),
    ),
    "the validation pod runs": (
        view(N.VALIDATING, WHOLE, validate=RUNS),
        ALONE,
        stay(N.VALIDATING, "the validation pod runs"),
    ),
    "valid, and waiting for a sibling even past its own deadline": (
        view(N.VALIDATING, WHOLE, validate=DONE, deadline=PAST),
        around(sibling(N.VISITING)),
        stay(N.VALIDATING, "valid; waiting for v2 of the closure", on_siblings=True),
    ),
    "valid, with all its siblings": (
        view(N.VALIDATING, WHOLE, validate=DONE),
        around(sibling(N.VALIDATING, validate=DONE), sibling(N.GONE)),
        go(N.RELEASING, "valid, with all its siblings"),
    ),
    "a sibling left because both were valid": (
        view(N.VALIDATING, WHOLE),
        around(sibling(N.RELEASING)),
        go(N.RELEASING, "valid, with v2"),
    ),
    "a sibling goes back, so this one does": (
        view(N.VALIDATING, WHOLE, validate=DONE),
        around(sibling(N.OFF, reverting=True)),
        go(N.OFF, "v2 of the same closure goes back; going back", "SiblingReverted", reverting=True),
    ),
    "a sibling is lost, so this one goes back": (
        view(N.VALIDATING, WHOLE, validate=DONE),
        around(sibling(N.FAILED, reverting=True)),
        go(N.OFF, "v2 of the same closure goes back; going back", "SiblingReverted", reverting=True),
    ),
    "valid on the way back, with a sibling that is back": (
        view(N.VALIDATING, WHOLE, validate=DONE, **BACK),
        around(sibling(N.RELEASING, reverting=True, failure="NotValid")),
        go(N.RELEASING, "valid, with all its siblings", "VisitFailed", reverting=True),
    ),
    "validation fails": (
        view(N.VALIDATING, WHOLE, validate=BUSY),
        ALONE,
        go(N.OFF, "in use by pid 7; going back", "NotValid", reverting=True),
    ),
    "validation fails on the way back": (
        view(N.VALIDATING, WHOLE, validate=BUSY, **BACK),
        ALONE,
        stay(
            N.VALIDATING,
            "in use by pid 7; switching the operands off before giving up",
            Act.OPERANDS_OFF,
            failure="VisitFailed",
            reverting=True,
        ),
    ),
    "validation failed on the way back, and the operands are off": (
        view(N.VALIDATING, SWITCHED_OFF, validate=BUSY, **BACK),
        ALONE,
        go(N.FAILED, f"in use by pid 7; {GIVE_UP}", "RevertFailed", reverting=True),
    ),
    "the operands cannot be switched off for a minute after the deadline": (
        view(N.VALIDATING, WHOLE, validate=BUSY, deadline=START - timedelta(seconds=60), **BACK),
        ALONE,
        go(
            N.FAILED,
            "Validating took longer than its deadline: in use by pid 7; switching the operands off before giving up; "
            "this was the revert: its operands could not be switched off and the taint stays, a person must look; "
            "delete NodeUpgrade v1 to have the node installed anew",
            "RevertFailed",
            reverting=True,
        ),
    ),
    "validation takes too long": (
        view(N.VALIDATING, WHOLE, validate=RUNS, deadline=START),
        ALONE,
        go(
            N.OFF,
            "Validating took longer than its deadline: the validation pod runs; going back",
            "ValidatingLate",
            reverting=True,
        ),
    ),
    "the node is deleted while validated": (view(N.VALIDATING), ALONE, go(N.GONE, GONE_MESSAGE)),
    # ---- Releasing
    "the gang is restarted first": (
        view(N.RELEASING, WHOLE),
        around(requests=(gang(R.STOPPED),)),
        stay(N.RELEASING, "waiting for default/Job/train to be restarted"),
    ),
    "a gang that was still stopping is restarted first": (
        view(N.RELEASING, WHOLE),
        around(requests=(gang(R.STOPPING),)),
        stay(N.RELEASING, "waiting for default/Job/train to be restarted"),
    ),
    "the gang is placed first": (
        view(N.RELEASING, WHOLE),
        around(requests=(gang(R.RESTARTING),)),
        stay(N.RELEASING, "waiting for default/Job/train to be placed"),
    ),
    "a gang that was asked is let go first": (
        view(N.RELEASING, CLOSED),
        around(requests=(gang(R.EXPIRED),)),
        stay(N.RELEASING, "waiting for default/Job/train to be let go"),
    ),
    "the node is given back": (
        view(N.RELEASING, WHOLE),
        around(requests=(gang(R.RESTARTING, bound=True), gang(R.ENDED), gang(R.WITHDRAWN))),
        stay(N.RELEASING, "giving the node back", Act.GIVE_BACK),
    ),
    "the gang is not placed in time": (
        view(N.RELEASING, WHOLE, deadline=START),
        around(requests=(gang(R.RESTARTING),)),
        stay(N.RELEASING, "giving the node back", Act.GIVE_BACK),
    ),
    "the visit succeeded": (view(N.RELEASING, GIVEN_BACK), ALONE, go(N.SUCCEEDED, "given back")),
    "the visit failed and nothing of it is left": (
        view(N.RELEASING, {**GIVEN_BACK, "revision": "old"}, **BACK),
        ALONE,
        go(N.FAILED, "given back", "VisitFailed", reverting=True),
    ),
    "the node is deleted while given back": (view(N.RELEASING), ALONE, go(N.GONE, GONE_MESSAGE)),
}


def decided(seen, closure):
    siblings, requests, gangs, undo = closure
    whole = ClosureView(nodes=(seen, *siblings), requests=requests, gangs=gangs, undo=undo)
    return visit.decide(seen, whole, START)


@pytest.mark.parametrize(("seen", "closure", "expected"), CASES.values(), ids=CASES)
def test_the_next_step_of_a_visit(seen, closure, expected):
    assert decided(seen, closure) == expected


def test_every_arrow_has_its_sentence():
    arrows = {(row.phase, to) for row in TRANSITIONS if row.machine == "NodeUpgrade" for to in row.to}
    moved = [(seen, expected) for seen, _, expected in CASES.values()]
    taken = {
        (seen.phase, expected.phase)
        for seen, expected in moved
        if seen.phase is not expected.phase or seen.reverting != expected.reverting
    }
    assert taken == arrows


@pytest.mark.parametrize("phase", [phase for phase in NodePhase if ends(phase)])
def test_an_ended_visit_is_left_alone_even_without_its_node(phase):
    assert decided(view(phase, failure="NotDrained"), ALONE) == Decision(phase=phase, failure="NotDrained")
