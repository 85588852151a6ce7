"""What a node is, from files as a pod sees them; unreadable ones are named."""

import sys

import msgspec
import pytest

from upgrader.core.node_protocol.node_features import FeatureReport
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.features import read_features, wait_for_changed_features
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import EXIT_CODES, OrderFailedError
from upgrader.process import run

KERNEL = "6.12.94+deb13-amd64"
RELEASE = """\
PRETTY_NAME="Debian GNU/Linux 13 (trixie)"
# VERSION_ID="1"
ID=debian
 VERSION_ID=2
VERSION_ID="13"
"""


class Machine:
    """Files of a node; `read()` reads them."""

    def __init__(self, folder):
        self.host, self.sys, self.uptime = folder / "host", folder / "sys", folder / "uptime"
        self.put("proc/sys/kernel/osrelease", f"{KERNEL}\n")
        self.put("proc/sys/kernel/random/boot_id", "boot-7\n")
        self.put("usr/lib/os-release", RELEASE)
        (self.host / "etc").mkdir()
        (self.host / "etc/os-release").symlink_to("/usr/lib/os-release")
        self.uptime.write_text("12.50 99.00\n")
        (self.sys / "bus/pci/devices").mkdir(parents=True)

    def put(self, path, text):
        (self.host / path).parent.mkdir(parents=True, exist_ok=True)
        (self.host / path).write_text(text)

    def drop(self, path):
        (self.host / path).unlink()

    def device(self, slot, kind, vendor):
        folder = self.sys / "bus/pci/devices" / slot
        folder.mkdir()
        for name, text in (("class", kind), ("vendor", vendor)):
            if text is not None:
                (folder / name).write_text(f"{text}\n")

    def read(self):
        return read_features(Host(root=self.host), system=self.sys, uptime=self.uptime)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_what_is_read(machine):
    machine.device("0000:01:00.0", "0x030200", "0x10de")
    machine.device("0000:02:00.0", "0x030200", "0x10de")
    machine.device("0000:03:00.0", "0x020000", "0x15b3")
    machine.device("0000:04:00.0", "0x120000", "0x1da3")
    machine.device("0000:05:00.0", "0x030000", None)  # taken out while it is read
    assert machine.read() == FeatureReport(
        boot_id="boot-7",
        uptime=12.5,
        kernel=KERNEL,
        os_id="debian",
        os_version="13",
        pci=("0302_10de", "1200_1da3"),
    )


def test_a_machine_without_the_bus_has_no_devices(machine):
    (machine.sys / "bus/pci/devices").rmdir()
    (machine.sys / "bus/pci").rmdir()
    assert machine.read().pci == ()


def test_what_os_release_does_not_say_is_empty(machine):
    machine.put("usr/lib/os-release", "NAME='x'\nnothing\n=\n")
    assert (machine.read().os_id, machine.read().os_version) == ("", "")


def test_a_long_name_is_cut_so_that_it_fits_a_termination_message(machine):
    machine.put("usr/lib/os-release", f"ID={'x' * 5000}\n")
    assert len(msgspec.json.encode(machine.read())) < 4096


SPOILED = {
    "no kernel": (lambda m: m.drop("proc/sys/kernel/osrelease"), "/proc/sys/kernel/osrelease"),
    "an empty kernel": (lambda m: m.put("proc/sys/kernel/osrelease", "\n"), "/proc/sys/kernel/osrelease"),
    "no boot id": (lambda m: m.drop("proc/sys/kernel/random/boot_id"), "/proc/sys/kernel/random/boot_id"),
    "no os-release": (lambda m: m.drop("usr/lib/os-release"), "/etc/os-release"),
    "an os-release that is a folder": (
        lambda m: (m.drop("usr/lib/os-release"), (m.host / "usr/lib/os-release").mkdir()),
        "/etc/os-release",
    ),
    "an uptime that is none": (lambda m: m.uptime.write_text("soon"), "uptime"),
    "no sysfs": (lambda m: m.sys.rename(m.sys.parent / "elsewhere"), "sys/bus/pci/devices"),
    "a class that is none": (lambda m: m.device("0000:01:00.0", "0x03", "0x10de"), "sys/bus/pci/devices"),
    "a vendor that is none": (lambda m: m.device("0000:01:00.0", "0x030000", "NVIDIA"), "sys/bus/pci/devices"),
}


@pytest.mark.parametrize(("spoil", "named"), SPOILED.values(), ids=SPOILED)
def test_what_cannot_be_read_is_named(machine, spoil, named):
    spoil(machine)
    with pytest.raises(OrderFailedError, match=r"of the node cannot be read: .+") as caught:
        machine.read()
    assert named in str(caught.value).partition(" of the node")[0]
    assert caught.value.reason is Reason.MISSING


def node_labels(*words):
    return run([sys.executable, "-m", "upgrader.node", "node-labels", *words], timeout=30, check=False)


def test_the_program_without_a_node_says_what_is_missing():
    finished = node_labels()
    assert finished.code == EXIT_CODES[Reason.MISSING]
    assert finished.stdout.startswith(b"/etc/os-release of the node cannot be read: ")


def test_the_program_takes_one_word_at_most():
    assert b"`node-labels` has no argument except --watch" in node_labels("now").stderr


# ------------------------------------------------------------------------------- installed kernels


def test_installed_kernels_are_those_with_an_index_of_modules(machine):
    for release in ("6.12.94+deb13-amd64", "6.12.9+deb13-amd64", "6.12.107+deb13-amd64"):
        machine.put(f"lib/modules/{release}/modules.dep", "")
    machine.put("lib/modules/6.12.200+deb13-amd64/updates/left-by-dkms.ko", "")
    machine.put("lib/modules/README", "no folder")
    assert machine.read().kernels == ("6.12.107+deb13-amd64", "6.12.94+deb13-amd64", "6.12.9+deb13-amd64")


def test_a_machine_without_modules_has_no_kernel_installed(machine):
    assert machine.read().kernels == ()


def test_many_kernels_fit_a_message(machine):
    for number in range(40):
        machine.put(f"lib/modules/6.1.0-{number}-amd64/modules.dep", "")
    assert machine.read().kernels[0] == "6.1.0-39-amd64"
    assert len(machine.read().kernels) == 16


def test_what_watches_rests_until_another_kernel_is_installed(machine):
    machine.put("lib/modules/6.1.0-47-amd64/modules.dep", "")
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            machine.put("lib/modules/6.1.0-50-amd64/modules.dep", "")

    found = wait_for_changed_features(Host(root=machine.host), sleep, system=machine.sys, uptime=machine.uptime)
    assert (slept, found.kernels) == ([60.0] * 3, ("6.1.0-50-amd64", "6.1.0-47-amd64"))
