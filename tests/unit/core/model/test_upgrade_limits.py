"""Limits of a node upgrade: their defaults and bounds, and the time that a gang may stay stopped."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.manifests import changed, gpu_stack
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.model.phases import NodePhase, RequestPhase, transition_of
from upgrader.core.model.upgrade_limits import (
    STOP_MARGIN_SECONDS,
    UNLOAD_MARGIN_SECONDS,
    UpgradeLimits,
    gang_stop_seconds,
)

DEFAULTS = {
    "unloadingSeconds": 300,
    "driverUnloadSeconds": 600,
    "upgradingSeconds": 2700,
    "loadingSeconds": 900,
    "validatingSeconds": 1800,
}
BOUNDS = {
    "unloadingSeconds": (60, 7200),
    "driverUnloadSeconds": (60, 7200),
    "upgradingSeconds": (300, 14400),
    "loadingSeconds": (60, 7200),
    "validatingSeconds": (300, 28800),
}
LIMITED = (NodePhase.UNLOADING, NodePhase.UPGRADING, NodePhase.LOADING, NodePhase.VALIDATING)


def limits_of(**values: int) -> UpgradeLimits:
    stack = msgspec.convert(changed(gpu_stack(), "spec.limits", values), GpuStack)
    return stack.spec.limits


@st.composite
def drawn_limits(draw: st.DrawFn) -> UpgradeLimits:
    return limits_of(**{name: draw(st.integers(*bounds)) for name, bounds in BOUNDS.items()})


def test_the_defaults_are_written_in_full():
    assert msgspec.to_builtins(msgspec.convert(gpu_stack(), GpuStack).spec.limits) == DEFAULTS


@pytest.mark.parametrize("name", BOUNDS)
def test_a_limit_has_bounds_and_an_error_names_it(name):
    lowest, highest = BOUNDS[name]
    assert [msgspec.to_builtins(limits_of(**{name: value}))[name] for value in (lowest, highest)] == [lowest, highest]
    for value in (lowest - 1, highest + 1, 0, -1):
        with pytest.raises(msgspec.ValidationError, match=rf"\$\.spec\.limits\.{name}"):
            limits_of(**{name: value})


@pytest.mark.parametrize("phase", [phase for phase in NodePhase if phase not in LIMITED])
def test_a_phase_that_the_stack_does_not_limit_has_its_default(phase):
    assert UpgradeLimits().phase_seconds(phase) == transition_of(phase).seconds


def test_each_limit_is_that_of_its_phase():
    limits = limits_of(unloadingSeconds=61, upgradingSeconds=5000, loadingSeconds=62, validatingSeconds=3600)
    assert [limits.phase_seconds(phase) for phase in LIMITED] == [61, 5000, 62, 3600]
    assert [limits.pod_seconds(phase) for phase in (NodePhase.UPGRADING, NodePhase.VALIDATING)] == [4940, 3540]


def test_the_removal_of_the_modules_ends_before_the_pod_that_waits_for_it():
    shortest = UpgradeLimits(driver_unload_seconds=600, upgrading_seconds=600 + UNLOAD_MARGIN_SECONDS)
    assert shortest.driver_unload_seconds < shortest.pod_seconds(NodePhase.UPGRADING)


def test_a_stopped_gang_waits_as_long_as_upgrades_with_the_default_limits_may_take():
    assert gang_stop_seconds(()) == gang_stop_seconds([UpgradeLimits()])
    assert transition_of(RequestPhase.STOPPED).seconds == gang_stop_seconds(())


@given(group=st.lists(drawn_limits(), min_size=1, max_size=4), data=st.data())
def test_a_gang_stays_stopped_longer_than_any_way_of_its_group_may_take(group, data):
    """Draining, Unloading to Validating forward, the same in a revert, Releasing; in each the slowest node counts."""
    way = (NodePhase.DRAINING, *LIMITED, *LIMITED, NodePhase.RELEASING)
    taken = sum(data.draw(st.sampled_from(group)).phase_seconds(phase) or 0 for phase in way)
    assert gang_stop_seconds(group) >= taken + STOP_MARGIN_SECONDS
