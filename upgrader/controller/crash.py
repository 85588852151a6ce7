"""Crash points on a real process: tests have the controller killed or frozen between intent, act and record.

Production has none of this: without the environment variables every place is passed without a look at anything. Which
places there are is said by core.model.phases.crash_points().
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
"""Stages at which a kill may happen. A freeze may happen at any other stage too, for instance `before-act`."""

Point = tuple[str, str, str]


def name_of(point: Point) -> str:
    """A crash point as a line of the crash file: Machine.Phase.stage."""
    return ".".join(point)


class KillingPoints:
    """Kills this process at the first place that the file does not list yet, after writing it there.

    A test starts the controller again and again until the rollout is over; the file then says which points were hit.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done = frozenset(path.read_text().split()) if path.exists() else frozenset()

    def reached(self, *points: Point) -> None:
        """Does not return where something is new."""
        new = [name for point in points if point[2] in KILLING and (name := name_of(point)) not in self._done]
        if new:
            _write(self._path, new)
            os.kill(os.getpid(), signal.SIGKILL)


class FreezingPoint(Struct, frozen=True):
    """Stops this process once at one point, as a paused machine would; the file says that it happened."""

    name: str
    path: Path

    def reached(self, *points: Point) -> None:
        """Goes on where the test sends SIGCONT."""
        if self.name in map(name_of, points) and not self.path.exists():
            _write(self.path, [self.name])
            os.kill(os.getpid(), signal.SIGSTOP)


def crash_points(environment: Mapping[str, str]) -> CrashPoints:
    """What the environment asks for; nothing where it asks for nothing.

    Raises:
        KeyError: FREEZE_AT without FREEZE_FILE.
    """
    if environment.get(CRASH_FILE):
        return KillingPoints(Path(environment[CRASH_FILE]))
    if environment.get(FREEZE_AT):
        return FreezingPoint(environment[FREEZE_AT], Path(environment[FREEZE_FILE]))
    return NoCrashPoints()


def _write(path: Path, lines: list[str]) -> None:
    """Append lines so that they survive what follows."""
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
