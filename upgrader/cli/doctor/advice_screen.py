"""Text output of `upgrader doctor`: problems first, passed checks last."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from upgrader.cli.base.render import empty_table, plural_of, titled_table
from upgrader.cli.doctor.job_lints import JobReport
from upgrader.core.doctor.advice import Advice, Severity

_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}
_ORDER = (Severity.PROBLEM, Severity.WARNING, Severity.OK)


def advice_table(found: Sequence[Advice]) -> RenderableType:
    """The findings in a cluster, one row for each."""
    table = empty_table("", "Subject", "Finding", "Resolution")
    for one in sorted(found, key=lambda one: _ORDER.index(one.severity)):
        table.add_row(_severity_text(one), one.subject, one.message, one.fix)
    return Group(table, Padding(_count_findings(found), (1, 0, 0, 0)))


def job_tables(report: JobReport) -> RenderableType:
    """A table for each job with findings."""
    by_job: dict[str, list[Advice]] = {}
    for one in report.found:
        by_job.setdefault(one.subject, []).append(one)
    parts: list[RenderableType] = []
    for job, found in sorted(by_job.items()):
        table = empty_table("", "Check", "Finding", "Resolution")
        for one in found:
            table.add_row(_severity_text(one), one.check, one.message, one.fix)
        parts.append(titled_table(job, table))
    well = report.looked_at - len(by_job)
    last = f"{report.looked_at} {plural_of('job', report.looked_at)} checked, {well} without findings."
    return Group(*parts, Padding(Text(last, style="bold"), (1 if parts else 0, 0, 0, 0)))


def _severity_text(one: Advice) -> Text:
    return Text(one.severity.value, style=_STYLES[one.severity])


def _count_findings(found: Sequence[Advice]) -> Text:
    number = {severity: sum(one.severity is severity for one in found) for severity in Severity}
    problems, warnings = number[Severity.PROBLEM], number[Severity.WARNING]
    return Text(
        f"{problems} {plural_of('problem', problems)}, {warnings} {plural_of('warning', warnings)}, "
        f"{number[Severity.OK]} of {len(found)} checks passed.",
        style="bold",
    )
