"""Core values and wire objects as human-readable tables; only this module and the screens use rich.

On a terminal the output has colour and the width of the terminal; in a pipe it is plain text, 160 columns wide,
without trailing blanks.
"""

import io
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TextIO, TypeVar

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from upgrader.core.explain.node_explanation import Explanation
from upgrader.core.gpu_stack.drift import NodeDrift

PIPE_WIDTH = 160
SHOWN_NAMES = 6
FOLDED_AT = 10
"""Maximum number of rows of a table; only the number of the remaining rows is shown."""

T = TypeVar("T")


def print_renderable(renderable: RenderableType, stream: TextIO | None = None) -> None:
    """Print to a stream (default: standard output); with colour only on a terminal, and not with NO_COLOR."""
    stream = stream or sys.stdout
    if stream.isatty():
        Console(file=stream, highlight=False).print(renderable)
        return
    text = io.StringIO()
    Console(file=text, width=PIPE_WIDTH, highlight=False, no_color=True, force_terminal=False).print(renderable)
    stream.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()))


def live_display(stream: TextIO) -> AbstractContextManager[Live]:
    """A display that is updated in place; only on a terminal."""
    return Live(console=Console(file=stream, highlight=False), auto_refresh=False)


# ---------------------------------------------------------------------------------------------- drift and reasons


def drift_table(stack: str, revision: str, nodes: int, drift: Sequence[NodeDrift]) -> RenderableType:
    """All findings of all nodes; the first line contains the number of nodes for each reason."""
    drifted = sum(node.drifted for node in drift)
    reasons = Counter(finding.reason.value for node in drift for finding in node.findings if finding.counts)
    by_reason = ", ".join(
        f"{number} {reason}" for reason, number in sorted(reasons.items(), key=lambda entry: -entry[1])
    )
    counts = f" ({by_reason})" if by_reason else ""
    head = Text(f"Stack {stack}, revision {revision}: {drifted} of {nodes} {plural_of('node', nodes)} drifted{counts}")
    if not drift:
        return head
    table = empty_table("Node", "Reason", "Finding")
    for node in drift:
        for at, finding in enumerate(node.findings):
            name = node.node if at == 0 else ""
            reason = finding.reason.value if finding.counts else f"({finding.reason.value})"
            table.add_row(name, reason, finding.message)
    return Group(head, table)


def explanation_text(explanation: Explanation) -> RenderableType:
    """A verdict, and its causes."""
    return Group(Text(explanation.verdict, style="bold"), *(Text(f"  - {line}") for line in explanation.because))


# --------------------------------------------------------------------------------------------------------- pieces


def list_names(names: Iterable[str], shown: int = SHOWN_NAMES) -> str:
    """The first names, and the number of the remaining ones."""
    known = list(names)
    rest = len(known) - shown
    return ", ".join(known[:shown]) + (f" and {rest} more" if rest > 0 else "")


def folded_table(
    table: Table, items: Sequence[T], row: Callable[[T], None], rest: Callable[[int], str], *, more: int = 0
) -> RenderableType:
    """A table of the first rows; `rest` returns the line below for the number of rows left out, including `more`."""
    for item in items[:FOLDED_AT]:
        row(item)
    left = max(0, len(items) - FOLDED_AT) + max(0, more)
    return Group(table, Text(rest(left), style="italic")) if left > 0 else table


def count_things(number: int, word: str, several: str = "") -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {plural_of(word, number, several)}"


def plural_of(word: str, count: int, several: str = "") -> str:
    """The singular or plural of a word, for a number."""
    return word if count == 1 else several or f"{word}s"


def show_change(before: str, after: str) -> str:
    """A version, or two versions with an arrow."""
    return after if before == after else f"{before or '–'} → {after or '–'}"


def titled_table(title: str, body: RenderableType) -> RenderableType:
    """A table with a title."""
    return Padding(Group(Text(title, style="bold"), body), (1, 0, 0, 0))


def empty_table(*titles: str) -> Table:
    """An empty table in the common style."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table
