"""Driver images of real kernels: a whole build beside bare make, cells together, known cells, checks and boots.

The packages and the unpacked trees are there before anything is timed, as they are on a machine that builds every day.

Run: python -m tests.bench.driver_images (root, a Debian archive; about a quarter of an hour on two cores)
"""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.report import Report
from tests.support.driver_builds import layout
from tests.support.repository import ROOT
from upgrader.core.driver_build.build_results import BuildResult
from upgrader.core.driver_build.driver_builds import CheckName
from upgrader.core.driver_build.driver_matrix import Cell
from upgrader.images.boot import boot_modules, find_kernel
from upgrader.images.drivers.builder.assembly import take_modules
from upgrader.images.drivers.builder.budget import BuildBudget
from upgrader.images.drivers.builder.catalog import Catalog
from upgrader.images.drivers.builder.image_store import ImageRecord
from upgrader.images.drivers.builder.sandbox import Sandbox
from upgrader.images.drivers.builder.trees import Trees, make_root, unpack_package
from upgrader.images.drivers.recipe import toolchain
from upgrader.images.drivers.recipe.definition import BuildDefinition
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.images.modules import verify_modules
from upgrader.process import run
from upgrader.process.places import cache_root

RECIPE, DRIVER = "nvidia-open", "535.261.03"
KERNELS = ("6.1.0-50-amd64", "6.1.0-47-amd64")
KNOWN = 100
"""Cells that are known already."""

WARM = ("fakebridge", "1.0")
"""Built once for each kernel, so that the trees are there."""


def main(report: Report) -> None:
    """All of it in a folder of its own; the caches of this machine are used."""
    with tempfile.TemporaryDirectory(prefix="upgrader-bench-", dir=cache_root()) as place:
        work = Path(place)
        _known(report, work)
        for kernel in KERNELS:
            _build(work / "warm", [_cell(work, *WARM, kernel)])
        _whole(report, work)
        _together(report, work)


def _site(store: Path, cores: int = 0, recipes: Path | None = None) -> Site:
    return Site(WorkspaceSettings(store=store, cores=cores, recipes=recipes), _say)


def _cell(work: Path, recipe: str, driver: str, kernel: str, modules: Sequence[str] = ()) -> Cell:
    site = _site(work / "unused")
    identity = site.find_identity(site.current_catalog(), driver=driver, kernel=kernel, recipe=recipe)
    return Cell(identity=identity, modules=tuple(modules))


def _build(store: Path, cells: Sequence[Cell], *, cores: int = 0) -> tuple[tuple[BuildResult, ...], float]:
    """The results, and the seconds that they took together."""
    site = _site(store, cores)
    found = site.matrix_cells(site.current_catalog())
    started = time.monotonic()
    with site.open_round(found) as builds:
        results = builds.run(cells)
    seconds = time.monotonic() - started
    if missing := [str(one.identity) for one in results if not one.digest]:
        raise AssertionError(f"not built: {', '.join(missing)}")
    return results, seconds


def _whole(report: Report, work: Path) -> None:
    """All five modules, by make alone and as an image; the image's modules are checked and booted once more."""
    site = _site(work / "whole")
    cell = _cell(work, RECIPE, DRIVER, KERNELS[0])
    definition = site.matrix_cells(site.current_catalog()).define_cell(cell)
    trees = Trees(cache_root() / "driver-builds/trees", site.packages, _say)
    site.packages.fetch_all(definition.packages)
    bare = _bare_make(site, definition, trees, work / "bare")
    (result,), whole = _build(work / "whole", [cell])
    name = f"{RECIPE} {DRIVER} for {KERNELS[0]}, five modules, {os.cpu_count()} cores"
    report.add(f"bare make, {name}", bare, "s")
    report.add(f"image, {name}", whole, "s")
    report.add(f"image over bare make, {name}", whole / bare, "", goal="at most 1.15")
    boot = next(one.reason for one in result.checks if one.check is CheckName.BOOT)
    report.add("  without its boot check", (whole - float(re.findall(r", ([\d.]+) s\)", boot)[-1])) / bare, "")
    modules = take_modules(site.shelf.open_layout(result.digest), work / "shipped")
    _checks(report, definition, trees, modules)


def _bare_make(site: Site, definition: BuildDefinition, trees: Trees, work: Path) -> float:
    """Seconds of `make modules` in the same root, and nothing else; its own job server gives as many jobs."""
    chain, release = definition.toolchain, definition.identity.kernel
    base = trees.unpacked_tree(f"toolchain-{chain.os}-{chain.compiler}", chain.packages, toolchain.finish_tree)
    headers = trees.unpacked_tree(f"headers-{release}", definition.kernel.headers)
    make_root(work)
    for package in definition.source:
        unpack_package(site.packages.fetch(package), work)
    (source,) = (path.parent for path in (work / "usr/src").glob("*/dkms.conf"))
    recipe = site.recipes[definition.identity.recipe].recipe
    words = [
        "make",
        f"-j{os.cpu_count()}",
        *recipe.make_arguments(kernel=release, modules=definition.modules, version=definition.identity.driver),
    ]
    with BuildBudget(work / "budget", cores=1, memory_mib=1) as budget:
        sandbox = Sandbox(layers=(headers, base), build=source, tokens=budget.tokens, memory_mib=recipe.memory_mib)
        sandbox.chown_build()
        finished = sandbox.run(words, timeout=3600)
    if finished.code != 0:
        raise AssertionError(finished.text[-2000:])
    return finished.seconds


def _checks(report: Report, definition: BuildDefinition, trees: Trees, modules: Sequence[Path]) -> None:
    kernel = definition.kernel
    tree = trees.unpacked_tree(f"headers-{kernel.release}", kernel.headers)
    headers = tree / "usr/src" / f"linux-headers-{kernel.release}"

    def check() -> None:
        found = verify_modules(modules, headers=headers, driver=DRIVER, expected=definition.modules)
        if not all(one.passed is not False for one in found):
            raise AssertionError(found)

    report.add("checks of all five nvidia modules", _seconds(check), "s", goal="at most 5")
    image = find_kernel(trees.unpacked_tree(f"kernel-{kernel.release}", kernel.image), kernel.release)
    verdict, boot = boot_modules(image, modules)
    if not verdict.passed:
        raise AssertionError(verdict.reason)
    report.add(f"boot check with five nvidia modules, {boot.accelerator}", boot.seconds, "s", goal="at most 15")


def _together(report: Report, work: Path) -> None:
    """The same two cells, one after the other with one job each, and together with all cores."""
    cells = [_cell(work, RECIPE, DRIVER, kernel, ("nvidia",)) for kernel in KERNELS]
    apart = sum(_build(work / f"apart-{at}", [cell], cores=1)[1] for at, cell in enumerate(cells))
    _, together = _build(work / "together", cells)
    name = f"two cells of {RECIPE} {DRIVER}, nvidia.ko alone"
    report.add(f"{name}, one after the other with one job each", apart, "s")
    report.add(f"{name}, together on {os.cpu_count()} cores", together, "s")
    report.add(f"{name}, together over one after the other", together / apart, "", goal="at most 0.6")


def _known(report: Report, work: Path) -> None:
    """A round over cells that are all there; their images are small, since nobody looks into them."""
    recipes = _wide(_site(work / "unused").current_catalog(), work / "recipes")
    store = work / "known"
    site = _site(store, recipes=recipes)
    cells = site.matrix_cells(site.current_catalog())
    wanted = cells.list_cells()[0]
    if len(wanted) < KNOWN:
        raise AssertionError(f"the archives have kernels for {len(wanted)} cells only")
    for number, cell in enumerate(wanted):
        image = layout(work / f"image-{number}", str(number).encode())
        key = cells.define_cell(cell).key
        site.shelf.add_image(
            image,
            ImageRecord(identity=cell.identity, build_key=key, digest=image.image.digest, seconds=1.0, verdicts=()),
        )

    def again() -> None:
        fresh = _site(store, recipes=recipes)
        found = fresh.matrix_cells(fresh.current_catalog())
        with fresh.open_round(found) as builds:
            results = builds.run(found.list_cells()[0][:KNOWN])
        if [one.seconds for one in results if one.digest] != [0.0] * KNOWN:
            raise AssertionError("something was built")

    report.add(f"a round over {KNOWN} cells that are known", _seconds(again), "s", goal="below 1")
    words = ["images", "build", "--as-known", "--store", f"oci:{store}", "--recipes", str(recipes), "--output", "json"]
    finished = run([sys.executable, "-m", "upgrader", *words], timeout=60, cwd=ROOT)
    report.add(f"upgrader images build --as-known, {len(wanted)} cells that are known", finished.seconds, "s")


def _wide(catalog: Catalog, folder: Path) -> Path:
    """Recipes with a matrix of every kernel that the archives have."""
    shutil.copytree(ROOT / "driver-images", folder)
    lines = []
    systems = sorted({one.os for one in catalog.discovery.kernels})
    for name in ("fakebridge", "nvidia", "nvidia-open"):
        lines += [f'[[cells]]\nrecipe = "{name}"\nos = "{os}"\ndrivers = ["*"]\nkernels = ["*"]\n' for os in systems]
    text = (folder / "matrix.toml").read_text(encoding="utf-8")
    (folder / "matrix.toml").write_text(text[: text.index("# The open flavour")] + "\n".join(lines), encoding="utf-8")
    return folder


def _seconds(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Report())
