"""The figures of a run, as `build/bench-report.json`: `figures[]{name, value, unit, goal, seed}`.

A goal is a sentence with its number, so that a reader sees what was asked for beside what came; nothing fails by it.
"""

import sys
from pathlib import Path

import msgspec

PATH = Path(__file__).resolve().parents[2] / "build" / "bench-report.json"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number: what it is, in which unit, what was asked for, and the seed that it comes from."""

    name: str
    value: float
    unit: str
    goal: str = ""
    seed: int | None = None


class Report(msgspec.Struct, kw_only=True):
    """Figures in the order in which they were found."""

    figures: list[Figure] = []

    def add(self, name: str, value: float, unit: str, *, goal: str = "", seed: int | None = None) -> None:
        """Keep and print one."""
        figure = Figure(name=name, value=round(value, 4), unit=unit, goal=goal, seed=seed)
        self.figures.append(figure)
        asked = f" (goal: {goal})" if goal else ""
        sys.stdout.write(f"{figure.name}: {figure.value:g} {unit}{asked}\n")
        sys.stdout.flush()

    def write(self, path: Path = PATH) -> None:
        """All figures as a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
