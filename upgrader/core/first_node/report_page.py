"""The first page of a report: each phase with its verdict, the findings, and the phases that cannot run. Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from upgrader.core.doctor.advice import Advice
from upgrader.core.first_node.journal import PhaseJournal, PhaseRun, PutBack
from upgrader.core.first_node.phases import PHASES, Effect, FirstNodePhase, next_phase
from upgrader.core.first_node.report_rows import MeasuredRow, MissedRow

_ABOUT = """Names, addresses, serial numbers and identifiers are pseudonyms: the same name has the same pseudonym. The
folder `private` beside this report has the key and the names; do not pass it on."""


class PhaseResult(Struct, frozen=True, kw_only=True):
    """What a phase found. `message`: one sentence for the report. For its folder, by name: `files` are texts, and
    `documents` are values that are written as JSON.
    """

    message: str
    facts: dict[str, str] = {}
    findings: tuple[Advice, ...] = ()
    measured: tuple[MeasuredRow, ...] = ()
    missed: tuple[MissedRow, ...] = ()
    files: dict[str, str] = {}
    documents: dict[str, Any] = {}
    skipped: bool = False


def render_report(journal: PhaseJournal, results: Mapping[int, PhaseResult]) -> str:
    """The text of report.md. `results`: of the phases that have run."""
    facts = {name: value for number in sorted(results) for name, value in results[number].facts.items()}
    last = {entry.phase: entry for entry in journal.entries}
    parts = [
        "# First hour with one node",
        _ABOUT,
        _make_table(("fact", "value"), facts.items()),
        "## Phases",
        _make_table(
            ("phase", "effect", "verdict", "seconds", "result"),
            (_phase_row(phase, last.get(phase.number)) for phase in PHASES),
        ),
        describe_next(journal),
    ]
    if journal.left:
        parts += ["## Not put back", _make_list(describe_change(change) for change in journal.left)]
    findings = [advice for number in sorted(results) for advice in results[number].findings]
    if findings:
        parts += [
            "## Findings",
            _make_table(
                ("severity", "subject", "finding", "resolution"),
                ((advice.severity.value, advice.subject, advice.message, advice.fix) for advice in findings),
            ),
        ]
    files = [
        f"[{PHASES[number].folder}/{name}]({PHASES[number].folder}/{name})"
        for number in sorted(results)
        for name in sorted({*results[number].files, *results[number].documents})
    ]
    parts += [
        "## Files",
        "`measured.csv`: durations beside the limits of upgrader. `missed.csv`: what upgrader did not find.",
        "\n".join(f"- {link}" for link in files),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def describe_next(journal: PhaseJournal) -> str:
    """A sentence with the next phase and what it will change."""
    phase = next_phase(journal.completed)
    if phase is None:
        return "All phases that are available have been completed."
    if phase.effect is Effect.READ_ONLY:
        return f"Next: phase {phase.number} ({phase.title}), which only reads: `--go {phase.number}`."
    command = f"`--go {phase.number}{phase.options}`"
    return (
        f"Next: phase {phase.number} ({phase.title}): {command}. It changes: {phase.changes}. "
        f"Put back: {phase.put_back}."
    )


def describe_change(change: PutBack) -> str:
    """A change that is to be put back, as text."""
    where = f"{change.namespace}/" if change.namespace else ""
    return f"{change.action.value} {where}{change.name}"


def _phase_row(phase: FirstNodePhase, entry: PhaseRun | None) -> Sequence[str]:
    head = (f"{phase.number} {phase.title}", phase.effect.value)
    if phase.unavailable:
        return (*head, "not available", "", phase.unavailable)
    if entry is None:
        return (*head, "not run", "", f"changes: {phase.changes}" if phase.changes else "")
    return (*head, entry.verdict.value, f"{entry.seconds:.1f}", entry.message)


def _make_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(_plain_cell(cell) for cell in line)} |" for line in lines)


def _make_list(items: Iterable[str]) -> str:
    return "\n".join(f"- {_plain_cell(item)}" for item in items)


def _plain_cell(text: str) -> str:
    """A text as one line without markup; it may be from a node."""
    line = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "|`<>[]\\" else letter for letter in line)
