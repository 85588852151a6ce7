"""Tables of cells of the matrix and of images."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from upgrader.cli.base.render import count_things, empty_table
from upgrader.core.driver_build.driver_builds import Verdict
from upgrader.core.driver_build.driver_report import MatrixReport, ReportedCell
from upgrader.images.drivers.gc.image_sweep import ImageSweep
from upgrader.images.drivers.gc.package_sweep import SweptPackages

_COLOURS = {"green": "green", "red": "red", "unchanged": "cyan", "missing": "yellow"}
_WORDS = {True: "yes", False: "NO", None: "–"}


def report_tables(report: MatrixReport) -> RenderableType:
    """All cells, the failures of red cells, and selectors without a match."""
    table = empty_table("Driver", "Kernel", "OS", "State", "Image", "Seconds", "vermagic", "crc", "signature", "boot")
    for cell in report.cells:
        state = Text(cell.state.value, style=_COLOURS[cell.state.value])
        seconds = f"{cell.seconds:.0f}" if cell.seconds else "–"
        checks = (_WORDS[passed] for passed in cell.checks.values())
        table.add_row(_driver_text(cell), cell.kernel, cell.os, state, cell.digest[7:19] or "–", seconds, *checks)
    lost = [Text(f"no match in the archives for {cell_name}", style="yellow") for cell_name in report.unmatched]
    reasons = [line for cell in report.cells for line in _failure_lines(cell)]
    return Group(table, *reasons, *lost, Text(_count_states(report), style="bold"))


def verdict_table(verdicts: Sequence[Verdict]) -> RenderableType:
    """All checks and their results."""
    table = empty_table("Check", "Passed", "Finding")
    for verdict in verdicts:
        style = "red" if verdict.passed is False else "green" if verdict.passed else ""
        table.add_row(verdict.check.value, Text(_WORDS[verdict.passed], style=style), verdict.reason)
    return table


def deletion_table(swept: ImageSweep | SweptPackages) -> RenderableType:
    """The fate of images or packages, with reasons."""
    return _swept_images(swept) if isinstance(swept, ImageSweep) else _swept_packages(swept)


def _swept_images(swept: ImageSweep) -> RenderableType:
    table = empty_table("Kernel", "Image", "Fate", "Unused since", "Reason")
    words = {"deleted": "would be deleted"} if swept.dry_run else {}
    for image in swept.images:
        style = {"deleted": "red", "unused": "yellow"}.get(image.fate, "")
        since = f"{image.unused_since:%Y-%m-%d}" if image.unused_since else "–"
        name = f"{image.image.partition('@')[0].rpartition('/')[2]} {image.image.rpartition('@')[2][7:19]}"
        table.add_row(image.kernel, name, Text(words.get(image.fate, image.fate), style=style), since, image.reason)
    counts = Counter(words.get(image.fate, image.fate) for image in swept.images)
    summary = ", ".join(f"{number} {fate}" for fate, number in sorted(counts.items()))
    left = [Text(f"ignored: {name}", style="yellow") for name in swept.foreign]
    dry = [Text("No image was recorded or deleted; pass --yes to do so.")] if swept.dry_run else []
    return Group(
        table, *left, Text(f"{count_things(len(swept.images), 'image')}: {summary or 'none'}", style="bold"), *dry
    )


def _swept_packages(swept: SweptPackages) -> RenderableType:
    """Packages that are not kept, since there are hundreds of others; and the total sizes."""
    table = empty_table("Package", "SHA-256", "MB", "Fate", "Unused since", "Reason")
    words = {"deleted": "would be deleted"} if swept.dry_run else {}
    for package in swept.packages:
        if package.fate == "kept":
            continue
        style = {"deleted": "red", "unused": "yellow"}[package.fate]
        fate = Text(words.get(package.fate, package.fate), style=style)
        since = f"{package.unused_since:%Y-%m-%d}" if package.unused_since else "–"
        table.add_row(
            package.name or "–", package.sha256[:12], f"{package.size / 1e6:.1f}", fate, since, package.reason
        )
    counts = Counter(package.fate for package in swept.packages)
    summary = ", ".join(
        f"{counts[fate]} {words.get(fate, fate)} ({size / 1e6:.1f} MB)" for fate, size in swept.bytes.items()
    )
    dry = [Text("No package was recorded or deleted; pass --yes to do so.")] if swept.dry_run else []
    return Group(table, Text(f"{count_things(len(swept.packages), 'package')}: {summary}", style="bold"), *dry)


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


def _count_states(report: MatrixReport) -> str:
    counts = {state: sum(cell.state.value == state for cell in report.cells) for state in _COLOURS}
    summary = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    return f"{count_things(len(report.cells), 'cell')}: {summary or 'none'}; {report.seconds:.1f} s"
