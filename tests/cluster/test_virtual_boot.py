"""One virtual node loads NVIDIA's modules and reboots into its other kernel: what the gate proves of such nodes."""

import tempfile
from pathlib import Path

import pytest

from tests.support.driver_on_node import DriverOnNode
from upgrader_dev.demo.real_drivers import OPEN, build_hardware, build_layouts
from upgrader_dev.devcluster import VmSpec, kernels_of_virtual_nodes

pytestmark = [pytest.mark.vm, pytest.mark.gate, pytest.mark.timeout(900)]
REQUIRED = {"nvidia", "nvidia_uvm"}
DISPLAY = {"nvidia_modeset", "nvidia_drm"}


@pytest.fixture(scope="module")
def node(start_cluster):
    kernels = kernels_of_virtual_nodes(print)
    with tempfile.TemporaryDirectory() as folder:
        modules = build_hardware(kernels, Path(folder), print)
        started = start_cluster("boot", boxes=0, vms=(VmSpec(name="vm-a"),), vm_modules=modules)
    return started.virtual_node("vm-a")


def test_a_whole_image_of_nvidias_modules_is_loaded_and_unloaded(node, tmp_path):
    """All five modules; without an `ib_core` of NVIDIA's network driver the kernel rejects nvidia_peermem."""
    (layout,) = build_layouts([(OPEN, node.wait_ready().kernel)], print)
    driver = DriverOnNode(node, layout, tmp_path / "image")
    log = driver.load()
    assert driver.modules() == REQUIRED | DISPLAY, log
    assert list(driver.record["notLoaded"]) == ["nvidia_peermem"], log
    assert "Invalid argument" in driver.record["notLoaded"]["nvidia_peermem"]
    assert driver.probe().code == 0, driver.probe().stderr
    devices = {"nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "char/195:255", "char/195:254"}
    assert driver.device_files() == devices
    driver.load()
    assert (driver.unload().text, driver.modules(), driver.device_files()) == ("unloaded", set(), set())


def test_it_reboots_into_the_other_kernel(node):
    first = node.wait_ready()
    other = next(kernel for kernel in node.kernels if kernel != first.kernel)
    node.restart(other)
    second = node.wait_ready()
    assert (first.kernel, first.ready, second.kernel, second.ready) == (node.kernels[-1], "True", other, "True")
    assert first.boot_id != second.boot_id
    console = node.log("console").read_text(errors="replace")
    assert [line for kernel in (first.kernel, other) if (line := f"vm-a boots {kernel}") not in console] == []
