"""Who holds a simulated device and what it uses: seen in a /proc that the test writes, and in the machine's own."""

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.programs import soon, started
from upgrader_dev.node.device_load import PAGE, TICKS, DeviceLoad, DeviceUsage

HOLD = "import signal, sys; held = open(sys.argv[1]); print('holds', flush=True); "
WORK, REST = "[None for _ in iter(int, 1)]", "signal.pause()"


class Node:
    """Device files, and processes as /proc shows them."""

    def __init__(self, folder):
        self.devices, self.proc = folder / "dev", folder / "proc"
        self.devices.mkdir(parents=True)
        self.proc.mkdir()
        for number in range(4):
            (self.devices / f"sim-gpu{number}").write_text("")
        self.load = DeviceLoad(self.devices, self.proc)

    def process(self, pid, *, cpu=0.0, began=1, pages=0, holds=()):
        folder = self.proc / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(holds):
            link = folder / "fd" / str(number)
            link.unlink(missing_ok=True)
            link.symlink_to(self.devices / name)
        fields = ["R", *["0"] * 49]
        fields[11], fields[12] = str(int(cpu * TICKS) - 1), "1"
        fields[19], fields[21] = str(began), str(pages)
        (folder / "stat").write_text(f"{pid} (a) name) {' '.join(fields)}\n")


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_nothing_is_known_of_use_before_the_second_look(node):
    node.process(7, cpu=100, pages=3, holds=["sim-gpu1"])
    node.load.measure(10.0)
    assert node.load.loads == {"sim-gpu1": DeviceUsage(percent=0.0, memory=3 * PAGE)}


def test_cpu_time_between_two_looks_is_what_a_device_was_used(node):
    node.process(7, cpu=100, holds=["sim-gpu1"])
    node.load.measure(10.0)
    node.process(7, cpu=101, holds=["sim-gpu1"])
    node.load.measure(14.0)
    assert node.load.loads == {"sim-gpu1": DeviceUsage(percent=25.0, memory=0.0)}


def test_a_process_counts_in_equal_parts_for_its_devices_and_two_on_one_add_up(node):
    for cpu in (0.1, 1.1):
        node.process(7, cpu=cpu, pages=8, holds=["sim-gpu0", "sim-gpu1"])
        node.process(8, cpu=cpu / 2, pages=2, holds=["sim-gpu1"])
        node.load.measure(cpu * 2)
    assert node.load.loads == {
        "sim-gpu0": DeviceUsage(percent=25.0, memory=4 * PAGE),
        "sim-gpu1": DeviceUsage(percent=50.0, memory=6 * PAGE),
    }


def test_a_process_of_an_earlier_ones_pid_is_another(node):
    node.process(7, cpu=5, began=1, holds=["sim-gpu0"])
    node.load.measure(10.0)
    node.process(7, cpu=9, began=2, holds=["sim-gpu0"])
    node.load.measure(11.0)
    assert node.load.loads["sim-gpu0"].percent == 0.0


def test_who_holds_nothing_uses_nothing(node):
    for cpu in (1, 2):
        node.process(7, cpu=cpu, holds=())
        (node.proc / "self").mkdir(exist_ok=True)
        node.load.measure(float(cpu))
    assert node.load.loads == {}


def test_no_driver_no_devices(node, tmp_path):
    load = DeviceLoad(tmp_path / "nowhere", node.proc)
    load.measure(1.0)
    assert (load.loads, load.unreadable) == ({}, 0)


@given(spent=st.lists(st.floats(0, 1e4), min_size=1, max_size=6), seconds=st.floats(0.001, 1e4))
def test_no_device_is_used_more_than_wholly(tmp_path_factory, spent, seconds):
    node = Node(tmp_path_factory.mktemp("node"))
    for pid in range(len(spent)):
        node.process(pid + 1, cpu=1, holds=["sim-gpu0", f"sim-gpu{pid % 4}"])
    node.load.measure(1.0)
    for pid, cpu in enumerate(spent):
        node.process(pid + 1, cpu=1 + cpu, holds=["sim-gpu0", f"sim-gpu{pid % 4}"])
    node.load.measure(1.0 + seconds)
    assert all(0.0 <= one.percent <= 100.0 for one in node.load.loads.values())


def test_on_a_real_driver_the_name_of_its_device_node_says_which_device_it_is(node, tmp_path):
    """A container's node of a device, as /dev/null is one: opened by the name that the plugin gave it."""
    (tmp_path / "sim-gpu5").symlink_to("/dev/null")
    (tmp_path / "null").symlink_to("/dev/null")
    load = DeviceLoad(None, node.proc)
    for cpu in (0.1, 0.6):
        node.process(7, cpu=cpu, holds=["sim-gpu1"])
        for number, name in enumerate(["sim-gpu5", "null"], start=1):
            link = node.proc / "7" / "fd" / str(number)
            link.unlink(missing_ok=True)
            link.symlink_to(tmp_path / name)
        load.measure(cpu * 2)
    assert load.loads == {"sim-gpu5": DeviceUsage(percent=50.0)}


def test_real_processes_are_seen_by_the_files_that_they_hold(tmp_path):
    node = Node(tmp_path)
    load = DeviceLoad(node.devices)

    def holder(name, then):
        return started([sys.executable, "-c", HOLD + then, str(node.devices / name)], log=tmp_path / f"{name}.log")

    with holder("sim-gpu2", WORK), holder("sim-gpu3", REST):
        for name in ("sim-gpu2", "sim-gpu3"):
            soon(lambda name=name: "holds" in (tmp_path / f"{name}.log").read_text())
        seconds = itertools.count(1.0)
        load.measure(next(seconds))
        soon(lambda: load.measure(next(seconds)) or load.loads["sim-gpu2"].percent > 0)
        assert {name: one.percent > 0 for name, one in load.loads.items()} == {"sim-gpu2": True, "sim-gpu3": False}
        assert load.loads["sim-gpu3"].memory > 1 << 20
    load.measure(next(seconds))
    assert load.loads == {}
