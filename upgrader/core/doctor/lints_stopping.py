"""Lints of stops: settings that prevent a stop or a restart of a job, or make it fail.

As Kubernetes documents PodDisruptionBudgets (policy/v1) and podFailurePolicy (batch/v1).
"""

from collections.abc import Iterator

from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.lint_facts import Check, GangLintFacts, make_advice

PARKED_EXIT = 143
"""Exit code of a parked member that is stopped: 128 + SIGTERM."""


def _lint_disruption_budget(facts: GangLintFacts) -> Iterator[Advice]:
    for budget in facts.budgets:
        covered = sum(budget.name in member.budgets for member in facts.members)
        needed = 1 if facts.gang.replicated else covered
        if budget.most is None or budget.most >= needed:
            continue
        whole = "" if facts.gang.replicated else f"; a gang is stopped as a whole, which requires {needed}"
        yield make_advice(
            facts,
            Check.PDB_NEVER_ALLOWS,
            Severity.PROBLEM,
            f"PodDisruptionBudget {budget.name} never allows to evict more than {budget.most} of its pods{whole}: "
            "its nodes are never upgraded while it runs.",
            f"Give it maxUnavailable: {needed} or more, or delete it; checkpoint requests protect the job.",
        )


def _lint_two_budgets(facts: GangLintFacts) -> Iterator[Advice]:
    over = next((member for member in facts.members if len(member.budgets) > 1), None)
    if over is not None:
        yield make_advice(
            facts,
            Check.TWO_PDBS,
            Severity.PROBLEM,
            f"Pod {over.pod} is selected by {' and '.join(over.budgets)}: the API server evicts no pod that has more "
            "than one PodDisruptionBudget.",
            "Change the selector of one of them.",
        )


def _lint_failure_policy(facts: GangLintFacts) -> Iterator[Advice]:
    job = facts.job
    if job is None or any(rule.action == "Ignore" and "DisruptionTarget" in rule.conditions for rule in job.rules):
        return
    last = job.backoff_limit == 0
    yield make_advice(
        facts,
        Check.NO_FAILURE_POLICY,
        Severity.PROBLEM if last else Severity.WARNING,
        f"A pod that is evicted or preempted counts as failed, and {job.backoff_limit} failures are allowed: "
        + ("the first one ends the Job." if last else "disruptions use them up."),
        "Add a podFailurePolicy that ignores pods with the condition DisruptionTarget (it needs restartPolicy: Never).",
    )


def _lint_stop_fails(facts: GangLintFacts) -> Iterator[Advice]:
    for rule in facts.job.rules if facts.job is not None else ():
        listed = PARKED_EXIT in rule.exit_codes
        hit = (rule.operator == "In" and listed) or (rule.operator == "NotIn" and not listed)
        if hit and rule.action in {"FailJob", "FailIndex"}:
            yield make_advice(
                facts,
                Check.STOP_FAILS_JOB,
                Severity.PROBLEM,
                f"Its podFailurePolicy has action {rule.action} for exit code {PARKED_EXIT}, with which a parked "
                "member ends "
                "when it is stopped: the Job fails instead of being restarted.",
                f"Leave {PARKED_EXIT} (SIGTERM) out of that rule.",
            )
            return
        if hit or (listed and rule.operator == "In"):
            return  # the first rule that matches decides


def _lint_restart_policy(facts: GangLintFacts) -> Iterator[Advice]:
    member = next((candidate for candidate in facts.members if candidate.restart_policy == "OnFailure"), None)
    if member is not None and facts.job is not None:
        yield make_advice(
            facts,
            Check.RESTART_POLICY,
            Severity.WARNING,
            f"restartPolicy: OnFailure restarts a failed process of pod {member.pod} while other members continue, "
            "and allows no podFailurePolicy.",
            "Use restartPolicy: Never, so that the Job replaces failed pods.",
        )


def _lint_cannot_restart(facts: GangLintFacts) -> Iterator[Advice]:
    if facts.gang.cannot_stop and facts.methods and facts.methods != ("none",):
        yield make_advice(
            facts,
            Check.CANNOT_RESTART,
            Severity.WARNING,
            f"{facts.gang.cannot_stop} The plan waits until it ends, whatever it declares.",
            "Run it under an owner that can be suspended, such as a Job.",
        )


CHECKS = (
    _lint_disruption_budget,
    _lint_two_budgets,
    _lint_failure_policy,
    _lint_stop_fails,
    _lint_restart_policy,
    _lint_cannot_restart,
)
