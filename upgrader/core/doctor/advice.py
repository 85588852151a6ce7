"""Advice: a finding of a check of a cluster or a job, its severity, and what to do about it."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"  # it works, with effects that a user may not expect
    PROBLEM = "problem"  # it does not work, or work would be lost


class Advice(Struct, frozen=True, kw_only=True):
    """One finding: `check` is one word that never changes, `fix` is empty if there is nothing to do."""

    subject: str
    check: str
    severity: Severity
    message: str
    fix: str = ""


def has_problem(findings: Iterable[Advice]) -> bool:
    """Whether a finding is a problem."""
    return any(advice.severity is Severity.PROBLEM for advice in findings)
