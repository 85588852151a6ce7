"""Limits of phases beside measured durations."""

from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.measured_limits import LIMIT_FIELDS, MARGIN, MIN_MEASURED, check_limits
from upgrader.core.model.phases import NodePhase
from upgrader.core.model.upgrade_limits import UpgradeLimits

LIMITS = UpgradeLimits(unloading_seconds=300, upgrading_seconds=2700, loading_seconds=900, validating_seconds=1800)
SECONDS = st.lists(st.integers(0, 10_000), max_size=40)


def test_a_limit_near_the_durations_is_a_warning_with_the_value_to_set():
    durations = {NodePhase.UPGRADING: [1000, 1200, 1400, 1450, 1500], NodePhase.LOADING: [20] * 5}
    assert check_limits("pool", LIMITS, durations) == [
        Advice(
            subject="limits of stack pool",
            check="LimitTooTight",
            severity=Severity.WARNING,
            message="95 % of 5 phases Upgrading took up to 1490 s; spec.limits.upgradingSeconds is 2700",
            fix="Set spec.limits.upgradingSeconds to 2980, or find out why nodes are slow.",
        )
    ]


def test_wide_limits_are_well():
    (advice,) = check_limits("pool", LIMITS, {NodePhase.UNLOADING: [10, 20, 30, 40, 50], NodePhase.LOADING: [899]})
    assert (advice.check, advice.severity) == ("LimitsMeasured", Severity.OK)
    assert advice.message.endswith(": Unloading 48 s")


@given(st.dictionaries(st.sampled_from(sorted(NodePhase)), SECONDS))
def test_what_it_advises_is_enough(durations):
    """An advised limit is higher than the present one, and of a phase that was measured often enough."""
    found = check_limits("pool", LIMITS, durations)
    assert all(advice.severity is not Severity.PROBLEM for advice in found)
    fields = {field: phase for phase, field in LIMIT_FIELDS.items()}
    fixes = [advice.fix.removeprefix("Set spec.limits.").split(",")[0] for advice in found if advice.fix]
    for field, seconds in (fix.split(" to ") for fix in fixes):
        phase = fields[field]
        assert len(durations[phase]) >= MIN_MEASURED
        assert int(seconds) > (LIMITS.phase_seconds(phase) or 0) >= 0
        enough = sorted(durations[phase])
        assert int(seconds) <= MARGIN * enough[-1]
