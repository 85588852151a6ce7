"""Tables of cells of the matrix and of images."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from upgrader.cli.base.render import count_things, empty_table
from upgrader.core.driver_build.driver_builds import Verdict
from upgrader.core.driver_build.driver_report import Report, ReportedCell
from upgrader.images.drivers.gc.image_sweep import Swept
from upgrader.images.drivers.gc.package_sweep import SweptPackages

_COLOURS = {"green": "green", "red": "red", "unchanged": "cyan", "missing": "yellow"}
_WORDS = {True: "yes", False: "NO", None: "–"}


def report_tables(found: Report) -> RenderableType:
    """All cells, the failures of red cells, and selectors without a match."""
    table = empty_table("Driver", "Kernel", "OS", "State", "Image", "Seconds", "vermagic", "crc", "signature", "boot")
    for cell in found.cells:
        state = Text(cell.state.value, style=_COLOURS[cell.state.value])
        seconds = f"{cell.seconds:.0f}" if cell.seconds else "–"
        checks = (_WORDS[passed] for passed in cell.checks.values())
        table.add_row(_driver_text(cell), cell.kernel, cell.os, state, cell.digest[7:19] or "–", seconds, *checks)
    lost = [Text(f"no match in the archives for {one}", style="yellow") for one in found.unmatched]
    reasons = [line for cell in found.cells for line in _failure_lines(cell)]
    return Group(table, *reasons, *lost, Text(_count_states(found), style="bold"))


def verdict_table(found: Sequence[Verdict]) -> RenderableType:
    """All checks and their results."""
    table = empty_table("Check", "Passed", "Finding")
    for one in found:
        style = "red" if one.passed is False else "green" if one.passed else ""
        table.add_row(one.check.value, Text(_WORDS[one.passed], style=style), one.reason)
    return table


def deletion_table(found: Swept | SweptPackages) -> RenderableType:
    """The fate of images or packages, with reasons."""
    return _swept_images(found) if isinstance(found, Swept) else _swept_packages(found)


def _swept_images(found: Swept) -> RenderableType:
    table = empty_table("Kernel", "Image", "Fate", "Unused since", "Reason")
    words = {"deleted": "would be deleted"} if found.dry_run else {}
    for one in found.images:
        style = {"deleted": "red", "unused": "yellow"}.get(one.fate, "")
        since = f"{one.unused_since:%Y-%m-%d}" if one.unused_since else "–"
        name = f"{one.image.partition('@')[0].rpartition('/')[2]} {one.image.rpartition('@')[2][7:19]}"
        table.add_row(one.kernel, name, Text(words.get(one.fate, one.fate), style=style), since, one.reason)
    counts = Counter(words.get(one.fate, one.fate) for one in found.images)
    said = ", ".join(f"{number} {fate}" for fate, number in sorted(counts.items()))
    left = [Text(f"ignored: {one}", style="yellow") for one in found.foreign]
    dry = [Text("No image was recorded or deleted; pass --yes to do so.")] if found.dry_run else []
    return Group(
        table, *left, Text(f"{count_things(len(found.images), 'image')}: {said or 'none'}", style="bold"), *dry
    )


def _swept_packages(found: SweptPackages) -> RenderableType:
    """Packages that are not kept, since there are hundreds of others; and the total sizes."""
    table = empty_table("Package", "SHA-256", "MB", "Fate", "Unused since", "Reason")
    words = {"deleted": "would be deleted"} if found.dry_run else {}
    for one in found.packages:
        if one.fate == "kept":
            continue
        style = {"deleted": "red", "unused": "yellow"}[one.fate]
        fate = Text(words.get(one.fate, one.fate), style=style)
        since = f"{one.unused_since:%Y-%m-%d}" if one.unused_since else "–"
        table.add_row(one.name or "–", one.sha256[:12], f"{one.size / 1e6:.1f}", fate, since, one.reason)
    counts = Counter(one.fate for one in found.packages)
    said = ", ".join(
        f"{counts[fate]} {words.get(fate, fate)} ({size / 1e6:.1f} MB)" for fate, size in found.bytes.items()
    )
    dry = [Text("No package was recorded or deleted; pass --yes to do so.")] if found.dry_run else []
    return Group(table, Text(f"{count_things(len(found.packages), 'package')}: {said}", style="bold"), *dry)


def _failure_lines(cell: ReportedCell) -> list[Text]:
    if cell.failure is None:
        return []
    about = f" [{cell.failure.symbol}]" if cell.failure.symbol else ""
    lines = [f"{_driver_text(cell)} for {cell.kernel}: {cell.failure.kind}{about}: {cell.failure.first_error}"]
    if cell.alternatives:
        lines.append(f"  drivers that build for this kernel: {', '.join(cell.alternatives)}")
    return [Text(line) for line in lines]


def _driver_text(cell: ReportedCell) -> str:
    return " ".join(part for part in (cell.vendor, cell.flavour, cell.driver) if part)


def _count_states(found: Report) -> str:
    counts = {state: sum(cell.state.value == state for cell in found.cells) for state in _COLOURS}
    said = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    return f"{count_things(len(found.cells), 'cell')}: {said or 'none'}; {found.seconds:.1f} s"
