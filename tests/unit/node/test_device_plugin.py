"""The simulated device plugin over real gRPC, against the kubelet's side of it played in this process.

The same against a real kubelet's device manager: tests/cluster/test_device_plugin.py.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import grpc
import pytest

from tests.support.device_manager import DeviceManager
from tests.support.programs import soon, started
from upgrader.node import __main__ as node
from upgrader.node import devices
from upgrader.process import run

RESOURCE = "nvidia.com/gpu"
WELL = {"sim-gpu0": "Healthy", "sim-gpu1": "Healthy"}


class Node:
    """A device-plugins directory, a loaded driver with two devices, and the plugin as a program of its own."""

    def __init__(self, folder):
        self.plugins, self.run, self.state = folder / "p", folder / "run", folder / "state.json"
        self.plugins.mkdir()
        self.manager = DeviceManager(self.plugins)
        self.flags = ["--count", "2", "--folder", str(self.plugins), "--run", str(self.run), "--state", str(self.state)]
        self.log = folder / "plugin.log"
        self.load()

    def load(self):
        folder = devices.folder(self.run)
        folder.mkdir(parents=True)
        for number in range(2):
            (folder / devices.name_of(number)).write_text("")

    def plugin(self):
        return started([sys.executable, "-m", "upgrader.node", "device-plugin", *self.flags], log=self.log)

    def ready(self):
        return node.main(["device-plugin", *self.flags, "--ready"]) == 0

    def shown(self, wanted=WELL):
        return soon(lambda: self.manager.devices.get(RESOURCE) == wanted)


@pytest.fixture
def world():
    with tempfile.TemporaryDirectory(prefix="dp") as folder:  # pytest's own are too long for a socket's 107 bytes
        world = Node(Path(folder))
        world.manager.start()
        try:
            yield world
        finally:
            world.manager.stop()


@pytest.fixture
def registered(world):
    with world.plugin():
        world.shown()
        yield world


def test_it_registers_under_its_resource_and_offers_its_devices(registered):
    (request,) = registered.manager.registrations
    assert (request.version, request.resource_name) == ("v1beta1", RESOURCE)
    options = registered.manager.options()
    assert (options.pre_start_required, options.get_preferred_allocation_available) == (False, False)
    soon(registered.ready)


def test_a_container_gets_its_device_files_and_their_names(registered):
    answer = registered.manager.allocate(["sim-gpu1", "sim-gpu0"], ["sim-gpu1"])
    both, one = answer.container_responses
    assert dict(both.envs) == {"SIM_VISIBLE_DEVICES": "sim-gpu0,sim-gpu1"}
    assert [(m.host_path, m.container_path, m.read_only) for m in both.mounts] == [
        ("/run/gpu-upgrader/sim/dev/sim-gpu0", "/dev/sim-gpu0", False),
        ("/run/gpu-upgrader/sim/dev/sim-gpu1", "/dev/sim-gpu1", False),
    ]
    assert dict(one.envs) == {"SIM_VISIBLE_DEVICES": "sim-gpu1"}


def test_a_device_that_it_does_not_have_is_refused(registered):
    with pytest.raises(grpc.RpcError) as caught:
        registered.manager.allocate(["sim-gpu7"])
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_health_follows_the_file_and_the_driver(registered):
    unhealthy = registered.run / "sim" / "unhealthy"
    unhealthy.write_text("sim-gpu1\n")
    registered.shown(WELL | {"sim-gpu1": "Unhealthy"})
    unhealthy.unlink()
    registered.shown(WELL)
    shutil.rmtree(registered.run)
    registered.shown(dict.fromkeys(WELL, "Unhealthy"))
    registered.load()
    registered.shown(WELL)


def test_it_registers_again_with_a_kubelet_that_restarted(registered):
    soon(registered.ready)
    registered.manager.stop()
    assert not registered.ready()
    registered.manager.start()
    registered.shown()
    soon(registered.ready)
    assert [request.resource_name for request in registered.manager.registrations] == [RESOURCE, RESOURCE]


def test_it_registers_again_when_only_its_own_socket_was_removed(registered):
    (request,) = registered.manager.registrations
    (registered.plugins / request.endpoint).unlink()
    soon(lambda: len(registered.manager.registrations) == 2)
    registered.shown()


def test_it_waits_for_a_kubelet_and_for_one_that_takes_it(world):
    world.manager.stop()
    with world.plugin():
        assert not world.ready()
        world.manager.refusing = True
        world.manager.start()
        soon(lambda: world.log.exists() and "no plugins today" in world.log.read_text())
        assert not world.ready()
        world.manager.refusing = False
        world.shown()
        soon(world.ready)


def test_the_probe_is_a_program_of_its_own(registered):
    soon(registered.ready)
    words = [sys.executable, "-m", "upgrader.node", "device-plugin", *registered.flags, "--ready"]
    assert run(words, timeout=20, check=False).code == 0
    registered.manager.stop()
    assert run(words, timeout=20, check=False).code == 1


def test_stubs_load_without_warnings():
    words = [sys.executable, "-W", "error", "-c", "import upgrader.node.proto.deviceplugin_pb2_grpc"]
    assert run(words, timeout=20, env={**os.environ}).stderr == b""


def test_a_stopped_plugin_leaves_no_claim_of_being_ready(world):
    with contextlib.ExitStack() as stack:
        stack.enter_context(world.plugin())
        soon(world.ready)
    world.manager.stop()
    world.manager.start()
    assert not world.ready()
