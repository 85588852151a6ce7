"""What a repair of the product is in `reverted_repairs.py`, and how a copy of the package loses it."""

from dataclasses import dataclass
from pathlib import Path

import upgrader
from upgrader_dev.chaos.faults import Fault

PACKAGE = Path(upgrader.__file__).parent


@dataclass(frozen=True, kw_only=True)
class Change:
    """Text of one file of the package, which stands there once, and what takes its place."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of `make chaos`."""

    seed: int
    nodes: int

    def __str__(self) -> str:
        """As in the table of the note."""
        return f"{self.seed}, {self.nodes}"


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A repair. `defect`: what happened without it; `finds`: the run that breaks one of `laws` without it.

    `faults`: without which hardly any run finds it. `because`: why no run is known, and which test holds it.
    """

    name: str
    defect: str
    laws: tuple[int, ...]
    changes: tuple[Change, ...]
    finds: Run | None = None
    faults: tuple[Fault, ...] = ()
    because: str = ""

    def __str__(self) -> str:
        """Its name, for the report of a test."""
        return self.name


def revert(repair: Repair, package: Path) -> None:
    """Change a copy of the package."""
    for change in repair.changes:
        file = package / change.path
        text = file.read_text()
        if text.count(change.old) != 1:
            raise LookupError(f"{repair.name}: {change.path} has the text {text.count(change.old)} times, not once")
        file.write_text(text.replace(change.old, change.new))
