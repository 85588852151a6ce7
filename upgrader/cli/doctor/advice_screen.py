"""Text output of `upgrader doctor`: problems first, passed checks last."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from upgrader.cli.base.render import empty_table, plural_of, titled_table
from upgrader.cli.doctor.job_lints import JobLintReport
from upgrader.cli.doctor.node_survey import NodeSurvey
from upgrader.core.doctor.advice import Advice, Severity

_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}
_ORDER = (Severity.PROBLEM, Severity.WARNING, Severity.OK)


def advice_table(findings: Sequence[Advice]) -> RenderableType:
    """The findings in a cluster, one row for each."""
    table = empty_table("", "Subject", "Finding", "Resolution")
    for advice in sorted(findings, key=lambda advice: _ORDER.index(advice.severity)):
        table.add_row(_severity_text(advice), advice.subject, advice.message, advice.fix)
    return Group(table, Padding(_count_findings(findings), (1, 0, 0, 0)))


def job_tables(report: JobLintReport) -> RenderableType:
    """A table for each job with findings."""
    by_job: dict[str, list[Advice]] = {}
    for advice in report.found:
        by_job.setdefault(advice.subject, []).append(advice)
    parts: list[RenderableType] = []
    for job, findings in sorted(by_job.items()):
        table = empty_table("", "Check", "Finding", "Resolution")
        for advice in findings:
            table.add_row(_severity_text(advice), advice.check, advice.message, advice.fix)
        parts.append(titled_table(job, table))
    well = report.looked_at - len(by_job)
    last = f"{report.looked_at} {plural_of('job', report.looked_at)} checked, {well} without findings."
    return Group(*parts, Padding(Text(last, style="bold"), (1 if parts else 0, 0, 0, 0)))


def survey_tables(surveys: Sequence[NodeSurvey]) -> RenderableType:
    """The facts and findings of each node."""
    parts: list[RenderableType] = []
    for survey in surveys:
        facts = empty_table("Fact", "Value")
        for name, value in survey.report.facts.items():
            facts.add_row(name, value)
        parts += [titled_table(f"node {survey.node}", facts), advice_table(survey.report.findings)]
    return Group(*parts)


def _severity_text(advice: Advice) -> Text:
    return Text(advice.severity.value, style=_STYLES[advice.severity])


def _count_findings(findings: Sequence[Advice]) -> Text:
    number = {severity: sum(advice.severity is severity for advice in findings) for severity in Severity}
    problems, warnings = number[Severity.PROBLEM], number[Severity.WARNING]
    return Text(
        f"{problems} {plural_of('problem', problems)}, {warnings} {plural_of('warning', warnings)}, "
        f"{number[Severity.OK]} of {len(findings)} checks passed.",
        style="bold",
    )
