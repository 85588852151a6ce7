"""Recorded outputs of a node: what each contains, and what a node cannot do to the others."""

import pytest

from tests.support.surveyed import SurveyWorld
from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.recordings import LONGEST_OUTPUT, LONGEST_RECORD
from upgrader.node.host.programs import ProgramResult
from upgrader.node.survey.recording import read_private_names, record_outputs

NAMES = [
    "cmdline.txt",
    "modules.txt",
    "os-release.txt",
    "nvidia-params.txt",
    "nvidia-version.txt",
    "holders.txt",
    "removal-order.txt",
    "pci.txt",
    "ib-ports.txt",
    "fuser.txt",
    "nvidia-smi-q-x.xml",
    "nvidia-smi-topo.txt",
    "nvidia-smi-nvlink.txt",
    "dmesg.txt",
    "systemd-units.txt",
]


class NodePrograms:
    """Each program prints its words, or what a test sets for its name."""

    def __init__(self):
        self.calls, self.results = [], {}

    def run(self, words, *, seconds, env=None):
        assert seconds > 0
        self.calls.append(list(words))
        for name, result in self.results.items():
            if name in words:
                if isinstance(result, Exception):
                    raise result
                return result
        return ProgramResult(code=0, output=" ".join(words))


@pytest.fixture
def world(tmp_path):
    made = SurveyWorld(tmp_path)
    made.programs = NodePrograms()
    made.write("proc/cmdline", "quiet\n")
    made.write("proc/modules", "nvidia 5 0 - Live 0x0\n")
    return made


def recorded(world):
    return {output.name: output for output in record_outputs(world.node(world.scope))}


def test_each_output_has_its_text_or_the_reason_why_it_has_none(world):
    outputs = recorded(world)
    assert list(outputs) == NAMES
    assert outputs["cmdline.txt"].text == "quiet"
    assert outputs["dmesg.txt"].text == "nsenter -t 1 -m dmesg"
    assert [outputs[name].absent for name in NAMES if name.startswith("nvidia-smi")] == ["the driver is not loaded"] * 3
    assert outputs["nvidia-params.txt"].absent == "it is empty or does not exist"
    assert "bus/pci/devices/0000:1b:00.0 vendor=0x10de class=0x030200" in outputs["pci.txt"].text


def test_without_the_driver_no_program_of_it_runs(world):
    recorded(world)
    programs = {next(word for word in call[4:] if word != "chroot") for call in world.programs.calls}
    assert programs == {"dmesg", "systemctl"}


def test_nvidia_smi_of_the_own_driver_of_the_container_and_of_the_node(world):
    world.load_module("nvidia", version="535.261.03")
    assert recorded(world)["nvidia-smi-q-x.xml"].text == "nsenter -t 1 -m nvidia-smi -q -x"
    world.write("run/nvidia/driver/usr/bin/nvidia-smi", "")
    assert recorded(world)["nvidia-smi-q-x.xml"].text == "nsenter -t 1 -m chroot /run/nvidia/driver nvidia-smi -q -x"
    tool = world.add_smi()
    assert recorded(world)["nvidia-smi-q-x.xml"].text.endswith(f"{tool} -q -x")


def test_holders_and_fuser_see_the_devices(world):
    world.write("dev/nvidia0", "")
    world.add_process(812, "nvidia-persiste", "/system.slice/nvidia-persistenced.service", opened="/dev/nvidia0")
    outputs = recorded(world)
    assert outputs["holders.txt"].text == "pid 812 (nvidia-persiste, nvidia-persistenced.service)"
    assert outputs["fuser.txt"].text == "nsenter -t 1 -m fuser -v /dev/nvidia0"


def test_a_program_that_fails_or_does_not_end_hides_no_other(world):
    world.programs.results = {
        "dmesg": ProcessError("dmesg did not end within 30 s"),
        "systemctl": ProgramResult(code=1, output="no bus"),
    }
    outputs = recorded(world)
    assert (outputs["dmesg.txt"].absent, outputs["dmesg.txt"].text) == ("dmesg did not end within 30 s", "")
    assert (outputs["systemd-units.txt"].code, outputs["systemd-units.txt"].text) == (1, "no bus")


def test_outputs_are_bounded_each_and_together_and_keep_their_end(world):
    world.load_module("nvidia", version="535.261.03")
    long = ProgramResult(code=0, output="a" * 10 * LONGEST_OUTPUT + "end")
    world.programs.results = dict.fromkeys(("nvidia-smi", "dmesg", "systemctl"), long)
    for path in ("proc/modules", "proc/cmdline"):
        world.write(path, "m" * 2 * LONGEST_OUTPUT)
    outputs = recorded(world)
    assert max(len(output.text) for output in outputs.values()) == LONGEST_OUTPUT
    assert sum(len(output.text) for output in outputs.values()) <= LONGEST_RECORD
    assert (outputs["nvidia-smi-q-x.xml"].cut, outputs["nvidia-smi-q-x.xml"].text[-3:]) == (True, "end")


def test_private_names_are_those_of_the_node_its_domains_and_its_servers(world):
    world.write("etc/hostname", "gpu-1.cluster.example\n")
    world.write("etc/resolv.conf", "nameserver 10.0.0.53\nsearch corp.example lab.example\n")
    world.write("etc/hosts", "127.0.0.1 localhost\n10.0.0.9 registry-9 # mirror\n")
    world.write_proc("1/mounts", "files-3:/export /mnt nfs4 rw 0 0\n/dev/sda1 / ext4 rw 0 0\n")
    assert read_private_names(world.node(world.scope)) == (
        "corp.example",
        "files-3",
        "gpu-1",
        "gpu-1.cluster.example",
        "lab.example",
        "mirror",
        "registry-9",
    )
