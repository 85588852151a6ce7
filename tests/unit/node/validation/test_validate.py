from pathlib import Path

import msgspec
import pytest

from upgrader.core.node_protocol.orders import NodeDriver, OrderResult, Reason, ValidateOrder
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.validate import validate_devices


class Container:
    """What a pod with two simulated GPUs sees."""

    def __init__(self, folder):
        self.run_folder, self.dev = folder / "run", folder / "dev"
        (self.run_folder / "sim").mkdir(parents=True)
        self.dev.mkdir()
        self.environment = {"SIM_VISIBLE_DEVICES": "sim-gpu0,sim-gpu3"}
        for name in ("sim-gpu0", "sim-gpu3"):
            (self.dev / name).write_text(f"sim 2.0.0 {name} simulated\n")
        self.load({})

    def load(self, changes):
        facts = {"vendor": "sim", "version": "2.0.0", "kernel": "k", "bootId": "boot-1", "devices": 8}
        (self.run_folder / "sim" / "loaded.json").write_bytes(msgspec.json.encode(facts | changes))

    def validate(self, *, vendor="sim", devices=2):
        order = ValidateOrder(driver=NodeDriver(vendor=vendor, version="2.0.0"), boot_id="boot-1", devices=devices)
        return validate_devices(order, run=self.run_folder, devices=self.dev, environment=self.environment)

    def refused(self, **order):
        with pytest.raises(OrderFailedError) as caught:
            self.validate(**order)
        return caught.value.reason, str(caught.value)


@pytest.fixture
def container(tmp_path):
    return Container(tmp_path)


def test_a_pod_that_sees_its_devices(container):
    assert container.validate() == OrderResult(
        reason=Reason.DONE,
        message="sim 2.0.0 (simulated): 2 device(s) open, 4096 numbers added for each on the CPU",
        facts={"driver": "2.0.0", "devices": "2", "boot id": "boot-1"},
    )


def test_on_a_real_driver_its_device_is_opened_and_asked_for_no_words(container):
    (container.run_folder / "nvidia").mkdir()
    (container.run_folder / "nvidia" / "loaded.json").write_bytes(
        (container.run_folder / "sim" / "loaded.json").read_bytes().replace(b'"sim"', b'"nvidia"')
    )
    (container.dev / "sim-gpu0").write_text("")
    assert container.validate(vendor="nvidia").message == (
        "nvidia 2.0.0 (real driver, simulated GPUs): 2 device(s) open, 4096 numbers added for each on the CPU"
    )
    (container.dev / "sim-gpu3").unlink()
    assert container.refused(vendor="nvidia")[0] is Reason.DEVICE_FAILED


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"version": "1.0.0"}, "sim 1.0.0 is loaded, expected is sim 2.0.0"),
        ({"bootId": "boot-0"}, "loaded on boot boot-0, the current boot is boot-1"),
        ({"version": 3}, "cannot be decoded"),
    ],
)
def test_a_driver_that_is_not_the_wanted_one(container, changes, shown):
    container.load(changes)
    reason, message = container.refused()
    assert reason is Reason.DRIVER_MISMATCH
    assert shown in message


def test_no_driver_at_all(container):
    (container.run_folder / "sim" / "loaded.json").unlink()
    assert container.refused() == (Reason.DRIVER_MISMATCH, "no driver of sim is loaded, expected is sim 2.0.0")


def test_a_vendor_that_is_a_path(container):
    assert container.refused(vendor="../..")[0] is Reason.BAD_ORDER


@pytest.mark.parametrize("visible", ["sim-gpu0", "", "sim-gpu0,sim-gpu1,sim-gpu3"])
def test_another_number_of_devices(container, visible):
    container.environment = {"SIM_VISIBLE_DEVICES": visible}
    assert container.refused()[0] is Reason.DEVICE_FAILED


def test_no_device_plugin_at_all(container):
    container.environment = {}
    assert "contains 0: none" in container.refused()[1]


def test_a_device_that_is_not_there(container):
    (container.dev / "sim-gpu3").unlink()
    assert "No such file or directory" in container.refused()[1]


def test_a_device_of_a_driver_before(container):
    (container.dev / "sim-gpu3").write_text("sim 1.0.0 sim-gpu3 simulated\n")
    assert container.refused()[0] is Reason.DEVICE_FAILED


def test_every_device_that_is_not_well_is_named(container):
    (container.dev / "sim-gpu0").write_text("broken")
    (container.dev / "sim-gpu3").unlink()
    _, message = container.refused()
    assert "sim-gpu0 contains 'broken'" in message
    assert "sim-gpu3 cannot be opened" in message


def test_a_shared_device_counts_once(container):
    container.environment = {"SIM_VISIBLE_DEVICES": "sim-gpu0::0,sim-gpu0::1,sim-gpu3::0"}
    assert container.validate().facts["devices"] == "2"


def test_no_descriptor_is_left_open(container):
    before = len(list(Path("/proc/self/fd").iterdir()))
    container.validate()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
