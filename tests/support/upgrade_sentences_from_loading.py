"""The next step of a node upgrade from where its driver is loaded: sentence, node, group, decision."""

from datetime import timedelta

from tests.support.upgrade_cases import (
    ALONE,
    BACK,
    BUSY,
    DONE,
    DRIVER_ON,
    FUTURE,
    GIVE_UP,
    GONE_MESSAGE,
    ONE,
    PAST,
    RUNS,
    STARTING,
    SWITCHED_OFF,
    WHOLE,
    N,
    around,
    go,
    sibling,
    stay,
    view,
)
from upgrader.core.node_upgrade.upgrade_state import Act, OperandFacts
from upgrader_dev.simulated.cluster.ports import START

FROM_LOADING = {
    # ---- Loading
    "the driver is switched on": (
        view(N.LOADING, SWITCHED_OFF),
        ALONE,
        stay(N.LOADING, "switching the driver on", Act.DRIVER_ON),
    ),
    "the driver is waited for": (
        view(N.LOADING, DRIVER_ON, driver=STARTING),
        ALONE,
        stay(N.LOADING, "waiting for the driver to be loaded"),
    ),
    "a service of the driver that fails is named": (
        view(N.LOADING, DRIVER_ON, driver=OperandFacts(pods=1, trouble="container fabricmanager ended with 18")),
        ALONE,
        stay(N.LOADING, "waiting for the driver to be loaded: container fabricmanager ended with 18"),
    ),
    "the operands are switched on": (
        view(N.LOADING, DRIVER_ON, driver=ONE),
        ALONE,
        stay(N.LOADING, "switching the operands on", Act.OPERANDS_ON),
    ),
    "a runtime hook of another revision is switched with the driver": (
        view(N.LOADING, {**WHOLE, "runtime_key": "r-old"}, driver=ONE, plugin=ONE, runtime_key="r-new"),
        ALONE,
        stay(N.LOADING, "switching the driver on", Act.DRIVER_ON),
    ),
    "the runtime hook is waited for before the plugin": (
        view(N.LOADING, {**WHOLE, "runtime_key": "r-new"}, driver=ONE, runtime=STARTING, runtime_key="r-new"),
        ALONE,
        stay(N.LOADING, "waiting for the runtime hook"),
    ),
    "somebody else's plugin is waited for by nothing but what it offers": (
        view(N.LOADING, {**WHOLE, "plugin_key": "", "gpus_allocatable": 0}, driver=ONE, plugin_key=""),
        ALONE,
        stay(N.LOADING, "0 GPUs allocatable, 8 expected"),
    ),
    "the plugin is waited for": (
        view(N.LOADING, WHOLE, driver=ONE, plugin=STARTING),
        ALONE,
        stay(N.LOADING, "waiting for the device plugin to register with the kubelet"),
    ),
    "the node is waited for": (
        view(N.LOADING, {**WHOLE, "ready": False}, driver=ONE, plugin=ONE),
        ALONE,
        stay(N.LOADING, "waiting for the node to be Ready"),
    ),
    "a GPU is missing": (
        view(N.LOADING, {**WHOLE, "gpus_allocatable": 7}, driver=ONE, plugin=ONE),
        ALONE,
        go(N.VALIDATING, "7 GPUs allocatable, 8 expected"),
    ),
    "all GPUs are missing, as while the plugin registers": (
        view(N.LOADING, {**WHOLE, "gpus_allocatable": 0}, driver=ONE, plugin=ONE),
        ALONE,
        stay(N.LOADING, "0 GPUs allocatable, 8 expected"),
    ),
    "a new node shows a GPU that is not well": (
        view(N.LOADING, {**WHOLE, "gpus_allocatable": 7}, driver=ONE, plugin=ONE, expected_gpus=0),
        ALONE,
        go(N.VALIDATING, "7 GPUs allocatable, 8 expected"),
    ),
    "a new node must show at least one GPU": (
        view(N.LOADING, {**WHOLE, "gpus_allocatable": 0}, driver=ONE, plugin=ONE, expected_gpus=0),
        ALONE,
        stay(N.LOADING, "0 GPUs allocatable, some expected"),
    ),
    "all GPUs are there": (
        view(N.LOADING, WHOLE, driver=ONE, plugin=ONE),
        ALONE,
        go(N.VALIDATING, "8 GPUs allocatable"),
    ),
    "a new node that goes back has nothing to switch on": (
        view(N.LOADING, {**SWITCHED_OFF, "plugin_key": ""}, **{**BACK, "driver_key": "", "plugin_key": ""}),
        ALONE,
        go(
            N.RELEASING,
            "nothing was installed before, so nothing is switched on",
            "UpgradeFailed",
            reverting=True,
        ),
    ),
    "the driver is not loaded in time": (
        view(N.LOADING, DRIVER_ON, driver=STARTING, deadline=START),
        ALONE,
        go(
            N.UNLOADING,
            "Loading exceeded its deadline: waiting for the driver to be loaded; reverting",
            "LoadingLate",
            reverting=True,
        ),
    ),
    "the former driver is not loaded in time either": (
        view(N.LOADING, {**DRIVER_ON, "driver_key": "k-old", "plugin_key": "p-old"}, deadline=START, **BACK),
        ALONE,
        go(
            N.FAILED,
            f"Loading exceeded its deadline: waiting for the driver to be loaded; {GIVE_UP}",
            "RevertFailed",
            reverting=True,
        ),
    ),
    "the node is deleted while switched on": (view(N.LOADING), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
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
    "valid, and waiting for a sibling past its own deadline, until the sibling's": (
        view(N.VALIDATING, WHOLE, validate=DONE, deadline=PAST),
        around(sibling(N.UPGRADING)),
        stay(
            N.VALIDATING,
            "validation succeeded; waiting for node v2 of the upgrade group",
            on_siblings=True,
            deadline=FUTURE,
        ),
    ),
    "a GPU turns unhealthy after it was valid": (
        view(N.VALIDATING, {**WHOLE, "gpus_allocatable": 7}, validate=DONE),
        around(sibling(N.VALIDATING, validate=DONE)),
        stay(N.VALIDATING, "validation succeeded, but now 7 GPUs allocatable, 8 expected", blocked="GPUsMissing"),
    ),
    "a GPU stays unhealthy until the deadline": (
        view(N.VALIDATING, {**WHOLE, "gpus_allocatable": 7}, validate=DONE, deadline=PAST),
        ALONE,
        go(
            N.UNLOADING,
            "Validating exceeded its deadline: validation succeeded, but now 7 GPUs allocatable, 8 expected; reverting",
            "ValidatingLate",
            reverting=True,
        ),
    ),
    "a sibling's GPU turns unhealthy after it was valid": (
        view(N.VALIDATING, WHOLE, validate=DONE),
        around(view(N.VALIDATING, {**WHOLE, "gpus_allocatable": 7}, name="v2", uid="u2", validate=DONE)),
        stay(N.VALIDATING, "validation succeeded; waiting for node v2 of the upgrade group", on_siblings=True),
    ),
    "validation succeeded on all nodes of the upgrade group": (
        view(N.VALIDATING, WHOLE, validate=DONE),
        around(sibling(N.VALIDATING, validate=DONE), sibling(N.NODE_DELETED)),
        go(N.RELEASING, "validation succeeded on all nodes of the upgrade group"),
    ),
    "a sibling left because both were valid": (
        view(N.VALIDATING, WHOLE, validate=DONE),
        around(sibling(N.RELEASING), sibling(N.UNLOADING, reverting=True)),
        go(N.RELEASING, "validation succeeded; node v2 of the upgrade group is being released"),
    ),
    "a sibling left, and this one's validation pod is gone": (
        view(N.VALIDATING, WHOLE),
        around(sibling(N.RELEASING)),
        stay(N.VALIDATING, "starting the validation pod", Act.VALIDATE),
    ),
    "a sibling left, and a GPU turned unhealthy meanwhile": (
        view(N.VALIDATING, {**WHOLE, "gpus_allocatable": 7}, validate=DONE),
        around(sibling(N.RELEASING)),
        stay(N.VALIDATING, "validation succeeded, but now 7 GPUs allocatable, 8 expected", blocked="GPUsMissing"),
    ),
    "a sibling left, and a GPU stays unhealthy until the deadline": (
        view(N.VALIDATING, {**WHOLE, "gpus_allocatable": 7}, validate=DONE, deadline=PAST),
        around(sibling(N.RELEASING)),
        go(
            N.UNLOADING,
            "Validating exceeded its deadline: validation succeeded, but now 7 GPUs allocatable, 8 expected; reverting",
            "ValidatingLate",
            reverting=True,
        ),
    ),
    "a sibling goes back, so this one does": (
        view(N.VALIDATING, WHOLE, validate=DONE),
        around(sibling(N.UNLOADING, reverting=True)),
        go(N.UNLOADING, "node v2 of the upgrade group reverts; reverting", "SiblingReverted", reverting=True),
    ),
    "a sibling is lost, so this one goes back": (
        view(N.VALIDATING, WHOLE, validate=DONE),
        around(sibling(N.FAILED, reverting=True)),
        go(N.UNLOADING, "node v2 of the upgrade group reverts; reverting", "SiblingReverted", reverting=True),
    ),
    "valid on the way back, with a sibling that is back": (
        view(N.VALIDATING, WHOLE, validate=DONE, **BACK),
        around(sibling(N.RELEASING, reverting=True, failure="NotValid")),
        go(N.RELEASING, "validation succeeded on all nodes of the upgrade group", "UpgradeFailed", reverting=True),
    ),
    "validation fails": (
        view(N.VALIDATING, WHOLE, validate=BUSY),
        ALONE,
        go(N.UNLOADING, "in use by pid 7; reverting", "NotValid", reverting=True),
    ),
    "validation fails on the way back": (
        view(N.VALIDATING, WHOLE, validate=BUSY, **BACK),
        ALONE,
        stay(
            N.VALIDATING,
            "in use by pid 7; switching the operands off before the upgrade fails",
            Act.OPERANDS_OFF,
            failure="UpgradeFailed",
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
            "Validating exceeded its deadline: in use by pid 7; switching the operands off before the "
            "upgrade fails; "
            "the revert failed: its operands could not be switched off and the taint stays; repair the node, then "
            "delete NodeUpgrade v1 to have the node installed again",
            "RevertFailed",
            reverting=True,
        ),
    ),
    "validation takes too long": (
        view(N.VALIDATING, WHOLE, validate=RUNS, deadline=START),
        ALONE,
        go(
            N.UNLOADING,
            "Validating exceeded its deadline: the validation pod runs; reverting",
            "ValidatingLate",
            reverting=True,
        ),
    ),
    "the node is deleted while validated": (view(N.VALIDATING), ALONE, go(N.NODE_DELETED, GONE_MESSAGE)),
}
