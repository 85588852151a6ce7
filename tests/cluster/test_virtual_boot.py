"""One virtual node loads NVIDIA's modules and reboots into its other kernel: what the gate proves of such nodes."""

import tempfile
from pathlib import Path

import pytest

from tests.support.driver_on_node import ROOT, DriverOnNode
from tests.support.programs import soon
from upgrader_dev.demo.real_drivers import OPEN, build_hardware, build_layouts
from upgrader_dev.devcluster import VmSpec, kernels_of_virtual_nodes

pytestmark = [pytest.mark.vm, pytest.mark.gate, pytest.mark.timeout(900)]
REQUIRED = {"nvidia", "nvidia_uvm"}
HOLDER = "#!/bin/sh\nexec 3< /dev/nvidiactl\nwhile sleep 1 3<&-; do :; done\n"
SWITCHES = f"{ROOT}/proc/driver/nvidia-nvswitch/devices"
DISPLAY = {"nvidia_modeset", "nvidia_drm"}


@pytest.fixture(scope="module")
def node(start_cluster):
    kernels = kernels_of_virtual_nodes(print)
    with tempfile.TemporaryDirectory() as folder:
        modules = build_hardware(kernels, Path(folder), print)
        started = start_cluster("boot", boxes=0, vms=(VmSpec(name="vm-a"),), vm_modules=modules)
    return started.virtual_node("vm-a")


@pytest.fixture(scope="module")
def driver(node, tmp_path_factory):
    (layout,) = build_layouts([(OPEN, node.wait_ready().kernel)], print)
    return DriverOnNode(node, layout, tmp_path_factory.mktemp("driver") / "image")


def test_a_whole_image_of_nvidias_modules_is_loaded_and_unloaded(driver):
    """All five modules; without an `ib_core` of NVIDIA's network driver the kernel rejects nvidia_peermem."""
    log = driver.load()
    assert driver.modules() == REQUIRED | DISPLAY, log
    assert list(driver.record["notLoaded"]) == ["nvidia_peermem"], log
    assert "Invalid argument" in driver.record["notLoaded"]["nvidia_peermem"]
    assert driver.probe().code == 0, driver.probe().stderr
    devices = {"nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "char/195:255", "char/195:254"}
    assert driver.device_files() == devices
    driver.load()
    assert (driver.unload().text, driver.modules(), driver.device_files()) == ("unloaded", set(), set())


def test_services_of_the_image_hold_the_driver_until_they_are_stopped(driver):
    """nvidia-persistenced is not needed without a GPU. A script that holds the driver is in place of a fabric manager.

    The driver shows no NVSwitch on this node, so a folder is mounted over its list.
    """
    driver.add_service("fabricmanager", OPEN.version, HOLDER)
    driver.start_service("persistenced")
    soon(lambda: driver.service_state("persistenced")[0] == "Waiting", 60)
    driver.load()
    soon(lambda: driver.service_state("persistenced") == ("Idle", "the driver has no GPU"), 60)
    driver.node.enter("sh", "-c", f"mkdir -p /run/switches/0000:05:00.0 && mount --bind /run/switches {SWITCHES}")
    driver.start_service("fabricmanager")
    soon(lambda: driver.service_state("fabricmanager")[0] == "Running", 60)
    pid = driver.service_state("fabricmanager")[1].rpartition("pid ")[2].rstrip(")")
    busy = driver.unload()
    assert (busy.code, busy.text) == (15, f"pid {pid} (fabricmanager)")
    for name, state in {"persistenced": "Idle", "fabricmanager": "Waiting"}.items():
        driver.stop_service(name)
        assert driver.service_state(name)[0] == state
    driver.node.enter("umount", SWITCHES)
    assert (driver.unload().text, driver.modules()) == ("unloaded", set())


def test_it_reboots_into_the_other_kernel(node):
    first = node.wait_ready()
    other = next(kernel for kernel in node.kernels if kernel != first.kernel)
    node.restart(other)
    second = node.wait_ready()
    assert (first.kernel, first.ready, second.kernel, second.ready) == (node.kernels[-1], "True", other, "True")
    assert first.boot_id != second.boot_id
    console = node.log("console").read_text(errors="replace")
    assert [line for kernel in (first.kernel, other) if (line := f"vm-a boots {kernel}") not in console] == []
