"""The next step of a visit when pods come to its node after it was drained: sentence, node, closure, decision."""

from datetime import timedelta

from tests.support.visit_cases import (
    ALONE,
    BRING_BACK,
    CLOSED,
    DONE,
    DRIVER_ON,
    EVICTABLE,
    GIVE_UP,
    MEMBER,
    ONE,
    RUNS,
    SILENT,
    STRANGER,
    SWITCHED_OFF,
    WHOLE,
    N,
    R,
    around,
    gang,
    go,
    pod,
    stay,
    view,
)
from tests.support.world import START
from upgrader.core.visit_facts import Act, VisitJobs

CAME = "waiting for pod default/stranger to end, which came after the node was drained"
HELD = {"held": "PodsArrived"}
NOT_UNDONE = "no visit Job was made, so there is nothing to undo"
TURNED = {"reverting": True, "failure": "PodsArrived", "driver_key": "k-old", "plugin_key": "p-old"}
BACK = {"reverting": True, "failure": "NotValid", "driver_key": "k-old", "plugin_key": "p-old"}
BACK_ON = {**WHOLE, "driver_key": "k-old", "plugin_key": "p-old"}
WITHOUT_GPUS = pod("plain", gpus=False)

ARRIVALS = {
    "no visit Job is made while a pod is there that nobody stopped": (
        view(N.OFF, SWITCHED_OFF, others=(STRANGER,)),
        ALONE,
        stay(N.OFF, CAME, **HELD),
    ),
    "its operands are off first": (
        view(N.OFF, CLOSED, others=(STRANGER,)),
        ALONE,
        stay(N.OFF, "switching the operands off", Act.OPERANDS_OFF),
    ),
    "members of stopped gangs are in nobody's way": (
        view(N.OFF, SWITCHED_OFF, others=(MEMBER,)),
        around(requests=(gang(R.STOPPED),)),
        go(N.VISITING, "operands are off"),
    ),
    "what is replicated is evicted once more": (
        view(N.OFF, SWITCHED_OFF, others=(EVICTABLE, STRANGER)),
        ALONE,
        stay(N.OFF, "evicting 1 pod(s) under their budgets", Act.EVICT, evict=(EVICTABLE,), **HELD),
    ),
    "and left alone until it is time to try again": (
        view(N.OFF, SWITCHED_OFF, others=(EVICTABLE,), not_evicted="not now", evict_after=START + timedelta(seconds=1)),
        ALONE,
        stay(N.OFF, "not now", **HELD),
    ),
    "before its visit Job a node turns round without one": (
        view(N.OFF, SWITCHED_OFF, others=(STRANGER,), deadline=START),
        ALONE,
        go(N.OFF, f"Off took longer than its deadline: {CAME}; going back", "PodsArrived", reverting=True),
    ),
    "a node that turned round before its visit Job is switched on as it was": (
        view(N.OFF, SWITCHED_OFF, others=(STRANGER,), **TURNED),
        ALONE,
        go(N.TURNING_ON, NOT_UNDONE, "PodsArrived", reverting=True),
    ),
    "its operands go on beside the pod that came": (
        view(N.TURNING_ON, {**DRIVER_ON, "driver_key": "k-old", "plugin_key": "p-old"}, driver=ONE, **TURNED),
        ALONE,
        stay(N.TURNING_ON, "switching the operands on", Act.OPERANDS_ON, failure="PodsArrived", reverting=True),
    ),
    "it is given back with that pod, which leaves no devices for a validation": (
        view(N.VALIDATING, BACK_ON, others=(STRANGER,), **TURNED),
        ALONE,
        go(
            N.RELEASING,
            "nothing was changed, and pod default/stranger has devices that a validation would need",
            "PodsArrived",
            reverting=True,
        ),
    ),
    "not where a GPU is missing": (
        view(N.VALIDATING, {**BACK_ON, "gpus_allocatable": 7}, others=(STRANGER,), **TURNED),
        ALONE,
        stay(N.VALIDATING, "starting the validation pod", Act.VALIDATE, failure="PodsArrived", reverting=True),
    ),
    "it is validated where the pod has no devices": (
        view(N.VALIDATING, BACK_ON, others=(WITHOUT_GPUS,), **TURNED),
        ALONE,
        stay(N.VALIDATING, "starting the validation pod", Act.VALIDATE, failure="PodsArrived", reverting=True),
    ),
    "a pod comes right before the visit Job is made": (
        view(N.VISITING, SWITCHED_OFF, others=(STRANGER,)),
        ALONE,
        stay(N.VISITING, CAME, **HELD),
    ),
    "a visit Job that runs is not waited for by that": (
        view(N.VISITING, SWITCHED_OFF, others=(STRANGER,), visit=RUNS),
        ALONE,
        stay(N.VISITING, "the visit Job runs"),
    ),
    "nor does it come on the way back": (
        view(N.VISITING, SWITCHED_OFF, others=(WITHOUT_GPUS,), **BACK),
        ALONE,
        stay(
            N.VISITING,
            "waiting for pod default/plain to end, which came after the node was drained",
            failure="NotValid",
            reverting=True,
            **HELD,
        ),
    ),
    "on the way back a pod is waited for before the visit Job": (
        view(N.OFF, SWITCHED_OFF, others=(STRANGER,), **BACK),
        ALONE,
        stay(N.OFF, CAME, failure="NotValid", reverting=True, **HELD),
    ),
    "a pod does not end on the way back, and its node is left to a person with it": (
        view(N.OFF, SWITCHED_OFF, others=(STRANGER,), deadline=START, **BACK),
        ALONE,
        go(N.FAILED, f"Off took longer than its deadline: {CAME}; {GIVE_UP}", "RevertFailed", reverting=True),
    ),
    "devices are not offered to a pod before they are validated": (
        view(N.TURNING_ON, DRIVER_ON, driver=ONE, others=(STRANGER,)),
        ALONE,
        stay(N.TURNING_ON, CAME, **HELD),
    ),
    "a pod without GPUs needs none": (
        view(N.TURNING_ON, DRIVER_ON, driver=ONE, others=(WITHOUT_GPUS,)),
        ALONE,
        stay(N.TURNING_ON, "switching the operands on", Act.OPERANDS_ON),
    ),
    "a pod takes devices before they are validated": (
        view(N.VALIDATING, WHOLE, others=(STRANGER,)),
        ALONE,
        stay(N.VALIDATING, CAME, **HELD),
    ),
    "what was found valid stays so with a pod that came later": (
        view(N.VALIDATING, WHOLE, others=(STRANGER,), validate=DONE),
        ALONE,
        go(N.RELEASING, "valid, with all its siblings"),
    ),
    "a bring-back waits for a pod that came without end": (
        view(N.OFF, SWITCHED_OFF, others=(STRANGER,), deadline=START, **BRING_BACK),
        ALONE,
        stay(N.OFF, CAME, held="RunningOnUnsupportedKernel"),
    ),
    # ---- visit Jobs of ours
    "the visit Job of the way there goes before the way back begins": (
        view(N.OFF, SWITCHED_OFF, visit_jobs=VisitJobs(first=True, pods=1), **BACK),
        ALONE,
        stay(
            N.OFF,
            "taking away the visit Job of the way there",
            Act.CANCEL_FIRST,
            failure="NotValid",
            reverting=True,
        ),
    ),
    "also where it is seen late": (
        view(N.VISITING, SWITCHED_OFF, visit_jobs=VisitJobs(first=True), **BACK),
        ALONE,
        stay(
            N.VISITING,
            "taking away the visit Job of the way there",
            Act.CANCEL_FIRST,
            failure="NotValid",
            reverting=True,
        ),
    ),
    "its pod is waited for when it is gone": (
        view(N.VISITING, SWITCHED_OFF, visit_jobs=VisitJobs(pods=1), **BACK),
        ALONE,
        stay(
            N.VISITING,
            "waiting for 1 pod(s) of an earlier visit Job to end",
            failure="NotValid",
            reverting=True,
        ),
    ),
    "that its node does not answer is what people are told then": (
        view(N.VISITING, SILENT, visit_jobs=VisitJobs(pods=1), **BACK),
        ALONE,
        stay(
            N.VISITING,
            "the node is not Ready: nothing on it answers",
            failure="NotValid",
            reverting=True,
        ),
    ),
    "a pod of a visit that is no more is waited for": (
        view(N.VISITING, SWITCHED_OFF, visit_jobs=VisitJobs(pods=1)),
        ALONE,
        stay(N.VISITING, "waiting for 1 pod(s) of an earlier visit Job to end"),
    ),
    "where it does not end the node is left to a person": (
        view(N.VISITING, SWITCHED_OFF, visit_jobs=VisitJobs(pods=1), deadline=START, **BACK),
        ALONE,
        go(
            N.FAILED,
            "Visiting took longer than its deadline: waiting for 1 pod(s) of an earlier visit Job to end; " + GIVE_UP,
            "RevertFailed",
            reverting=True,
        ),
    ),
}
