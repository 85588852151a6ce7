"""The next step of a node upgrade, as long as nothing is switched off: sentence, node, group, decision."""

from datetime import timedelta

from tests.support.upgrade_cases import (
    ALONE,
    CLOSED,
    DONE,
    EVICTABLE,
    FUTURE,
    GONE_MESSAGE,
    MEMBER,
    NO_IMAGE,
    REPAIR,
    RUNS,
    STRANGER,
    UNTOUCHED,
    N,
    R,
    around,
    gang,
    go,
    pod,
    sibling,
    stay,
    view,
)
from upgrader.core.model.phases import UpgradeReason
from upgrader.core.node_upgrade.upgrade_state import Act, PodOutcome, PodResult
from upgrader_dev.simulated.cluster.ports import START

BEFORE_OFF = {
    # ---- Pending
    "its stack was deleted before it began": (
        view(N.PENDING, UNTOUCHED, reason=UpgradeReason.INSTALL),
        around(undo=True),
        go(N.FAILED, "the stack was deleted before the node was changed", "Aborted"),
    ),
    "a node upgrade begins with preparing": (view(N.PENDING, UNTOUCHED), ALONE, go(N.PREPARING, "")),
    "aborted before it began": (
        view(N.PENDING, UNTOUCHED),
        around(undo=True),
        go(N.FAILED, "the plan was aborted before the node was changed", "Aborted"),
    ),
    "the node is deleted before it began": (view(N.PENDING), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
    # ---- Preparing
    "the prepare pod is started": (
        view(N.PREPARING, UNTOUCHED),
        ALONE,
        stay(N.PREPARING, "starting the prepare pod", Act.PREPARE),
    ),
    "a repair is tainted before it is prepared": (
        view(N.PREPARING, UNTOUCHED, **REPAIR),
        ALONE,
        stay(N.PREPARING, "starting the prepare pod", Act.CLOSE, Act.PREPARE),
    ),
    "the prepare pod runs": (
        view(N.PREPARING, UNTOUCHED, prepare=RUNS),
        ALONE,
        stay(N.PREPARING, "pulling images and checking the node"),
    ),
    "an image cannot be pulled yet": (
        view(N.PREPARING, UNTOUCHED, prepare=PodResult(outcome=PodOutcome.WAITING, trouble="image r/driver: no route")),
        ALONE,
        stay(N.PREPARING, "image r/driver: no route"),
    ),
    "the node can be upgraded": (
        view(N.PREPARING, UNTOUCHED, prepare=DONE),
        ALONE,
        go(N.PREPARED, "all images for the upgrade are on the node"),
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
            "Preparing exceeded its deadline: pulling images and checking the node",
            "NotPrepared",
        ),
    ),
    "a repair that cannot be prepared gives up its taint": (
        view(N.PREPARING, CLOSED, prepare=NO_IMAGE, **REPAIR),
        ALONE,
        go(N.RELEASING, "image r/driver cannot be pulled", "NotPrepared"),
    ),
    "aborted while preparing": (
        view(N.PREPARING, UNTOUCHED, prepare=RUNS),
        around(undo=True),
        go(N.FAILED, "the plan was aborted before the node was changed", "Aborted"),
    ),
    "the node is deleted while preparing": (view(N.PREPARING), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
    # ---- Prepared
    "a sibling is not prepared yet": (
        view(N.PREPARED, UNTOUCHED),
        around(sibling(N.PREPARING)),
        stay(N.PREPARED, "waiting for 1 node(s) of the upgrade group to be prepared"),
    ),
    "a sibling cannot be prepared": (
        view(N.PREPARED, UNTOUCHED),
        around(sibling(N.FAILED)),
        go(N.FAILED, "node v2 of the upgrade group cannot be upgraded", "SiblingFailed"),
    ),
    "its gangs are still to be asked": (
        view(N.PREPARED, UNTOUCHED),
        around(gangs=1),
        stay(N.PREPARED, "waiting for the acknowledgement of gangs without a request yet"),
    ),
    "a gang has not acknowledged yet": (
        view(N.PREPARED, UNTOUCHED),
        around(requests=(gang(R.PARKED), gang(R.REQUESTED, gang="default/Job/other"))),
        stay(N.PREPARED, "waiting for the acknowledgement of default/Job/other"),
    ),
    "a gang is asked again": (
        view(N.PREPARED, UNTOUCHED),
        around(requests=(gang(R.EXPIRED),)),
        stay(N.PREPARED, "waiting for the acknowledgement of default/Job/train"),
    ),
    "another upgrade has brought its node another driver": (
        view(N.PREPARED, {**UNTOUCHED, "driver_key": "k-other"}),
        around(requests=(gang(R.PARKED),)),
        go(N.FAILED, "the node has driver k-other, and the upgrade was ordered when it had k-old", "DriverChanged"),
    ),
    "a gang refuses": (
        view(N.PREPARED, UNTOUCHED),
        around(requests=(gang(R.WITHDRAWN),)),
        go(N.FAILED, "default/Job/train: why", "NotAcknowledged"),
    ),
    "all gangs have acknowledged or ended": (
        view(N.PREPARED, UNTOUCHED),
        around(sibling(N.PREPARED), requests=(gang(R.PARKED), gang(R.ENDED))),
        go(N.TAINTING, "all gangs of the upgrade group have acknowledged"),
    ),
    "made anew when its gang was stopped already, it is closed as its siblings are": (
        view(N.PREPARED, UNTOUCHED),
        around(sibling(N.VALIDATING), requests=(gang(R.STOPPING), gang(R.STOPPED))),
        go(N.TAINTING, "all gangs of the upgrade group have acknowledged"),
    ),
    "made anew when its gang restarts already, it ends: nobody asks that gang again": (
        view(N.PREPARED, UNTOUCHED),
        around(sibling(N.VALIDATING), requests=(gang(R.RESTARTING),)),
        go(N.FAILED, "default/Job/train: why", "NotAcknowledged"),
    ),
    "nor one that was restored": (
        view(N.PREPARED, UNTOUCHED),
        around(sibling(N.SUCCEEDED), requests=(gang(R.RESTORED),)),
        go(N.FAILED, "default/Job/train: why", "NotAcknowledged"),
    ),
    "a node without gangs is closed at once": (
        view(N.PREPARED, UNTOUCHED),
        ALONE,
        go(N.TAINTING, "all gangs of the upgrade group have acknowledged"),
    ),
    "no gang acknowledges in time": (
        view(N.PREPARED, UNTOUCHED, deadline=START),
        around(requests=(gang(R.REQUESTED),)),
        go(
            N.FAILED,
            "Prepared exceeded its deadline: waiting for the acknowledgement of default/Job/train",
            "NotAcknowledged",
        ),
    ),
    "a prepared repair gives up its taint with its sibling": (
        view(N.PREPARED, CLOSED, **REPAIR),
        around(sibling(N.RELEASING)),
        go(N.RELEASING, "node v2 of the upgrade group cannot be upgraded", "SiblingFailed"),
    ),
    "the node is deleted when prepared": (view(N.PREPARED), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
    # ---- Tainting
    "the node is tainted": (
        view(N.TAINTING, UNTOUCHED),
        ALONE,
        stay(N.TAINTING, "tainting the node", Act.CLOSE),
    ),
    "a node that had no driver when its upgrade was ordered is released where it has one by now": (
        view(N.TAINTING, CLOSED, source_key=""),
        around(requests=(gang(R.PARKED),)),
        go(N.RELEASING, "the node has driver k-old, and the upgrade was ordered when it had none", "DriverChanged"),
    ),
    "none is none, with a label that says so and without one": (
        view(N.TAINTING, {**CLOSED, "driver_key": "none"}, source_key="", phase_since=START - timedelta(seconds=5)),
        ALONE,
        go(N.DRAINING, "the node is tainted"),
    ),
    "a stack's own upgrade goes by more than the label": (
        view(N.TAINTING, CLOSED, source_key="", phase_since=START - timedelta(seconds=5), reason=UpgradeReason.INSTALL),
        ALONE,
        go(N.DRAINING, "the node is tainted"),
    ),
    "right after the taint pods are looked at once more": (
        view(N.TAINTING, CLOSED, phase_since=START - timedelta(seconds=4), others=(MEMBER, EVICTABLE)),
        around(requests=(gang(R.PARKED),)),
        stay(N.TAINTING, "listing pods once more before any gang is stopped"),
    ),
    "five seconds later no new pod is there": (
        view(N.TAINTING, CLOSED, phase_since=START - timedelta(seconds=5), others=(MEMBER, EVICTABLE)),
        around(requests=(gang(R.PARKED),)),
        go(N.DRAINING, "the node is tainted"),
    ),
    "on a node without GPUs to give no pod was on its way": (
        view(N.TAINTING, {**CLOSED, "gpus_allocatable": 0}, phase_since=START, **REPAIR),
        ALONE,
        go(N.DRAINING, "the node is tainted"),
    ),
    "where every pod is to end, one without GPUs may have been": (
        view(N.TAINTING, {**CLOSED, "gpus_allocatable": 0}, phase_since=START, empties=True, **REPAIR),
        ALONE,
        stay(N.TAINTING, "listing pods once more before any gang is stopped"),
    ),
    "nor on one that never had any": (
        view(
            N.TAINTING,
            {**CLOSED, "gpus": 0, "gpus_allocatable": 0},
            phase_since=START,
            reason=UpgradeReason.INSTALL,
        ),
        ALONE,
        go(N.DRAINING, "the node is tainted"),
    ),
    "where a plugin of others is just away, one may have been": (
        view(N.TAINTING, {**CLOSED, "gpus_allocatable": 0}, phase_since=START, reason=UpgradeReason.INSTALL),
        ALONE,
        stay(N.TAINTING, "listing pods once more before any gang is stopped"),
    ),
    "in a plan's upgrade a plugin may just be away": (
        view(N.TAINTING, {**CLOSED, "gpus_allocatable": 0}, phase_since=START),
        ALONE,
        stay(N.TAINTING, "listing pods once more before any gang is stopped"),
    ),
    "a pod with GPUs appeared after the acknowledgements": (
        view(N.TAINTING, CLOSED, others=(MEMBER, STRANGER)),
        around(requests=(gang(R.PARKED),)),
        go(
            N.RELEASING,
            "pod default/stranger with GPUs appeared after the acknowledgements; group is released",
            "NewGpuPod",
        ),
    ),
    "a repair waits for such a pod later": (
        view(N.TAINTING, CLOSED, others=(STRANGER,), **REPAIR),
        ALONE,
        go(N.DRAINING, "the node is tainted"),
    ),
    "an acknowledgement is lost while closing": (
        view(N.TAINTING, UNTOUCHED),
        around(requests=(gang(R.EXPIRED),)),
        go(N.RELEASING, "default/Job/train: why", "AcknowledgementLost"),
    ),
    "a sibling is released while closing": (
        view(N.TAINTING, CLOSED),
        around(sibling(N.RELEASING)),
        go(N.RELEASING, "node v2 of the upgrade group failed or is being released", "SiblingFailed"),
    ),
    "the taint cannot be set in time": (
        view(N.TAINTING, UNTOUCHED, deadline=START),
        ALONE,
        go(N.RELEASING, "Tainting exceeded its deadline: tainting the node", "NotClosed"),
    ),
    "aborted while closing": (
        view(N.TAINTING, CLOSED),
        around(undo=True),
        go(N.RELEASING, "the plan was aborted; the taint and the claim are removed", "Aborted"),
    ),
    "the node is deleted while closing": (view(N.TAINTING), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
    # ---- Draining
    "a sibling is not closed yet": (
        view(N.DRAINING, CLOSED, others=(EVICTABLE,)),
        around(sibling(N.PREPARED)),
        stay(N.DRAINING, "waiting for node v2 of the upgrade group to be tainted"),
    ),
    "what is replicated is evicted, members are not": (
        view(N.DRAINING, CLOSED, others=(MEMBER, EVICTABLE, pod("both", member=True, evictable=True))),
        around(requests=(gang(R.STOPPING),)),
        stay(N.DRAINING, "evicting 1 pod(s) as their PodDisruptionBudgets allow", Act.EVICT, evict=(EVICTABLE,)),
    ),
    "what was refused to be evicted is left alone until its time": (
        view(N.DRAINING, CLOSED, others=(EVICTABLE,), not_evicted="not now", evict_after=START + timedelta(seconds=1)),
        ALONE,
        stay(N.DRAINING, "not now", blocked="EvictionRefused"),
    ),
    "and is tried again then": (
        view(N.DRAINING, CLOSED, others=(EVICTABLE,), not_evicted="not now", evict_after=START),
        ALONE,
        stay(N.DRAINING, "not now", Act.EVICT, evict=(EVICTABLE,)),
    ),
    "a repair removes what does not run on this boot": (
        view(N.DRAINING, CLOSED, others=(pod("lost", before_boot=True),), **REPAIR),
        ALONE,
        stay(
            N.DRAINING,
            "evicting 1 pod(s) as their PodDisruptionBudgets allow",
            Act.EVICT,
            evict=(pod("lost", before_boot=True),),
        ),
    ),
    "a rollout waits for such a pod": (
        view(N.DRAINING, CLOSED, others=(pod("lost", before_boot=True),)),
        ALONE,
        stay(N.DRAINING, "waiting for pod default/lost to end", blocked="PodsLeft"),
    ),
    "the gang is waited for": (
        view(N.DRAINING, CLOSED, others=(MEMBER,)),
        around(requests=(gang(R.STOPPING),)),
        stay(N.DRAINING, "waiting for default/Job/train to stop", on_siblings=True),
    ),
    "a gang whose stop was begun is given all its time": (
        view(N.DRAINING, CLOSED, others=(MEMBER,), deadline=START),
        around(requests=(gang(R.STOPPING, deadline=FUTURE), gang(R.STOPPED))),
        stay(N.DRAINING, "waiting for default/Job/train to stop", on_siblings=True, deadline=FUTURE),
    ),
    "a gang is not waited for without end where another is not even about to stop": (
        view(N.DRAINING, CLOSED, others=(MEMBER,), deadline=START),
        around(requests=(gang(R.STOPPING), gang(R.PARKED))),
        go(
            N.RELEASING,
            "Draining exceeded its deadline: waiting for default/Job/train to stop",
            "NotDrained",
        ),
    ),
    "nor where a pod came beside it": (
        view(N.DRAINING, CLOSED, others=(MEMBER, STRANGER), deadline=START),
        around(requests=(gang(R.STOPPING),)),
        go(
            N.RELEASING,
            "Draining exceeded its deadline: waiting for default/Job/train to stop",
            "NotDrained",
        ),
    ),
    "the gang has stopped and a pod is left": (
        view(N.DRAINING, CLOSED, others=(STRANGER,)),
        around(requests=(gang(R.STOPPED),)),
        stay(N.DRAINING, "waiting for pod default/stranger to end", blocked="PodsLeft"),
    ),
    "a job runs on a kernel that its driver is not for": (
        view(N.DRAINING, CLOSED, others=(STRANGER,), **REPAIR),
        ALONE,
        stay(N.DRAINING, "waiting for pod default/stranger to end", blocked="RunningOnUnsupportedKernel"),
    ),
    "no pod is left that the upgrade would end": (
        view(N.DRAINING, CLOSED),
        around(sibling(N.UNLOADING), requests=(gang(R.STOPPED), gang(R.ENDED))),
        go(N.UNLOADING, "no pod is left that the upgrade would end"),
    ),
    "a gang is released while draining": (
        view(N.DRAINING, CLOSED),
        around(requests=(gang(R.WITHDRAWN),)),
        go(N.RELEASING, "default/Job/train: why", "AcknowledgementLost"),
    ),
    "a sibling fails while draining": (
        view(N.DRAINING, CLOSED),
        around(sibling(N.FAILED)),
        go(N.RELEASING, "node v2 of the upgrade group failed or is being released", "SiblingFailed"),
    ),
    "it is so too while a pod beside it cannot be evicted": (
        view(N.DRAINING, CLOSED, others=(STRANGER, pod("web", evictable=True)), deadline=START, **REPAIR),
        ALONE,
        stay(
            N.DRAINING,
            "evicting 1 pod(s) as their PodDisruptionBudgets allow",
            Act.EVICT,
            evict=(pod("web", evictable=True),),
            blocked="RunningOnUnsupportedKernel",
        ),
    ),
    "work on a kernel that its driver is not for is waited for without end": (
        view(N.DRAINING, CLOSED, others=(STRANGER,), deadline=START, **REPAIR),
        ALONE,
        stay(N.DRAINING, "waiting for pod default/stranger to end", blocked="RunningOnUnsupportedKernel"),
    ),
    "pods do not leave in time": (
        view(N.DRAINING, CLOSED, others=(STRANGER,), deadline=START),
        ALONE,
        go(
            N.RELEASING,
            "Draining exceeded its deadline: waiting for pod default/stranger to end",
            "NotDrained",
        ),
    ),
    "the node is deleted while draining": (view(N.DRAINING), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
}
