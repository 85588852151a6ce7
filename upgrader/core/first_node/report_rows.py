"""Rows of a report: durations beside the limits of upgrader, and what upgrader did not find. As CSV."""

import csv
import io
from collections.abc import Iterable, Sequence

from msgspec import Struct

_FORMULA = ("=", "+", "-", "@", "\t")
"""Begins of cells that spreadsheets evaluate."""


class MeasuredRow(Struct, frozen=True, kw_only=True):
    """A duration, and the limit that upgrader has for it; 0: none."""

    what: str
    seconds: float
    limit: float = 0.0

    @property
    def ratio(self) -> float | None:
        """The part of the limit that was used."""
        return round(self.seconds / self.limit, 3) if self.limit else None


class MissedRow(Struct, frozen=True, kw_only=True):
    """Something that another source has and upgrader has not, or the reverse."""

    expected: str
    found: str
    where: str


def measured_csv(rows: Iterable[MeasuredRow]) -> str:
    """The contents of measured.csv."""
    cells = ((row.what, f"{row.seconds:.3f}", f"{row.limit:g}" if row.limit else "", row.ratio or "") for row in rows)
    return _format_rows(("what", "seconds", "limit", "ratio"), cells)


def missed_csv(rows: Iterable[MissedRow]) -> str:
    """The contents of missed.csv."""
    return _format_rows(("expected", "found", "where"), ((row.expected, row.found, row.where) for row in rows))


def _format_rows(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_plain_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def _plain_cell(cell: object) -> object:
    """A text as one line that no spreadsheet evaluates; it may be from a node."""
    if not isinstance(cell, str):
        return cell
    line = " ".join(cell.split())
    return f"'{line}" if line.startswith(_FORMULA) else line
