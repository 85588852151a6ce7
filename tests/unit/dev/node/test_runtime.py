import json

import msgspec
import pytest

from upgrader.core.errors import ProcessError
from upgrader.core.node_protocol.orders import POD_VARIABLE
from upgrader.node.host.programs import ProgramResult
from upgrader_dev.node import __main__ as node
from upgrader_dev.node.runtime import HookRecord, RuntimeHook, cdi_specification, read_hook_record, serve_hook


class Containerd:
    """A node's container runtime as a program that is asked."""

    def __init__(self, version="containerd github.com/containerd/containerd/v2 v2.1.4", dump="enable_cdi = true"):
        self.version, self.dump, self.asked = version, dump, []

    def run(self, words, *, seconds):
        assert seconds > 0
        self.asked.append(list(words))
        if not self.version:
            raise ProcessError("chroot is not here")
        return ProgramResult(code=0, output=self.version if words[-1] == "--version" else self.dump)


class World:
    def __init__(self, folder):
        self.folder, self.run, self.proc = folder / "cdi", folder / "run", folder / "proc"
        self.run.mkdir()
        self.loads("boot-1")
        self.process("1", "/usr/lib/systemd/systemd")
        (self.proc / "self").mkdir()

    def process(self, pid, program, *arguments):
        where = self.proc / pid
        where.mkdir(parents=True)
        (where / "exe").symlink_to(program)
        (where / "cmdline").write_bytes(b"\0".join(one.encode() for one in (program, *arguments)) + b"\0")

    def loads(self, boot, vendor="sim"):
        (self.run / vendor).mkdir(exist_ok=True)
        facts = {"vendor": vendor, "version": "1.0", "kernel": "6.1.0", "bootId": boot, "devices": 2}
        (self.run / vendor / "loaded.json").write_text(json.dumps(facts))

    def hook(self, programs, pod="pod-1"):
        return RuntimeHook(folder=self.folder, run=self.run, proc=self.proc, programs=programs, pod=pod)


SERVES = HookRecord(cdi=True, why="containerd 2.1 serves CDI devices", boot_id="boot-1", pod="pod-1")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_it_describes_every_device_and_asks_the_runtime_what_it_can(world):
    world.process("77", "/usr/bin/containerd", "--config", "/etc/box.toml")
    runtime = Containerd()
    found = world.hook(runtime).write_files(2, "sim")
    assert found == read_hook_record(world.run, "sim") == SERVES
    within = ["chroot", str(world.proc / "77" / "root"), "/usr/bin/containerd"]
    assert runtime.asked == [[*within, "--version"], [*within, "--config", "/etc/box.toml", "config", "dump"]]
    assert json.loads((world.folder / "gpu-upgrader-sim.json").read_text()) == {
        "cdiVersion": "0.5.0",
        "kind": "gpu-upgrader.io/sim",
        "devices": [
            {
                "name": f"sim-gpu{number}",
                "containerEdits": {
                    "mounts": [
                        {
                            "hostPath": f"/run/gpu-upgrader/sim/dev/sim-gpu{number}",
                            "containerPath": f"/dev/sim-gpu{number}",
                            "options": ["bind", "rw"],
                        }
                    ]
                },
            }
            for number in range(2)
        ],
    }


def test_on_a_real_driver_a_device_is_its_control_device():
    (device,) = cdi_specification(1, "nvidia")["devices"]
    assert device["containerEdits"] == {
        "deviceNodes": [{"path": "/dev/sim-gpu0", "hostPath": "/dev/nvidiactl", "permissions": "rw"}]
    }


DOUBT = {
    "an old runtime": (["/usr/bin/containerd"], Containerd("containerd x 1.6.20"), "containerd 1.6 does not serve"),
    "no runtime": ([], Containerd(), "no container runtime was found"),
    "one that does not answer": (
        ["/usr/bin/containerd"],
        Containerd(""),
        "the program of the container runtime failed",
    ),
}


@pytest.mark.parametrize(("processes", "runtime", "why"), DOUBT.values(), ids=DOUBT)
def test_where_it_is_not_known_to_serve_cdi_it_does_not(world, processes, runtime, why):
    for program in processes:
        world.process("77", program)
    found = world.hook(runtime).write_files(1, "sim")
    assert not found.cdi
    assert why in found.why


def test_what_somebody_removed_is_put_back_and_a_start_asks_anew(world):
    world.process("77", "/usr/bin/containerd")
    runtime = Containerd()
    before = HookRecord(cdi=False, why="of the runtime before", boot_id="boot-1", pod="pod-1")
    (world.run / "runtime.json").write_bytes(msgspec.json.encode(before))
    rounds = iter([True, True, False])

    class Clock:
        def wait(self, _seconds):
            (world.folder / "gpu-upgrader-sim.json").unlink(missing_ok=True)

    serve_hook(world.hook(runtime), 1, "sim", Clock(), going=lambda: next(rounds))
    assert read_hook_record(world.run, "sim") == SERVES
    assert len(runtime.asked) == 2
    world.hook(runtime).write_files(1, "sim")
    assert (world.folder / "gpu-upgrader-sim.json").exists()


def test_what_another_pod_left_is_asked_anew(world):
    """It was deleted, or is of another revision: its file outlives it."""
    world.process("77", "/usr/bin/containerd")
    before = world.hook(Containerd("containerd x 1.6.20"), pod="pod-0")
    assert not before.write_files(1, "sim").cdi
    hook = world.hook(Containerd())
    assert hook.finished_record("sim") is None
    assert hook.write_files(1, "sim") == SERVES
    assert before.finished_record("sim") is None


def test_what_was_left_on_another_boot_says_nothing(world):
    """Where the folder is on a disk, against the contract: the driver was loaded anew since."""
    world.process("77", "/usr/bin/containerd")
    hook = world.hook(Containerd())
    hook.write_files(1, "sim")
    world.loads("boot-2")
    assert (read_hook_record(world.run, "sim"), hook.finished_record("sim")) == (None, None)
    assert hook.write_files(1, "sim") == msgspec.structs.replace(SERVES, boot_id="boot-2")


@pytest.mark.parametrize("record", [None, "half"])
def test_without_a_driver_that_is_known_to_be_loaded_nobody_is_ready(world, record):
    hook = world.hook(Containerd())
    hook.write_files(1, "sim")
    loaded = world.run / "sim" / "loaded.json"
    loaded.unlink() if record is None else loaded.write_text(record)
    assert (read_hook_record(world.run, "sim"), hook.finished_record("sim")) == (None, None)


def test_the_probe_is_a_command(world, monkeypatch):
    monkeypatch.setenv(POD_VARIABLE, "pod-1")
    flags = ["runtime", "--run", str(world.run), "--folder", str(world.folder), "--ready"]
    assert node.run_operand(flags) == 1
    world.hook(Containerd()).write_files(1, "sim")
    assert node.run_operand(flags) == 0
    monkeypatch.setenv(POD_VARIABLE, "pod-2")
    assert node.run_operand(flags) == 1
    monkeypatch.setenv(POD_VARIABLE, "pod-1")
    (world.run / "runtime.json").write_text("half")
    assert node.run_operand(flags) == 1
