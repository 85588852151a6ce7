"""Orders of the pods of a node upgrade: what it changes on its node, in its direction or that of its revert. Pure."""

from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.model.operands import PluginSettings
from upgrader.core.node_protocol.orders import (
    KubeletSettings,
    KubeletTarget,
    ModuleParameters,
    NodeDriver,
    PrepareOrder,
    Reboot,
    SurveyScope,
    UpgradeOrder,
)
from upgrader.stack.operands.order import hook_done_file
from upgrader.stack.settings import StackSettings

MANIFEST_FOLDER = "/manifest"
"""In the prepare pod: where the init container of the driver image writes the manifest."""


def prepare_order(upgrade: NodeUpgrade, settings: StackSettings, *, adopted: bool) -> PrepareOrder:
    """The checks before an upgrade. `adopted`: a user handed the node over from another operator."""
    target = upgrade.spec.target
    return PrepareOrder(
        kernel=target.kernel,
        driver=driver_of_state(target),
        manifest=f"{MANIFEST_FOLDER}/manifest.json",
        kubelet=_kubelet_target(upgrade, reverting=False),
        settings=_kubelet_settings(upgrade, reverting=False),
        reboot=_reboot_order(upgrade, reverting=False),
        parameters=dict(sorted(target.module_parameters.items())),
        survey=_survey_scope(upgrade, settings, adopted=adopted),
    )


def upgrade_order(upgrade: NodeUpgrade, *, reverting: bool, adopted: bool) -> UpgradeOrder:
    """The changes on the node. `adopted`: a user handed the node over from another operator."""
    return UpgradeOrder(
        upgrade=f"{upgrade.metadata.uid}{'-revert' if reverting else ''}",
        undoes=upgrade.metadata.uid if reverting else "",
        unload=_former_driver(upgrade, reverting=reverting),
        kubelet=_kubelet_target(upgrade, reverting=reverting),
        settings=_kubelet_settings(upgrade, reverting=reverting),
        reboot=_reboot_order(upgrade, reverting=reverting),
        parameters=_module_parameters(upgrade, reverting=reverting),
        forget=_hook_files(upgrade),
        stop_units=tuple(upgrade.spec.stop_units),
        adopted=adopted and not reverting,
        unload_timeout=upgrade.spec.limits.driver_unload_seconds,
    )


def driver_of_state(state: NodeState) -> NodeDriver:
    """The driver of a state."""
    return NodeDriver(vendor=state.driver_vendor, version=state.driver_version)


def _former_driver(upgrade: NodeUpgrade, *, reverting: bool) -> NodeDriver | None:
    """The driver to unload; None if its image and parameters stay the same: an unload would take minutes and lose the
    GPUs' state.

    A node that joined again has no labels, but a driver of the stack may still be loaded.
    """
    source, target = upgrade.spec.source, upgrade.spec.target
    same = source.driver_key == target.driver_key and source.module_parameters == target.module_parameters
    if source.driver_key and same:
        return None
    before = target if reverting else source
    return (
        driver_of_state(before)
        if before.driver_version
        else NodeDriver(vendor=upgrade.spec.target.driver_vendor, version="")
    )


def _hook_files(upgrade: NodeUpgrade) -> tuple[str, ...]:
    """Files that managed runtime hooks left on the node, which are off while the upgrade Job runs."""
    states = [state for state in (upgrade.spec.source, upgrade.spec.target) if state.runtime_key]
    plugins = [
        PluginSettings(
            vendor=state.vendor or state.driver_vendor,
            driver_vendor=state.driver_vendor,
            resource_name=state.resource_name,
        )
        for state in states
    ]
    return tuple(sorted({file for plugin in plugins if (file := hook_done_file(plugin))}))


def _kubelet_target(upgrade: NodeUpgrade, *, reverting: bool) -> KubeletTarget | None:
    """The kubelet to install in this direction; None if the stack does not manage it or its version does not change.

    A revert installs the version before the upgrade at the path of the upgrade: an earlier revision may not have
    managed the kubelet, and may not contain its path.
    """
    source, target = upgrade.spec.source, upgrade.spec.target
    after = source if reverting else target
    if not target.kubelet_version or not after.kubelet_version or source.kubelet_version == target.kubelet_version:
        return None
    return KubeletTarget(version=after.kubelet_version, binary=target.kubelet_binary)


def _survey_scope(upgrade: NodeUpgrade, settings: StackSettings, *, adopted: bool) -> SurveyScope:
    """What the upgrade changes, for the survey of the node."""
    source, target = upgrade.spec.source, upgrade.spec.target
    kubelet = _kubelet_target(upgrade, reverting=False)
    return SurveyScope(
        vendor=target.driver_vendor,
        kernel=target.kernel,
        swaps_driver=_former_driver(upgrade, reverting=False) is not None,
        kubelet=kubelet,
        restarts_kubelet=kubelet is not None or sets_kubelet(upgrade),
        binary=target.kubelet_binary or source.kubelet_binary,
        resources=tuple(sorted({target.resource_name, source.resource_name} - {""})),
        namespace=settings.namespace,
        ends_pods=ends_all_pods(upgrade),
        reboots=upgrade.spec.reboot is not None,
        adopted=adopted,
        managed_runtime=bool(target.runtime_key),
        stop_units=tuple(upgrade.spec.stop_units),
    )


def ends_all_pods(upgrade: NodeUpgrade) -> bool:
    """Whether the upgrade ends all pods on the node, with GPUs or without; a reboot that may be needed counts."""
    return upgrade.spec.reboot is not None or sets_kubelet(upgrade)


def sets_kubelet(upgrade: NodeUpgrade) -> bool:
    """Whether the upgrade changes how the kubelet places pods on CPUs, which requires a node without running pods."""
    return upgrade.spec.source.kubelet_settings != upgrade.spec.target.kubelet_settings


def _kubelet_settings(upgrade: NodeUpgrade, *, reverting: bool) -> KubeletSettings | None:
    """The settings of the kubelet in this direction; None if they do not change."""
    if not sets_kubelet(upgrade):
        return None
    source, target = upgrade.spec.source, upgrade.spec.target
    after = source if reverting else target
    return KubeletSettings(
        binary=target.kubelet_binary or source.kubelet_binary, values=dict(sorted(after.kubelet_settings.items()))
    )


def _module_parameters(upgrade: NodeUpgrade, *, reverting: bool) -> ModuleParameters:
    """The parameters of modules after the upgrade in this direction.

    Also if there are none: the disk of a node that was released may have those of an earlier stack.
    """
    after = upgrade.spec.source if reverting else upgrade.spec.target
    values = dict(sorted(after.module_parameters.items()))
    return ModuleParameters(vendor=upgrade.spec.target.driver_vendor, values=values)


def _reboot_order(upgrade: NodeUpgrade, *, reverting: bool) -> Reboot | None:
    """The reboot in this direction; a revert leads to the kernel before the upgrade and does nothing if that still
    runs.
    """
    reboot = upgrade.spec.reboot
    if reboot is None:
        return None
    kernel = reboot.source if reverting else reboot.target
    return Reboot(
        kernel=kernel,
        select=tuple(reboot.select),
        restart=tuple(reboot.restart),
        settle_timeout=reboot.settle_seconds,
        report_losses=reboot.on_loss == "Report",
        only_after_failed_unload=not reboot.is_certain,
    )
