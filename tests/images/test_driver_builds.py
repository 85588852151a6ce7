"""Real driver images from the distribution's packages: compiled, checked, booted, kept; the same again, and killed."""

import re
import shutil
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from tests.support.programs import soon, started
from tests.support.repository import ROOT
from upgrader.core.driver_build.build_results import CellState
from upgrader.core.driver_build.driver_builds import CheckName, FailureClass
from upgrader.core.driver_build.driver_matrix import Cell
from upgrader.images.debian.versions import sort_key
from upgrader.images.drivers.builder.assembly import unpack_driver
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.drivers.recipe.manifest import read_manifest
from upgrader.images.drivers.workspace import Site, WorkspaceSettings

pytestmark = [pytest.mark.images, pytest.mark.timeout(1800)]
PASSED = (CheckName.CONTENTS, CheckName.VERMAGIC, CheckName.CRC, CheckName.VERSIONS, CheckName.BOOT)


@pytest.fixture(scope="session")
def kernels(catalog):
    """Releases of bookworm's own series, oldest first."""
    own = [one.release for one in catalog.discovery.kernels if one.os == "bookworm" and one.flavour == "amd64"]
    return sorted((one for one in own if one.startswith("6.1.0-")), key=sort_key)


class Bench:
    """Builds of the matrix' recipes into a store of their own; packages and trees are the machine's."""

    def __init__(self, store, catalog):
        self.site = Site(WorkspaceSettings(store=store), print)
        self.catalog = catalog
        self.cells = self.site.matrix_cells(catalog)

    def cell(self, driver, kernel, recipe="", modules=()):
        identity = self.site.find_identity(self.catalog, driver=driver, kernel=kernel, recipe=recipe)
        return Cell(identity=identity, modules=modules)

    def build(self, *cells):
        with self.site.open_round(self.cells) as builds:
            return builds.run(cells)


@pytest.fixture
def bench(tmp_path, catalog):
    return Bench(tmp_path / "store", catalog)


@pytest.mark.gate
def test_the_small_module_is_built_checked_and_booted_and_the_second_time_it_is_there(bench, kernels, tmp_path):
    cell = bench.cell("1.0", kernels[-1])
    (built,) = bench.build(cell)
    assert (built.state, built.failure) == (CellState.GREEN, None)
    assert {one.check for one in built.checks if one.passed} == set(PASSED)
    (again,) = bench.build(cell)
    assert (again.state, again.digest, again.seconds) == (CellState.UNCHANGED, built.digest, 0.0)
    unpack_driver(bench.site.shelf.open_layout(built.digest), tmp_path / "image")
    manifest = read_manifest(tmp_path / "image/driver/manifest.json")
    assert (manifest.kernel, manifest.build_key) == (kernels[-1], built.build_key)
    assert [one.name for one in manifest.modules] == ["fakebridge"]
    assert manifest.modules[0].vermagic.split()[0] == kernels[-1]


def test_the_same_key_gives_the_same_digest(tmp_path, catalog, kernels):
    benches = [Bench(tmp_path / name, catalog) for name in ("one", "two")]
    digests = {bench.build(bench.cell("1.0", kernels[0]))[0].digest for bench in benches}
    assert len(digests) == 1


def test_two_cells_at_once_are_both_built(bench, kernels):
    results = bench.build(*(bench.cell("1.0", one) for one in kernels[:2]))
    assert [one.state for one in results] == [CellState.GREEN] * 2
    assert len({one.digest for one in results}) == 2


def test_a_real_time_kernel_is_unsupported_by_the_drivers_own_word_and_remembered(bench, catalog):
    kernel = next(one for one in catalog.discovery.kernels if one.flavour == "rt-amd64" and one.os == "bookworm")
    driver = catalog.driver_versions(bench.site.recipes["nvidia-open"], "bookworm")[-1]
    cell = bench.cell(driver, kernel.release, recipe="nvidia-open", modules=("nvidia",))
    (red,) = bench.build(cell)
    assert (red.state, red.failure.kind) == (CellState.RED, FailureClass.UNSUPPORTED)
    assert "CONFIG_PREEMPT_RT" in red.failure.first_error
    assert bench.site.remembered.find_failure(red.build_key) == msgspec.structs.replace(red, seconds=0.0)


def test_a_builder_that_is_killed_leaves_nothing_behind_that_runs_or_looks_built(tmp_path, catalog, kernels):
    """Killed while make runs: no image, no process; the next build of the same comes to its end."""
    slow = tmp_path / "recipes"
    shutil.copytree(ROOT / "driver-images", slow)
    recipe = slow / "fakebridge/recipe.toml"
    (slow / "fakebridge/slow.mk").write_text("modules:\n\tsleep 1000\n")
    recipe.write_text(re.sub("make = .*", 'make = ["-f", "slow.mk"]', recipe.read_text()))
    words = ["build", "--driver", "1.0", "--kernel", kernels[0], "--store", f"oci:{tmp_path / 'store'}"]
    command = [sys.executable, "-m", "upgrader", *words, "--recipes", str(slow)]
    with started(command, log=tmp_path / "log", env={"PYTHONPATH": str(ROOT)}) as builder:
        sleeping = soon(lambda: _sleepers(builder.pid), seconds=120)
        builder.signal(signal.SIGKILL)
        builder.wait()
    soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid in sleeping))
    assert Shelf(tmp_path / "store").list_records() == ()
    bench = Bench(tmp_path / "store", catalog)
    (built,) = bench.build(bench.cell("1.0", kernels[0]))
    assert built.state is CellState.GREEN


def _sleepers(ancestor):
    """Pids of `sleep 1000` below a process."""
    return [pid for pid in _pids() if _words(pid)[:2] == [b"sleep", b"1000"] and _below(pid, ancestor)]


def _pids():
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _words(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _below(pid, ancestor):
    while pid > 1 and pid != ancestor:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return pid == ancestor
