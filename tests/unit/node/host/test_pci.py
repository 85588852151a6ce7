"""PCI devices as sysfs shows them: their drivers, their ports, and virtual functions."""

import pytest

from upgrader.node.host.pci import PciDevice, read_pci_devices

ADDRESS = "0000:1b:00.0"


@pytest.fixture
def function(tmp_path):
    """A GPU below a port; /sys/bus/pci/devices has links, as the kernel makes them."""
    folder = tmp_path / "devices/pci0000:16/0000:16:01.0" / ADDRESS
    folder.mkdir(parents=True)
    (folder / "class").write_text("0x030200\n")
    (folder / "vendor").write_text("0x10de\n")
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    (tmp_path / "bus/pci/devices" / ADDRESS).symlink_to(folder)
    return folder


def read(tmp_path):
    (device,) = read_pci_devices(tmp_path)
    return device


def test_a_gpu_without_driver_and_without_a_known_port(function, tmp_path):
    assert read(tmp_path) == PciDevice(address=ADDRESS, kind="0302", vendor="10de")
    assert read(tmp_path).is_gpu


def test_its_driver_its_port_and_that_it_is_virtual(function, tmp_path):
    (function / "driver").symlink_to("../../../../bus/pci/drivers/nvidia")
    (function / "physfn").symlink_to("../0000:1b:00.1")
    (function.parent / "max_link_width").write_text("8\n")
    expected = PciDevice(address=ADDRESS, kind="0302", vendor="10de", driver="nvidia", virtual=True, port_width=8)
    assert read(tmp_path) == expected


@pytest.mark.parametrize(("text", "lanes"), [("16\n", 16), ("32\n", 0), ("255\n", 0), ("", 0), ("x16\n", 0)])
def test_the_lanes_of_a_port(function, tmp_path, text, lanes):
    """255 is a port that does not report them, 32 that of an emulated machine."""
    (function.parent / "max_link_width").write_text(text)
    assert read(tmp_path).port_width == lanes


@pytest.mark.parametrize(("kind", "vendor", "gpu"), [("0x030000", "0x10de", True), ("0x068000", "0x10de", False)])
def test_what_is_a_gpu(function, tmp_path, kind, vendor, gpu):
    (function / "class").write_text(kind)
    (function / "vendor").write_text(vendor)
    assert read(tmp_path).is_gpu is gpu
    (function / "vendor").write_text("0x1a03")
    assert not read(tmp_path).is_gpu
