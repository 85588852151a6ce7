"""The next step of a node upgrade when pods come to its node after it was drained: sentence, node, group, decision."""

from datetime import timedelta

from tests.support.upgrade_cases import (
    ALONE,
    CLOSED,
    DONE,
    DRIVER_ON,
    EVICTABLE,
    GIVE_UP,
    MEMBER,
    ONE,
    REPAIR,
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
from upgrader.core.node_upgrade.upgrade_state import Act, UpgradeJobs
from upgrader_dev.simulated.cluster.ports import START

CAME = "waiting for pod default/stranger to end, which was created after the drain"
BLOCKED = {"blocked": "PodsArrived"}
NOT_UNDONE = "no upgrade Job was created, so there is nothing to undo"
TURNED = {"reverting": True, "failure": "PodsArrived", "driver_key": "k-old", "plugin_key": "p-old"}
BACK = {"reverting": True, "failure": "NotValid", "driver_key": "k-old", "plugin_key": "p-old"}
BACK_ON = {**WHOLE, "driver_key": "k-old", "plugin_key": "p-old"}
WITHOUT_GPUS = pod("plain", gpus=False)

ARRIVALS = {
    "no upgrade Job is made while a pod is there that nobody stopped": (
        view(N.UNLOADING, SWITCHED_OFF, others=(STRANGER,)),
        ALONE,
        stay(N.UNLOADING, CAME, **BLOCKED),
    ),
    "its operands are off first": (
        view(N.UNLOADING, CLOSED, others=(STRANGER,)),
        ALONE,
        stay(N.UNLOADING, "switching the operands off", Act.OPERANDS_OFF),
    ),
    "members of stopped gangs are in nobody's way": (
        view(N.UNLOADING, SWITCHED_OFF, others=(MEMBER,)),
        around(requests=(gang(R.STOPPED),)),
        go(N.UPGRADING, "operands are off"),
    ),
    "what is replicated is evicted once more": (
        view(N.UNLOADING, SWITCHED_OFF, others=(EVICTABLE, STRANGER)),
        ALONE,
        stay(
            N.UNLOADING,
            "evicting 1 pod(s) as their PodDisruptionBudgets allow",
            Act.EVICT,
            evict=(EVICTABLE,),
            **BLOCKED,
        ),
    ),
    "and left alone until it is time to try again": (
        view(
            N.UNLOADING,
            SWITCHED_OFF,
            others=(EVICTABLE,),
            not_evicted="not now",
            evict_after=START + timedelta(seconds=1),
        ),
        ALONE,
        stay(N.UNLOADING, "not now", **BLOCKED),
    ),
    "before its upgrade Job a node turns round without one": (
        view(N.UNLOADING, SWITCHED_OFF, others=(STRANGER,), deadline=START),
        ALONE,
        go(N.UNLOADING, f"Unloading exceeded its deadline: {CAME}; reverting", "PodsArrived", reverting=True),
    ),
    "a node that turned round before its upgrade Job is switched on as it was": (
        view(N.UNLOADING, SWITCHED_OFF, others=(STRANGER,), **TURNED),
        ALONE,
        go(N.LOADING, NOT_UNDONE, "PodsArrived", reverting=True),
    ),
    "its operands go on beside the pod that came": (
        view(N.LOADING, {**DRIVER_ON, "driver_key": "k-old", "plugin_key": "p-old"}, driver=ONE, **TURNED),
        ALONE,
        stay(N.LOADING, "switching the operands on", Act.OPERANDS_ON, failure="PodsArrived", reverting=True),
    ),
    "it is released with that pod, which leaves no devices for a validation": (
        view(N.VALIDATING, BACK_ON, others=(STRANGER,), **TURNED),
        ALONE,
        go(
            N.RELEASING,
            "released without validation: the upgrade changed nothing, and pod default/stranger holds GPUs",
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
    "a pod comes right before the upgrade Job is made": (
        view(N.UPGRADING, SWITCHED_OFF, others=(STRANGER,)),
        ALONE,
        stay(N.UPGRADING, CAME, **BLOCKED),
    ),
    "an upgrade Job that runs is not waited for by that": (
        view(N.UPGRADING, SWITCHED_OFF, others=(STRANGER,), upgrade=RUNS),
        ALONE,
        stay(N.UPGRADING, "the upgrade Job runs"),
    ),
    "nor does it come on the way back": (
        view(N.UPGRADING, SWITCHED_OFF, others=(WITHOUT_GPUS,), **BACK),
        ALONE,
        stay(
            N.UPGRADING,
            "waiting for pod default/plain to end, which was created after the drain",
            failure="NotValid",
            reverting=True,
            **BLOCKED,
        ),
    ),
    "on the way back a pod is waited for before the upgrade Job": (
        view(N.UNLOADING, SWITCHED_OFF, others=(STRANGER,), **BACK),
        ALONE,
        stay(N.UNLOADING, CAME, failure="NotValid", reverting=True, **BLOCKED),
    ),
    "a pod does not end on the way back, and its node is left to a person with it": (
        view(N.UNLOADING, SWITCHED_OFF, others=(STRANGER,), deadline=START, **BACK),
        ALONE,
        go(N.FAILED, f"Unloading exceeded its deadline: {CAME}; {GIVE_UP}", "RevertFailed", reverting=True),
    ),
    "devices are not offered to a pod before they are validated": (
        view(N.LOADING, DRIVER_ON, driver=ONE, others=(STRANGER,)),
        ALONE,
        stay(N.LOADING, CAME, **BLOCKED),
    ),
    "a pod without GPUs needs none": (
        view(N.LOADING, DRIVER_ON, driver=ONE, others=(WITHOUT_GPUS,)),
        ALONE,
        stay(N.LOADING, "switching the operands on", Act.OPERANDS_ON),
    ),
    "a pod takes devices before they are validated": (
        view(N.VALIDATING, WHOLE, others=(STRANGER,)),
        ALONE,
        stay(N.VALIDATING, CAME, **BLOCKED),
    ),
    "what was found valid stays so with a pod that came later": (
        view(N.VALIDATING, WHOLE, others=(STRANGER,), validate=DONE),
        ALONE,
        go(N.RELEASING, "validation succeeded on all nodes of the upgrade group"),
    ),
    "a repair waits for a pod that came without end": (
        view(N.UNLOADING, SWITCHED_OFF, others=(STRANGER,), deadline=START, **REPAIR),
        ALONE,
        stay(N.UNLOADING, CAME, blocked="RunningOnUnsupportedKernel"),
    ),
    # ---- upgrade Jobs of the operator
    "the upgrade Job of the way there goes before the way back begins": (
        view(N.UNLOADING, SWITCHED_OFF, upgrade_jobs=UpgradeJobs(first=True, pods=1), **BACK),
        ALONE,
        stay(
            N.UNLOADING,
            "deleting the first upgrade Job",
            Act.CANCEL_FIRST,
            failure="NotValid",
            reverting=True,
        ),
    ),
    "also where it is seen late": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade_jobs=UpgradeJobs(first=True), **BACK),
        ALONE,
        stay(
            N.UPGRADING,
            "deleting the first upgrade Job",
            Act.CANCEL_FIRST,
            failure="NotValid",
            reverting=True,
        ),
    ),
    "its pod is waited for when it is gone": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade_jobs=UpgradeJobs(pods=1), **BACK),
        ALONE,
        stay(
            N.UPGRADING,
            "waiting for 1 pod(s) of an earlier upgrade Job to end",
            failure="NotValid",
            reverting=True,
        ),
    ),
    "that its node does not answer is what people are told then": (
        view(N.UPGRADING, SILENT, upgrade_jobs=UpgradeJobs(pods=1), **BACK),
        ALONE,
        stay(
            N.UPGRADING,
            "the node is not Ready: it does not respond",
            failure="NotValid",
            reverting=True,
        ),
    ),
    "a pod of a node upgrade that is no more is waited for": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade_jobs=UpgradeJobs(pods=1)),
        ALONE,
        stay(N.UPGRADING, "waiting for 1 pod(s) of an earlier upgrade Job to end"),
    ),
    "where it does not end the node is left to a person": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade_jobs=UpgradeJobs(pods=1), deadline=START, **BACK),
        ALONE,
        go(
            N.FAILED,
            "Upgrading exceeded its deadline: waiting for 1 pod(s) of an earlier upgrade Job to end; " + GIVE_UP,
            "RevertFailed",
            reverting=True,
        ),
    ),
}
