"""Values derived from the states before and after a node upgrade. Pure."""

from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.model.operands import PluginSettings


def expected_devices(upgrade: NodeUpgrade, after: NodeState, devices: int) -> int:
    """Number of devices that the node is expected to advertise in a state, from those before the upgrade and their
    sharing.

    0, which means at least one, if the number is unknown: the node was never installed, or is partitioned or shared
    differently now.
    """
    before = upgrade.spec.source
    if before.mig_strategy != after.mig_strategy:
        return 0
    if before.shares == after.shares:
        return devices
    # With `mixed` only whole GPUs are shared, and the number of these before the upgrade is not recorded.
    return 0 if after.mig_strategy == "mixed" else devices // before.shares * after.shares


def plugin_settings(state: NodeState) -> PluginSettings:
    """The settings of the device plugin in a state."""
    return PluginSettings(
        vendor=state.vendor or state.driver_vendor,
        driver_vendor=state.driver_vendor,
        resource_name=state.resource_name,
        time_slices=state.time_slices,
        mps_replicas=state.mps_replicas,
        mps_runtime=state.mps_runtime,
        mig_strategy=state.mig_strategy,
        cdi=bool(state.runtime_image),
    )
