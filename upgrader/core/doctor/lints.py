"""What in a job would lose work, or keep its nodes waiting, although its author meant well.

Pure: a job as it stands in the cluster goes in, advice comes out; no finding means that nothing is known to be wrong.
"""

from upgrader.core.doctor import lints_asking, lints_stopping
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.lint_facts import Linted


def lint(facts: Linted) -> tuple[Advice, ...]:
    """All that is wrong with one job, worst first."""
    found = [advice for check in (*lints_asking.CHECKS, *lints_stopping.CHECKS) for advice in check(facts)]
    return tuple(sorted(found, key=lambda one: (one.severity is not Severity.PROBLEM, one.check)))
