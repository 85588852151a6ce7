"""The next step of a node upgrade whose node came up with another kernel: sentence, node, group, decision."""

from tests.support.facts import KERNEL
from tests.support.upgrade_cases import (
    ALONE,
    BACK,
    CLOSED,
    DONE,
    DRIVER_ON,
    REPAIR,
    RUNS,
    SWITCHED_OFF,
    UNTOUCHED,
    WHOLE,
    N,
    R,
    around,
    gang,
    go,
    stay,
    view,
)
from upgrader.core.model.fleet import RemovedDriver
from upgrader.core.model.phases import UpgradeReason
from upgrader.core.node_upgrade.upgrade_state import Act, OperandFacts

NEXT, THIRD = "6.1.0-50-amd64", "6.1.0-53-amd64"
HOME = {"planned": NEXT, "former": KERNEL}
"""It was to be repaired on NEXT, and runs the kernel that it had before."""
AWAY = {"planned": NEXT, "former": THIRD}
KEPT = {**SWITCHED_OFF, "removed_driver": RemovedDriver(driver="k-old", revision="old", kernel=KERNEL)}
BARE = view(N.RELEASING, KEPT, name="v2", uid="u2", failure="KernelChanged", **AWAY)
WHY = f"the node runs kernel {KERNEL}, the upgrade was planned for {NEXT}"
RELEASED = go(N.RELEASING, WHY, "KernelChanged")
TURNED = go(N.UNLOADING, f"{WHY}; reverting", "KernelChanged", reverting=True)

ON_ANOTHER_KERNEL = {
    "a node that nothing was done to is left": (
        view(N.PREPARED, UNTOUCHED, **HOME),
        ALONE,
        go(N.FAILED, WHY, "KernelChanged"),
    ),
    "a repair has its taint taken away, whatever its prepare pod does": (
        view(N.PREPARING, CLOSED, prepare=RUNS, **REPAIR, **HOME),
        ALONE,
        RELEASED,
    ),
    "a node that is closed is released": (view(N.TAINTING, CLOSED, **AWAY), ALONE, RELEASED),
    "so is one whose gang is stopped": (
        view(N.DRAINING, CLOSED, **AWAY),
        around(requests=(gang(R.STOPPED),)),
        RELEASED,
    ),
    "operands that are off go back to what fits again": (view(N.UNLOADING, SWITCHED_OFF, **HOME), ALONE, TURNED),
    "a driver that loads nowhere there is not waited for": (view(N.LOADING, DRIVER_ON, **HOME), ALONE, TURNED),
    "nor is it validated": (view(N.VALIDATING, WHOLE, validate=RUNS, **HOME), ALONE, TURNED),
    "a plan's upgrade goes back also where what it had does not fit either": (
        view(N.LOADING, DRIVER_ON, **AWAY),
        ALONE,
        TURNED,
    ),
    "after a node upgrade's own reboot its Node shows the kernel of before for a while": (
        view(N.LOADING, SWITCHED_OFF, kernel=NEXT, **HOME),
        ALONE,
        stay(N.LOADING, f"waiting for the Node to show kernel {NEXT}; it still shows {KERNEL}"),
    ),
    "a third kernel after a node upgrade's own reboot is not waited for": (
        view(N.LOADING, SWITCHED_OFF, kernel=NEXT, **AWAY),
        ALONE,
        TURNED,
    ),
    "whose driver is taken away then": (
        view(N.LOADING, DRIVER_ON, **{**BACK, **AWAY}),
        ALONE,
        stay(
            N.LOADING,
            f"{WHY}; switching off the operands of the node",
            Act.REMOVE_DRIVER,
            reverting=True,
            failure="UpgradeFailed",
        ),
    ),
    "with what the node had kept on it": (
        view(N.LOADING, SWITCHED_OFF, **{**BACK, **AWAY}),
        ALONE,
        stay(
            N.LOADING,
            f"{WHY}; recording the former driver of the node",
            Act.REMOVE_DRIVER,
            reverting=True,
            failure="UpgradeFailed",
        ),
    ),
    "and it is released": (
        view(N.LOADING, KEPT, **{**BACK, **AWAY}),
        ALONE,
        go(N.RELEASING, WHY, "KernelChanged", reverting=True),
    ),
    "a repair that failed on its own kernel is for a person": (
        view(N.LOADING, DRIVER_ON, **{**BACK, **REPAIR, "planned": KERNEL, "former": THIRD}),
        ALONE,
        stay(N.LOADING, "switching the driver on", Act.DRIVER_ON, reverting=True, failure="UpgradeFailed"),
    ),
    "a sibling that is well goes back with it": (
        view(N.VALIDATING, WHOLE, validate=DONE),
        around(BARE),
        go(N.UNLOADING, "node v2 of the upgrade group reverts; reverting", "SiblingReverted", reverting=True),
    ),
    "so it does where one was released before it was switched off": (
        view(N.VALIDATING, WHOLE, validate=DONE),
        around(view(N.RELEASING, CLOSED, name="v2", uid="u2", failure="NotDrained")),
        go(N.UNLOADING, "node v2 of the upgrade group reverts; reverting", "SiblingReverted", reverting=True),
    ),
    "nobody waits for a gang to be placed on a node without a driver": (
        view(N.RELEASING, KEPT, failure="KernelChanged", **AWAY),
        around(requests=(gang(R.RESTARTING),)),
        stay(N.RELEASING, "releasing the node", Act.RELEASE, failure="KernelChanged"),
    ),
    "but for one that runs on its other nodes": (
        view(N.RELEASING, WHOLE),
        around(BARE, requests=(gang(R.RESTARTING, nodes=frozenset({"node-3"})),)),
        stay(N.RELEASING, "waiting for default/Job/train to be placed"),
    ),
    "so it is of a stack's upgrade": (
        view(N.LOADING, DRIVER_ON, **REPAIR, **AWAY),
        ALONE,
        stay(N.LOADING, f"{WHY}; switching off the operands of the node", Act.REMOVE_DRIVER),
    ),
    "so it is while it is validated": (
        view(N.VALIDATING, WHOLE, **REPAIR, **AWAY),
        ALONE,
        stay(N.VALIDATING, f"{WHY}; switching off the operands of the node", Act.REMOVE_DRIVER),
    ),
    "what the node had is kept on it": (
        view(N.LOADING, SWITCHED_OFF, **REPAIR, **AWAY),
        ALONE,
        stay(N.LOADING, f"{WHY}; recording the former driver of the node", Act.REMOVE_DRIVER),
    ),
    "its pods are waited for": (
        view(N.LOADING, KEPT, driver=OperandFacts(pods=1), **REPAIR, **AWAY),
        ALONE,
        stay(N.LOADING, f"{WHY}; waiting for 1 operand pod(s) to end", Act.REMOVE_DRIVER),
    ),
    "then it is begun anew": (view(N.LOADING, KEPT, **REPAIR, **AWAY), ALONE, RELEASED),
    "of a node that never had anything nothing is kept": (
        view(N.LOADING, SWITCHED_OFF, reason=UpgradeReason.INSTALL, **AWAY),
        ALONE,
        RELEASED,
    ),
    "an upgrade Job that works is waited for": (
        view(N.UPGRADING, SWITCHED_OFF, upgrade=RUNS, **HOME),
        ALONE,
        stay(N.UPGRADING, "the upgrade Job runs"),
    ),
    "the way back is not turned": (
        view(N.UNLOADING, CLOSED, **{**BACK, **HOME}),
        ALONE,
        stay(N.UNLOADING, "switching the operands off", Act.OPERANDS_OFF, reverting=True, failure="UpgradeFailed"),
    ),
    "what is to be released is released": (
        view(N.RELEASING, WHOLE, **HOME),
        ALONE,
        stay(N.RELEASING, "releasing the node", Act.RELEASE),
    ),
}
