"""Lints: settings of a job that would lose work, or block its nodes, against its author's intention.

Pure: from a job as it is in the cluster to advice; no finding means that no fault is known.
"""

from upgrader.core.doctor import lints_asking, lints_stopping
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.lint_facts import GangLintFacts


def lint_job(facts: GangLintFacts) -> tuple[Advice, ...]:
    """All findings on one job, the worst first."""
    findings = [advice for check in (*lints_asking.CHECKS, *lints_stopping.CHECKS) for advice in check(facts)]
    return tuple(sorted(findings, key=lambda advice: (advice.severity is not Severity.PROBLEM, advice.check)))
