"""What a look at a cluster or at a job found: whether it is well, and what to do where it is not."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"  # it works, and something will surprise somebody
    PROBLEM = "problem"  # something will not work, or work would be lost


class Advice(Struct, frozen=True, kw_only=True):
    """One finding: `check` is one word that never changes, `fix` is empty where there is nothing to do."""

    subject: str
    check: str
    severity: Severity
    message: str
    fix: str = ""


def problems(found: Iterable[Advice]) -> bool:
    """Whether anything has to be done."""
    return any(one.severity is Severity.PROBLEM for one in found)
