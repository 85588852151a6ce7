"""Following a plan: a display that is updated in place on a terminal, lines for changes in a pipe."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import TextIO

from rich.live import Live

from upgrader.cli.base import render
from upgrader.cli.shared import progress
from upgrader.cli.shared.progress import Patience, Progress, Verdicts
from upgrader.cli.status import status_screen
from upgrader.core.errors import DeadlineError
from upgrader.reconcile.runtime.context import Context

Sleep = Callable[[float], Awaitable[None]]


async def follow_plan(
    context: Context, name: str, patience: Patience, *, stream: TextIO | None = None, sleep: Sleep = asyncio.sleep
) -> Progress:
    """Follow a plan until it is completed; returns its last state. `stream` defaults to standard error.

    Raises:
        RolloutFailedError, BlockedError, DeadlineError: see progress.Verdicts.
    """
    stream, began = stream or sys.stderr, context.clock.now()
    verdicts = Verdicts(patience)
    with ExitStack() as closing:
        showing: Display = Lines(stream)
        if stream.isatty():
            showing = Table(closing.enter_context(render.live_display(stream)))
        async for seen in progress.poll_progress(context, name, patience.poll, sleep):
            if seen is None:
                showing.show_silence()
                _check_time(context, began, patience)
                continue
            showing.show(seen)
            if verdicts.has_ended(seen):
                return seen
    raise AssertionError("the polling loop does not end")


def _check_time(context: Context, began: object, patience: Patience) -> None:
    if patience.whole is not None and context.clock.now() - began >= timedelta(seconds=patience.whole):  # type: ignore[operator]
        raise DeadlineError(f"the API server is not reachable, and the timeout of {patience.whole:.0f} s has passed")


class Lines:
    """Prints one line for each change."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._before: Progress | None = None
        self._silent = False

    def show(self, seen: Progress) -> None:
        """Print the changes since the last poll."""
        self._silent = False
        for line in progress.changed_lines(self._before, seen):
            self._stream.write(f"{seen.at:%H:%M:%S} {line}\n")
        self._stream.flush()
        self._before = seen

    def show_silence(self) -> None:
        """Print once that the API server is not reachable."""
        if not self._silent:
            self._stream.write("the API server is not reachable; the controller continues the rollout\n")
            self._stream.flush()
        self._silent = True


class Table:
    """Shows the status of the plan, updated in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, seen: Progress) -> None:
        """Update the display."""
        self._live.update(status_screen.plan_tables(seen), refresh=True)

    def show_silence(self) -> None:
        """Keep the display."""


Display = Lines | Table
