"""What the round over the matrix came to, by build/nightly-report.json, which `make nightly` makes first.

These are facts about real kernels and real drivers: which of them fit, and in which words the others do not.
"""

import errno
import json
import sys

import msgspec
import pytest

from tests.support.repository import ROOT
from upgrader.core.driver_build.build_results import CellState
from upgrader.core.driver_build.driver_builds import CheckName
from upgrader.core.driver_build.driver_report import MatrixReport, ReportedCell
from upgrader.images.boot import ENFORCE_SIGNATURES, boot_modules, find_kernel
from upgrader.images.drivers.builder.assembly import take_modules
from upgrader.images.drivers.builder.trees import Trees
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.images.modules import verify_modules
from upgrader.process import run
from upgrader.process.places import cache_root

REPORT = ROOT / "build/nightly-report.json"
OPEN, PROPRIETARY = ("nvidia", "open"), ("nvidia", "proprietary")
NEW, OLD = "6.1.0-56-amd64", "6.1.0-50-amd64"
FIRST_RED = 53
"""Linux 6.1.0-53 of Debian has a fourth argument of pci_resize_resource."""

MODULES = ("nvidia", "nvidia-modeset", "nvidia-drm", "nvidia-uvm", "nvidia-peermem")
PASSED = {"vermagic": True, "crc": True, "signature": None, "boot": True}
UNTRIED = dict.fromkeys(PASSED)
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def report():
    return msgspec.json.decode(REPORT.read_bytes(), type=MatrixReport)


@pytest.fixture(scope="module")
def cells(report):
    """By vendor and flavour, driver, kernel."""
    return {((one.vendor, one.flavour), one.driver, one.kernel): one for one in report.cells}


@pytest.fixture(scope="module")
def site():
    return Site(WorkspaceSettings(), print)


@pytest.fixture(scope="module")
def catalog(site):
    return site.current_catalog()


@pytest.fixture(scope="module")
def shipped(site, cells, tmp_path_factory):
    """The modules of the open flavour for OLD, as they are in its image."""
    digest = cells[OPEN, "535.261.03", OLD].digest
    return take_modules(site.shelf.open_layout(digest), tmp_path_factory.mktemp("image") / "driver")


@pytest.fixture(scope="module")
def trees(site):
    return Trees(cache_root() / "driver-builds/trees", site.packages, print)


@pytest.fixture(scope="module")
def kernel_of(trees, catalog):
    """A kernel to boot, from the trees that the builds have used."""

    def find(release):
        return find_kernel(trees.unpacked_tree(f"kernel-{release}", catalog.find_kernel(release).image), release)

    return find


@pytest.fixture(scope="module")
def verdicts(trees, catalog, shipped):
    """Of the shipped modules on a kernel, by check."""

    def ask(release):
        tree = trees.unpacked_tree(f"headers-{release}", catalog.find_kernel(release).headers)
        headers = tree / "usr/src" / f"linux-headers-{release}"
        found = verify_modules(shipped, headers=headers, driver="535.261.03", expected=MODULES)
        return {one.check: one for one in found}

    return ask


def own_series(cells, kind, driver):
    """Numbers of bookworm's kernels 6.1.0-NUMBER-amd64 with their cells."""
    return {
        int(kernel.split("-")[1]): cell
        for (flavour, version, kernel), cell in cells.items()
        if (flavour, version) == (kind, driver) and kernel.startswith("6.1.0-")
    }


def has_image(cell):
    """Whether a cell is green, in this round or before it."""
    assert (cell.state in {CellState.GREEN, CellState.UNCHANGED}) is bool(cell.digest), cell
    return bool(cell.digest)


def test_it_has_the_fields_that_programs_read(report):
    told = json.loads(REPORT.read_bytes())
    assert set(told) == {"cells", "unmatched", "seconds"}
    assert {name for cell in told["cells"] for name in cell} == {
        *("vendor", "driver", "flavour", "kernel", "os", "state", "failure", "alternatives", "digest", "build_key"),
        *("seconds", "checks", "image"),
    }
    assert all(set(cell["checks"]) == set(PASSED) for cell in told["cells"])
    assert all(set(one["failure"]) == {"class", "symbol", "first_error"} for one in told["cells"] if one["failure"])
    assert report.unmatched == ()


def test_the_open_flavour_is_green_until_the_kernel_changed_and_red_from_then_on(cells):
    series = own_series(cells, OPEN, "535.261.03")
    assert {47, 50, FIRST_RED} <= set(series)
    for number, cell in series.items():
        if number < FIRST_RED:
            assert (has_image(cell), cell.failure, cell.checks) == (True, None, PASSED)
        else:
            assert (cell.state, cell.digest, cell.checks) == (CellState.RED, "", UNTRIED)
            assert (cell.failure.kind, cell.failure.symbol) == ("compile", "pci_resize_resource")
            assert "pci_resize_resource" in cell.failure.first_error
            assert "nvidia 535.309.01" in cell.alternatives


def test_the_proprietary_flavour_is_green_on_all_of_them(cells):
    series = own_series(cells, PROPRIETARY, "535.309.01")
    assert set(series) == set(own_series(cells, OPEN, "535.261.03"))
    assert [(has_image(cell), cell.failure, cell.checks) for cell in series.values()] == [(True, None, PASSED)] * len(
        series
    )


def test_trixie_has_the_same_pair(cells):
    green = cells[OPEN, "550.163.01", "6.12.94+deb13-amd64"]
    red = cells[OPEN, "550.163.01", "6.12.107+deb13-amd64"]
    assert (has_image(green), green.failure, green.checks) == (True, None, PASSED)
    assert (red.state, red.failure.kind, red.failure.symbol) == (CellState.RED, "compile", "pci_resize_resource")
    assert red.alternatives == ("nvidia 550.163.01",)
    for kernel in (green.kernel, red.kernel):
        way_out = cells[PROPRIETARY, "550.163.01", kernel]
        assert (has_image(way_out), way_out.failure, way_out.checks) == (True, None, PASSED)


def test_no_two_cells_share_a_key_or_an_image(report):
    keys = [one.build_key for one in report.cells]
    digests = [one.digest for one in report.cells if one.digest]
    assert (len(set(keys)), len(set(digests))) == (len(keys), len(digests))
    assert all(len(one) == len("sha256:") + 64 for one in digests)


def test_a_second_round_builds_nothing_and_says_the_same(report, tmp_path):
    """Asked again, the archives included."""
    words = ["images", "build", "--changed", "--report", str(tmp_path / "report.json")]
    finished = run([sys.executable, "-m", "upgrader", *words], timeout=900, env={"PYTHONPATH": str(ROOT)})
    again = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=MatrixReport)
    assert [(one.seconds, one.state) for one in again.cells if one.failure is None] == [
        (0.0, CellState.UNCHANGED) for one in report.cells if one.failure is None
    ]
    assert [one.seconds for one in again.cells if one.failure] == [0.0] * sum(
        one.failure is not None for one in report.cells
    )
    assert [end(one) for one in again.cells] == [end(one) for one in report.cells]
    assert "compiling" not in finished.stderr.decode()


def end(cell: ReportedCell):
    return (cell.build_key, cell.digest, cell.failure, cell.alternatives, cell.checks)


def test_modules_of_one_kernel_are_refused_for_another_by_their_crcs(verdicts):
    assert verdicts(OLD)[CheckName.CRC].passed
    crc = verdicts(NEW)[CheckName.CRC]
    assert crc.passed is False
    assert "module_layout" in crc.symbols
    assert "module_layout" in crc.reason


def test_the_kernel_says_the_same(shipped, kernel_of):
    """Its own: no such device. Another one: of another format. One that wants signatures: not without."""
    core = [path for path in shipped if path.name == "nvidia.ko"]
    fits, boot = boot_modules(kernel_of(OLD), shipped)
    assert fits.passed, boot.console
    assert "nvidia.ko: ENODEV" in fits.reason
    assert "No NVIDIA GPU found" in fits.reason
    assert answers(boot_modules(kernel_of(NEW), core)) == {"nvidia.ko": errno.ENOEXEC}
    enforced = boot_modules(kernel_of(OLD), core, arguments=ENFORCE_SIGNATURES)
    assert answers(enforced) == {"nvidia.ko": errno.EKEYREJECTED}


def answers(checked):
    """The errno of each of our modules, where the check has failed."""
    verdict, boot = checked
    assert verdict.passed is False
    return {load.file: load.errno for load in boot.loads if load.file.startswith("nvidia")}
