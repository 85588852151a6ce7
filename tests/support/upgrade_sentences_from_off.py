"""The next step of a node upgrade from operands off to a loaded driver: sentence, node, group, decision."""

from tests.support.facts import KERNEL
from tests.support.upgrade_cases import (
    ALONE,
    BACK,
    BLOCKED,
    BUSY,
    CLOSED,
    DONE,
    GIVE_UP,
    GONE_MESSAGE,
    ONE,
    PAST,
    RUNS,
    SILENT,
    STARTING,
    SWITCHED_OFF,
    N,
    around,
    go,
    pod,
    sibling,
    stay,
    view,
)
from upgrader.core.node_upgrade.clearing import LAST_ACT
from upgrader.core.node_upgrade.upgrade_state import Act, PodResult, UpgradeJobs
from upgrader_dev.simulated.cluster.ports import START

MADE = PodResult(suspended=True)

FROM_OFF = {
    # ---- Unloading
    "the operands are switched off": (
        view(N.UNLOADING, CLOSED),
        ALONE,
        stay(N.UNLOADING, "switching the operands off", Act.OPERANDS_OFF),
    ),
    "operand pods are waited for": (
        view(N.UNLOADING, SWITCHED_OFF, driver=ONE, plugin=STARTING),
        ALONE,
        stay(N.UNLOADING, "waiting for 2 operand pod(s) to end"),
    ),
    "operand pods of a node that says nothing are waited for with that reason": (
        view(N.UNLOADING, SILENT, driver=ONE),
        ALONE,
        stay(N.UNLOADING, "the node is not Ready: it does not respond"),
    ),
    "so is every other operand that may hold a device": (
        view(N.UNLOADING, SWITCHED_OFF, other_operands=ONE),
        ALONE,
        stay(N.UNLOADING, "waiting for 1 operand pod(s) to end"),
    ),
    "the operands are off": (view(N.UNLOADING, SWITCHED_OFF), ALONE, go(N.UPGRADING, "operands are off")),
    "operand pods do not go in time": (
        view(N.UNLOADING, SWITCHED_OFF, driver=ONE, deadline=START),
        ALONE,
        go(
            N.UNLOADING,
            "Unloading exceeded its deadline: waiting for 1 operand pod(s) to end; reverting",
            "UnloadingLate",
            reverting=True,
        ),
    ),
    "operand pods do not go on the way back either": (
        view(N.UNLOADING, SWITCHED_OFF, driver=ONE, deadline=START, **BACK),
        ALONE,
        go(
            N.FAILED,
            f"Unloading exceeded its deadline: waiting for 1 operand pod(s) to end; {GIVE_UP}",
            "RevertFailed",
            reverting=True,
        ),
    ),
    "the node is deleted while off": (view(N.UNLOADING), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
    "an abort does not stop a node that was touched": (
        view(N.UNLOADING, SWITCHED_OFF),
        around(undo=True),
        go(N.UPGRADING, "operands are off"),
    ),
    "an abort does not stop the sibling of a node that was touched": (
        view(N.DRAINING, CLOSED),
        around(sibling(N.UNLOADING), undo=True),
        go(N.UNLOADING, "no pod is left that the upgrade would end"),
    ),
    # ---- Upgrading
    "the upgrade Job is started": (
        view(N.UPGRADING, SWITCHED_OFF),
        ALONE,
        stay(N.UPGRADING, "starting the upgrade Job", Act.UPGRADE),
    ),
    "the upgrade Job runs": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade=RUNS),
        ALONE,
        stay(N.UPGRADING, "the upgrade Job runs"),
    ),
    "the node has not come back from its reboot": (
        view(N.UPGRADING, SILENT, upgrade=RUNS, kernel="6.1.0-50-amd64"),
        ALONE,
        stay(N.UPGRADING, "the node is not Ready: it has not returned from its reboot into kernel 6.1.0-50-amd64"),
    ),
    "the node has come back and hangs": (
        view(N.UPGRADING, SILENT, upgrade=RUNS, kernel=KERNEL),
        ALONE,
        stay(N.UPGRADING, "the node is not Ready: it does not respond"),
    ),
    "the upgrade is done": (view(N.UPGRADING, SWITCHED_OFF, upgrade=DONE), ALONE, go(N.LOADING, "well")),
    "somebody holds the driver, and it is looked again": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade=BLOCKED),
        ALONE,
        stay(N.UPGRADING, "in use by pid 7", blocked="DriverBusy"),
    ),
    "somebody holds the driver for too long": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade=BLOCKED, deadline=PAST),
        ALONE,
        go(
            N.UNLOADING,
            "Upgrading exceeded its deadline: in use by pid 7; reverting",
            "UpgradingLate",
            reverting=True,
        ),
    ),
    "the driver is busy": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade=BUSY),
        ALONE,
        go(N.UNLOADING, "in use by pid 7; reverting", "UpgradeFailed", reverting=True),
    ),
    "the driver is busy on the way back": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade=BUSY, **BACK),
        ALONE,
        go(N.FAILED, f"in use by pid 7; {GIVE_UP}", "RevertFailed", reverting=True),
    ),
    "the node is deleted before its upgrade Job is made": (view(N.UPGRADING), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
    "the node is deleted while upgraded": (
        view(N.UPGRADING, upgrade=RUNS),
        ALONE,
        stay(N.UPGRADING, "the node was deleted; deleting its upgrade Job", Act.CANCEL),
    ),
    "the node is deleted when its upgrade Job was made, and not started": (
        view(N.UPGRADING, upgrade=MADE),
        ALONE,
        stay(N.UPGRADING, "the node was deleted; deleting its upgrade Job", Act.CANCEL),
    ),
    "the node is deleted before the way back, and the first upgrade Job is there": (
        view(N.UNLOADING, upgrade_jobs=UpgradeJobs(first=True), **BACK),
        ALONE,
        stay(
            N.UNLOADING,
            "the node was deleted; deleting its upgrade Job",
            Act.CANCEL_FIRST,
            failure="UpgradeFailed",
            reverting=True,
        ),
    ),
    "the node is deleted while upgraded, and the Job cannot be": (
        view(N.UPGRADING, upgrade=RUNS, deadline=START - LAST_ACT),
        ALONE,
        go(N.NODE_DELETED, GONE_MESSAGE),
    ),
    "an upgrade Job that was made is taken away when a pod has come": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade=MADE, others=(pod(),)),
        ALONE,
        stay(
            N.UPGRADING,
            "waiting for pod default/stranger to end, which was created after the drain",
            Act.CANCEL,
            blocked="PodsArrived",
        ),
    ),
    "an upgrade Job that was made is started": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade=MADE),
        ALONE,
        stay(N.UPGRADING, "starting the upgrade Job", Act.UPGRADE),
    ),
    "an upgrade Job that could not be started is taken away before the way back fails": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade=MADE, deadline=START, **BACK),
        ALONE,
        stay(
            N.UPGRADING,
            "Upgrading exceeded its deadline: starting the upgrade Job",
            Act.CANCEL,
            failure="UpgradeFailed",
            reverting=True,
        ),
    ),
    "and cannot be": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade=MADE, deadline=START - LAST_ACT, **BACK),
        ALONE,
        go(
            N.FAILED,
            f"Upgrading exceeded its deadline: starting the upgrade Job; {GIVE_UP}",
            "RevertFailed",
            reverting=True,
        ),
    ),
}
