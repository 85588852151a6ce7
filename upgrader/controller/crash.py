"""Crash points of a real process: tests kill or freeze the controller between intent, act and record.

In production, without the environment variables, crash points have no effect. core.model.phases.crash_points() lists
them.
"""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.reconcile.ports import CrashPoints
from upgrader.wiring.compose import NoCrashPoints

CRASH_FILE = "UPGRADER_CRASH_FILE"
FREEZE_AT = "UPGRADER_FREEZE_AT"
FREEZE_FILE = "UPGRADER_FREEZE_FILE"

KILLING = frozenset({"after-intent", "after-act", "after-record"})
"""Stages of kills. A freeze may happen at any other stage too, for instance `before-act`."""

Point = tuple[str, str, str]


def point_name(point: Point) -> str:
    """Name of a crash point in the crash file: Machine.Phase.stage."""
    return ".".join(point)


class KillingPoints:
    """Kills this process at the first crash point that the file does not list, after it is written there.

    A test restarts the controller until the rollout has ended; then the file lists all points that were reached.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done = frozenset(path.read_text().split()) if path.exists() else frozenset()

    def reached(self, *points: Point) -> None:
        """Does not return at a new point."""
        new = [name for point in points if point[2] in KILLING and (name := point_name(point)) not in self._done]
        if new:
            _append_lines(self._path, new)
            os.kill(os.getpid(), signal.SIGKILL)


class FreezingPoint(Struct, frozen=True):
    """Stops this process once at one point, like a paused machine, and records that in a file."""

    name: str
    path: Path

    def reached(self, *points: Point) -> None:
        """Continues when the test sends SIGCONT."""
        if self.name in map(point_name, points) and not self.path.exists():
            _append_lines(self.path, [self.name])
            os.kill(os.getpid(), signal.SIGSTOP)


def crash_points(environment: Mapping[str, str]) -> CrashPoints:
    """The crash points of the environment; without variables none.

    Raises:
        KeyError: FREEZE_AT without FREEZE_FILE.
    """
    if environment.get(CRASH_FILE):
        return KillingPoints(Path(environment[CRASH_FILE]))
    if environment.get(FREEZE_AT):
        return FreezingPoint(environment[FREEZE_AT], Path(environment[FREEZE_FILE]))
    return NoCrashPoints()


def _append_lines(path: Path, lines: list[str]) -> None:
    """Append lines and sync them to disk, so that they survive the kill."""
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
