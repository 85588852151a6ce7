"""Debian's nvidia-smi on the simulated library: it runs to its end, and the validation finds each simulated fault."""

import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import json, structs

from tests.support.repository import ROOT
from tests.support.validated_node import ValidatedNode, lay_gpus, remove_gpu
from upgrader.core.node_protocol.orders import NodeDriver, Reason, UpgradeOrder
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.node.host.host import Host
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.gpu_report import parse_links, parse_report
from upgrader.node.validation.power_limits import FILE, KeptLimits, keep_power_limits, restore_power_limits
from upgrader.process import run
from upgrader_dev.nvml.description import FabricState, render_description, simulate_node
from upgrader_dev.nvml.library import DESCRIPTION, NAME, build_library

pytestmark = [pytest.mark.images, pytest.mark.timeout(300)]
VERSION = "535.261.03"
RECORDED = ROOT / "tests/unit/node/validation/nvidia_smi"
GPU = 3
UUID, ADDRESS = (getattr(simulate_node(VERSION).gpus[GPU], name) for name in ("uuid", "address"))


class Tool(NamedTuple):
    branch: str
    program: Path


@pytest.fixture(scope="module", params=["535", "550"])
def tool(request, catalog, tmp_path_factory):
    """The newest nvidia-smi of a branch in the archive."""
    found = [package for package in catalog.discovery.packages if package.name == "nvidia-smi"]
    package = max(
        (package for package in found if package.version.startswith(f"{request.param}.")),
        key=lambda package: [int(part) for part in re.findall(r"\d+", package.version)],
    )
    folder = tmp_path_factory.mktemp("smi")
    run(["dpkg-deb", "--extract", Site(WorkspaceSettings(), print).packages.fetch(package), folder], timeout=120)
    return Tool(request.param, next(folder.rglob("current/nvidia-smi")))


class SimulatedNode(ValidatedNode):
    """A node whose driver is described; nvidia-smi is Debian's."""

    def __init__(self, folder, tool, monkeypatch):
        super().__init__(folder)
        self.programs, self.description = SystemPrograms(), folder / "description"
        monkeypatch.setenv(DESCRIPTION, str(self.description))
        self.library = self.places.drivers / "nvidia/current"
        self.library.mkdir(parents=True)
        shutil.copy(tool.program, self.library)
        shutil.copy(build_library() / NAME, self.library / f"libnvidia-ml.so.{VERSION}")
        (self.library / NAME).symlink_to(f"libnvidia-ml.so.{VERSION}")

    def describe(self, driver):
        self.description.write_text(render_description(driver))

    def smi(self, *arguments):
        words = [self.library / "nvidia-smi", *arguments]
        return run(words, timeout=60, env={"LD_LIBRARY_PATH": str(self.library)}, check=False)

    def load(self, driver):
        """What `load` leaves, with all GPUs on the bus and a kernel without modules to compare."""
        self.describe(driver)
        gpus = {gpu.address: gpu.uuid for gpu in driver.gpus}
        lay_gpus(self.places, gpus)
        self.record("nvidia", VERSION, len(gpus))
        (self.places.run / "nvidia/load-order").write_text("")
        self.offered = set(gpus.values())


def change_gpu(driver, **changes):
    gpus = list(driver.gpus)
    gpus[GPU] = structs.replace(gpus[GPU], **changes)
    return structs.replace(driver, gpus=tuple(gpus))


FAULTY = {
    "width": 8,
    "uncorrected_dram": 4,
    "remap_pending": True,
    "mig": True,
    "fabric": FabricState.IN_PROGRESS,
    "links": (True, False) * 9,
}
RECORDED_NODES = {"healthy": simulate_node(VERSION, 2), "faulty": change_gpu(simulate_node(VERSION, 4), **FAULTY)}


@pytest.fixture
def node(tool, tmp_path, monkeypatch):
    return SimulatedNode(tmp_path, tool, monkeypatch)


@pytest.mark.parametrize("name", sorted(RECORDED_NODES))
def test_its_reports_are_the_recorded_ones(node, tool, name):
    """Newer versions of a branch may print more elements: the facts are compared."""
    node.describe(RECORDED_NODES[name])
    report = re.sub(r"<timestamp>.*</timestamp>", "<timestamp></timestamp>", node.smi("-q", "-x").text)
    links = node.smi("nvlink", "-s").text
    recorded = RECORDED / f"{tool.branch}-{name}"
    if os.environ.get("UPDATE_GOLDEN"):
        recorded.with_suffix(".xml").write_text(report)
        recorded.with_suffix(".links").write_text(links)
    assert parse_report(report) == parse_report(recorded.with_suffix(".xml").read_text())
    assert parse_links(links) == parse_links(recorded.with_suffix(".links").read_text())


def test_it_lists_gpus_and_their_partitions(node):
    partitions = ("MIG-00000000-0000-4000-8000-000000000000", "MIG-00000001-0000-4000-8000-000000000000")
    node.describe(change_gpu(simulate_node(VERSION), mig=True, partitions=partitions))
    lines = node.smi("-L").text.splitlines()
    assert [line for line in lines if UUID in line] == [f"GPU {GPU}: NVIDIA H100 80GB HBM3 (UUID: {UUID})"]
    assert [line.split("UUID: ")[1] for line in lines if "MIG" in line] == [f"{uuid})" for uuid in partitions]
    assert len(lines) == 10


def test_its_query_and_its_table(node):
    node.describe(simulate_node(VERSION, 2))
    rows = node.smi("--query-gpu=uuid,driver_version", "--format=csv,noheader").text.splitlines()
    assert rows == [f"{gpu.uuid}, {VERSION}" for gpu in simulate_node(VERSION, 2).gpus]
    assert "81559MiB" in node.smi().text


def test_a_healthy_node_is_valid(node):
    node.load(simulate_node(VERSION))
    assert node.look(vendor="nvidia", version=VERSION, expected=8).facts == {
        "driver": VERSION,
        "devices": "8",
        "library": f"1 of {VERSION}",
        "model": "8 x NVIDIA H100 80GB HBM3",
        "pcie": "8 x 16x",
        "mig": "8 x Disabled",
        "fabric": "8 x Completed",
        "active NVLinks": "8 x 18",
    }


def test_a_gpu_without_nvlink_and_nvswitch_is_valid(node):
    driver = simulate_node(VERSION, 1)
    node.load(structs.replace(driver, gpus=(structs.replace(driver.gpus[0], fabric=None, links=(), ecc=False),)))
    facts = node.look(vendor="nvidia", version=VERSION).facts
    assert "fabric" not in facts
    assert facts["active NVLinks"] in {"1 x 0", "1 x not reported"}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"width": 8}, "PcieWidth: {gpu} has 8 of 16 lanes of its PCIe link"),
        ({"uncorrected_dram": 4}, "UncorrectedErrors: {gpu} has uncorrected memory errors"),
        ({"uncorrected_sram": 1}, "UncorrectedErrors: {gpu} has uncorrected memory errors"),
        ({"remap_pending": True}, "RowRemapPending: {gpu} replaces a defective row of its memory at its reset"),
        ({"remap_failure": True}, "RowRemapFailure: {gpu} could not replace a defective row of its memory"),
        ({"retirement_pending": True}, "RowRemapPending: {gpu} retires a defective page of its memory at its reset"),
        ({"mig": True}, "MigMode: {gpu} is in MIG mode and has no partition"),
        ({"fabric": FabricState.IN_PROGRESS}, "Fabric: {gpu} is not part of the NVSwitch fabric (state In Progress, "),
        ({"fabric": FabricState.NOT_STARTED}, "Fabric: {gpu} is not part of the NVSwitch fabric (state Not Started, "),
        ({"fabric_status": 999}, "Fabric: {gpu} is not part of the NVSwitch fabric (state Completed, status Unknown"),
        (
            {"links": (True,) * 5 + (False,) + (True,) * 12},
            "NvLink: {gpu} has 17 active NVLink(s), expected are 18 (ina",
        ),
        ({"links": (False,) * 18}, "NvLink: {gpu} has 0 active NVLink(s), expected are 18 (inactive: all)"),
    ],
)
def test_a_fault_of_one_gpu_is_named_with_the_gpu(node, changes, fault):
    node.load(change_gpu(simulate_node(VERSION), **changes))
    check, reason, message = node.refused(vendor="nvidia", version=VERSION)
    assert (check, reason) == ("devices", Reason.DEVICE_FAILED)
    named = fault.format(gpu=f"GPU {GPU} ({ADDRESS})")
    assert message.startswith(f"check devices: 1 of 8 with faults: {UUID}: {named}")


def test_seven_of_eight_gpus(node):
    driver = simulate_node(VERSION)
    node.load(driver)
    node.record("nvidia", VERSION, 7)
    node.describe(structs.replace(driver, gpus=driver.gpus[:7]))
    remove_gpu(node.places, driver.gpus[7].address)
    message = node.refused(vendor="nvidia", version=VERSION)[2]
    assert message.startswith("check devices: PciFunctions: the PCI bus has 8 GPU(s), the driver lacks 1: ")


def test_a_gpu_that_is_lost(node):
    node.load(change_gpu(simulate_node(VERSION), lost=True))
    message = node.refused(vendor="nvidia", version=VERSION)[2]
    assert message.startswith(
        "check devices: nvidia-smi ended with exit code 15: Unable to determine the device handle"
    )


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (9, "nvidia-smi finds no driver in the kernel: NVIDIA-SMI has failed because"),
        (
            18,
            "nvidia-smi has another version than the module: Failed to initialize NVML: Driver/library version",
        ),
    ],
)
def test_a_driver_that_does_not_match(node, failure, message):
    node.load(structs.replace(simulate_node(VERSION), failure=failure))
    check, reason, text = node.refused(vendor="nvidia", version=VERSION)
    assert (check, reason) == ("devices", Reason.DRIVER_MISMATCH)
    assert text.startswith(f"check devices: {message}")


def test_power_limits_are_set_again_after_an_unload(node, tmp_path):
    host = Host(root=tmp_path / "host")
    shutil.copytree(node.library, host.state / "drivers/nvidia/current", symlinks=True)
    node.describe(change_gpu(simulate_node(VERSION), power_limit=500))
    order = UpgradeOrder(upgrade="u", unload=NodeDriver(vendor="nvidia", version=VERSION))
    assert keep_power_limits(order, host, node.programs) == {"power limits": "kept: 1 x 500 W"}
    node.describe(simulate_node(VERSION))
    assert restore_power_limits(host.state, node.programs).facts == {"power limits": "1 x 500 W"}
    limits = [gpu.power_limit for gpu in parse_report(node.smi("-q", "-x").text).gpus]
    assert limits == ["700.00 W"] * GPU + ["500.00 W"] + ["700.00 W"] * (7 - GPU)


@pytest.mark.parametrize(
    ("kept", "changes", "output"),
    [
        (900, {}, "is not a valid power limit"),
        # nvidia-smi ends with exit code 0 if a GPU does not support limits.
        (500, {"power_limit": 0}, "not supported in current scope"),
    ],
)
def test_a_power_limit_that_cannot_be_set_is_a_fault(node, kept, changes, output):
    state = node.places.drivers.parent
    (state / FILE).write_bytes(json.encode(KeptLimits(upgrade="u", watts={UUID: kept})))
    node.load(change_gpu(simulate_node(VERSION), **changes))
    with pytest.raises(OrderFailedError, match=output):
        restore_power_limits(state, node.programs)
