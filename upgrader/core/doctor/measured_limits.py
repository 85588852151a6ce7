"""Limits of phases compared with the durations of ended node upgrades. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from math import ceil

from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.model.phases import NodePhase
from upgrader.core.model.upgrade_limits import UpgradeLimits

MIN_MEASURED = 5
"""Ended phases below which nothing is concluded from their durations."""
MARGIN = 2
"""A limit is at least this many times the 95th percentile of the durations."""
LIMIT_FIELDS = {
    NodePhase.UNLOADING: "unloadingSeconds",
    NodePhase.UPGRADING: "upgradingSeconds",
    NodePhase.LOADING: "loadingSeconds",
    NodePhase.VALIDATING: "validatingSeconds",
}
"""The fields of `spec.limits` of a stack by phase."""


def check_limits(stack: str, limits: UpgradeLimits, durations: Mapping[NodePhase, Sequence[float]]) -> list[Advice]:
    """A warning for each limit that a slower node would exceed; one that all are wide enough if enough was measured.

    Args:
        stack: name of the stack.
        limits: its limits.
        durations: of ended phases of its node upgrades, in seconds.
    """
    subject = f"limits of stack {stack}"
    measured = {phase: durations.get(phase, ()) for phase in LIMIT_FIELDS}
    enough = {phase: _percentile_95(seconds) for phase, seconds in measured.items() if len(seconds) >= MIN_MEASURED}
    warnings = [
        Advice(
            subject=subject,
            check="LimitTooTight",
            severity=Severity.WARNING,
            message=f"95 % of {len(measured[phase])} phases {phase.value} took up to {ceil(longest)} s; "
            f"spec.limits.{LIMIT_FIELDS[phase]} is {limits.phase_seconds(phase)}",
            fix=f"Set spec.limits.{LIMIT_FIELDS[phase]} to {ceil(MARGIN * longest)}, or find out why nodes are slow.",
        )
        for phase, longest in enough.items()
        if MARGIN * longest > (limits.phase_seconds(phase) or 0)
    ]
    if warnings or not enough:
        return warnings
    message = "each is at least twice the 95th percentile of the measured durations: " + ", ".join(
        f"{phase.value} {ceil(longest)} s" for phase, longest in enough.items()
    )
    return [Advice(subject=subject, check="LimitsMeasured", severity=Severity.OK, message=message)]


def _percentile_95(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=20, method="inclusive")[-1]
