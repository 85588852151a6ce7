"""The fingerprint of a node, read from /proc and /sys; files that are missing, wrong, huge, or do not answer."""

import os

import pytest

from tests.support.node_hardware import NodeHardware
from upgrader.core.node_protocol.node_fingerprint import NodeFingerprint, Trait
from upgrader.node.host.host import Host
from upgrader.node.upgrade.fingerprint import MOST_ENTRIES, MOUNTS_BYTES, read_fingerprint

WHOLE = NodeFingerprint(
    values={
        Trait.MODULE: {"knem": 1},
        Trait.LINK: {"bond0": 200_000, "ens1": 100_000},
        Trait.INFINIBAND: {"mlx5_0/1": 400_000},
        Trait.VIRTUAL_FUNCTIONS: {"0000:3b:00.0": 8},
        Trait.MOUNT: {
            "/ (ext4)": 1,
            "/data\\040sets (nfs4)": 1,
            "/home (autofs)": 1,
            "/scratch (wekafs)": 1,
            "/var/lib/docker (xfs)": 1,
        },
        Trait.PCI_LANES: {
            "NVMe drive 0000:5c:00.0": 4,
            "display controller 0000:1b:00.0": 16,
            "network controller 0000:3b:00.0": 16,
        },
        Trait.PCI_SPEED: {"NVMe drive 0000:5c:00.0": 16_000, "network controller 0000:3b:00.0": 32_000},
    }
)


@pytest.fixture
def hardware(tmp_path):
    return NodeHardware(tmp_path)


def read(tmp_path, vendor="nvidia", *, seconds=30.0):
    return read_fingerprint(Host(root=tmp_path), vendor, seconds=seconds)


def without(trait, why):
    values = {name: value for name, value in WHOLE.values.items() if name is not trait}
    return NodeFingerprint(values=values, unread={trait: why})


def test_what_lasts_is_read_and_what_belongs_to_pods_or_to_the_driver_is_not(hardware, tmp_path):
    assert read(tmp_path) == WHOLE
    assert WHOLE.summary == (
        "out-of-tree kernel module: 1, network link: 2, InfiniBand port: 1, virtual functions: 1, mount: 5, "
        "PCIe lanes: 3, PCIe speed: 2"
    )


def test_the_modules_of_another_driver_are_read(hardware, tmp_path):
    assert read(tmp_path, "sim").values[Trait.MODULE] == dict.fromkeys(("gdrdrv", "knem", "nvidia", "nvidia_uvm"), 1)


def test_a_node_without_any_of_these_files(tmp_path):
    assert read(tmp_path) == NodeFingerprint(values={trait: {} for trait in Trait})


@pytest.mark.parametrize(
    ("path", "text", "trait", "name", "value"),
    [
        ("class/net/ens1/speed", "unknown", Trait.LINK, "ens1", 0),
        ("class/infiniband/mlx5_0/ports/1/rate", "fast", Trait.INFINIBAND, "mlx5_0/1", 0),
        ("class/infiniband/mlx5_0/ports/1/rate", "2.5 Gb/sec (1X SDR)", Trait.INFINIBAND, "mlx5_0/1", 2_500),
        (
            "bus/pci/devices/0000:5c:00.0/current_link_speed",
            "Unknown",
            Trait.PCI_SPEED,
            "NVMe drive 0000:5c:00.0",
            0,
        ),
    ],
)
def test_a_number_that_is_unknown_or_broken(hardware, tmp_path, path, text, trait, name, value):
    hardware.write(path, text)
    assert read(tmp_path).values[trait][name] == value


@pytest.mark.parametrize(
    ("state", "carrier", "is_up"),
    [("up", "", True), ("unknown", "1", True), ("unknown", "0", False), ("down", "1", False)],
)
def test_which_links_are_up(hardware, tmp_path, state, carrier, is_up):
    hardware.write("class/net/ens1/operstate", state)
    hardware.write("class/net/ens1/carrier", carrier)
    assert ("ens1" in read(tmp_path).values[Trait.LINK]) is is_up


def test_a_file_that_does_not_answer_costs_its_trait_only(hardware, tmp_path):
    speed = hardware.system / "class/net/ens1/speed"
    speed.unlink()
    os.mkfifo(speed)
    assert read(tmp_path, seconds=2) == without(Trait.LINK, "not read within 2 s")
    with speed.open("w"):
        pass  # the thread that was left behind ends


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("22 1 259:2 / /data rw\n", "not a line of a mount: '22 1 259:2 / /data rw'"),
        ("x" * (MOUNTS_BYTES + 1), f"proc/1/mountinfo is longer than {MOUNTS_BYTES} bytes"),
        (
            "".join(f"1 1 0:1 / /m{number} rw - nfs4 x rw\n" for number in range(MOST_ENTRIES + 1)),
            f"more than {MOST_ENTRIES} entries",
        ),
    ],
    ids=["wrong", "long", "many"],
)
def test_mounts_that_cannot_be_read(hardware, tmp_path, text, why):
    hardware.write_mounts(text)
    fingerprint = read(tmp_path)
    assert fingerprint.values == without(Trait.MOUNT, why).values
    assert fingerprint.unread[Trait.MOUNT].endswith(why)


def test_a_folder_with_too_many_entries(hardware, tmp_path):
    for number in range(MOST_ENTRIES):
        (hardware.system / f"module/m{number}").mkdir()
    folder = hardware.system / "module"
    assert read(tmp_path) == without(Trait.MODULE, f"{folder} has more than {MOST_ENTRIES} entries")


def test_a_device_of_a_class_that_cannot_be_read(hardware, tmp_path):
    hardware.write("bus/pci/devices/0000:00:1f.0/class", "bridge")
    assert read(tmp_path).unread == dict.fromkeys(
        (Trait.PCI_LANES, Trait.PCI_SPEED), "'bridge' is not a class or vendor of a PCI device"
    )
