"""Limits of the phases of a node upgrade: set by a stack, recorded in each NodeUpgrade when it is created."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from upgrader.core.fields import Resource
from upgrader.core.model.phases import NodePhase, transition_of

JOB_MARGIN_SECONDS = 60
"""The deadline of node pods is this long before that of their phase, so that none runs when a revert starts."""

UNLOAD_MARGIN_SECONDS = 120
"""Least time of the phase Upgrading beyond the removal of the driver's modules."""

REBOOT_MARGIN_SECONDS = 900
"""The same if the node is rebooted when the driver cannot be unloaded: shutdown, and the firmware's self-test."""

STOP_MARGIN_SECONDS = 600
"""Beyond the phases of a node upgrade, how long a gang stays stopped: for the steps of the controller between them."""

_N = NodePhase
_ONCE = (_N.DRAINING, _N.RELEASING)
_TWICE = (_N.UNLOADING, _N.UPGRADING, _N.LOADING, _N.VALIDATING)
"""Phases of an upgrade, and of its revert."""


def _default_seconds(phase: NodePhase) -> int:
    return transition_of(phase).seconds or 0


class UpgradeLimits(Resource, frozen=True, kw_only=True, omit_defaults=False):
    """Maximum durations of the phases of a node upgrade that depend on the machines of the pool. When one has passed,
    the node reverts. A revert has the same limits. Defaults are written out, since a NodeUpgrade outlives a release.
    """

    unloading_seconds: Annotated[
        int,
        Meta(
            description="Maximum duration of the phase Unloading, in seconds: until the pods of all operands have left "
            "the node. Defaults to 300.",
            ge=60,
            le=7200,
        ),
    ] = _default_seconds(_N.UNLOADING)
    driver_unload_seconds: Annotated[
        int,
        Meta(
            description="Maximum time, in seconds, for the removal of the driver's kernel modules, which the kernel "
            "does not cancel. A part of the phase Upgrading. Defaults to 600.",
            ge=60,
            le=7200,
        ),
    ] = 600
    upgrading_seconds: Annotated[
        int,
        Meta(
            description="Maximum duration of the phase Upgrading, in seconds: removal of the driver's modules, change "
            "of the kubelet, and reboot with the firmware's self-test. At least 120 more than driverUnloadSeconds. "
            "Defaults to 2700.",
            ge=300,
            le=14400,
        ),
    ] = _default_seconds(_N.UPGRADING)
    loading_seconds: Annotated[
        int,
        Meta(
            description="Maximum duration of the phase Loading, in seconds: until the driver is loaded and the device "
            "plugin has registered its GPUs. Defaults to 900.",
            ge=60,
            le=7200,
        ),
    ] = _default_seconds(_N.LOADING)
    validating_seconds: Annotated[
        int,
        Meta(
            description="Maximum duration of the phase Validating, in seconds: checks of the driver, and the workload "
            "of the stack. Defaults to 1800.",
            ge=300,
            le=28800,
        ),
    ] = _default_seconds(_N.VALIDATING)

    def phase_seconds(self, phase: NodePhase) -> int | None:
        """The limit of a phase; None if the phase has none. A phase that the stack does not limit has its default."""
        limits = {
            _N.UNLOADING: self.unloading_seconds,
            _N.UPGRADING: self.upgrading_seconds,
            _N.LOADING: self.loading_seconds,
            _N.VALIDATING: self.validating_seconds,
        }
        return limits.get(phase, transition_of(phase).seconds)

    def pod_seconds(self, phase: NodePhase) -> int:
        """The deadline of the node pods of a phase."""
        return (self.phase_seconds(phase) or 0) - JOB_MARGIN_SECONDS


def gang_stop_seconds(limits: Iterable[UpgradeLimits]) -> int:
    """How long a gang may stay stopped, from its stop: as long as the upgrades of its nodes and their reverts may take.

    Args:
        limits: of the upgrades of the group; none: the defaults.
    """
    group = tuple(limits) or (UpgradeLimits(),)
    longest = (max(each.phase_seconds(phase) or 0 for each in group) for phase in (*_ONCE, *_TWICE, *_TWICE))
    return sum(longest) + STOP_MARGIN_SECONDS
