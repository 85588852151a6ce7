"""The simulated device plugin over real gRPC, against the kubelet's side of it played in this process.

The same against a real kubelet's device manager: tests/cluster/test_device_plugin.py.
"""

import contextlib
import http.client
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import grpc
import pytest

from tests.support.authors import free_port
from tests.support.device_manager import DeviceManager
from tests.support.programs import soon, started
from upgrader.node.validation import devices
from upgrader.process import run
from upgrader_dev.node.device_plugin import AdvertisedDevices
from upgrader_dev.node.registration import LIST_SECONDS, Registration

RESOURCE = "nvidia.com/gpu"
WELL = {"sim-gpu0": "Healthy", "sim-gpu1": "Healthy"}


def loads(run, boot):
    facts = {"vendor": "sim", "version": "1.0", "kernel": "6.1.0", "bootId": boot, "devices": 2}
    (run / "sim" / "loaded.json").write_text(json.dumps(facts))


class Node:
    """A device-plugins directory, a loaded driver with two devices, and the plugin as a program of its own."""

    def __init__(self, folder):
        self.plugins, self.run, self.port = folder / "p", folder / "run", free_port()
        self.plugins.mkdir()
        self.manager = DeviceManager(self.plugins)
        self.flags = ["--count", "2", "--folder", str(self.plugins), "--run", str(self.run), "--port", str(self.port)]
        self.log = folder / "plugin.log"
        self.load()

    def load(self):
        folder = devices.device_folder(self.run)
        folder.mkdir(parents=True)
        for number in range(2):
            (folder / devices.device_name(number)).write_text("")

    def plugin(self):
        return started([sys.executable, "-m", "upgrader_dev.node", "device-plugin", *self.flags], log=self.log)

    def ready(self):
        return self.asked("/ready") == 200

    def asked(self, path):
        """What a probe is answered; 0 where nobody answers."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as connection:
            try:
                connection.request("GET", path)
            except ConnectionRefusedError:
                return 0
            return connection.getresponse().status

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


def test_on_a_real_driver_a_simulated_gpu_is_its_control_device(world):
    record = world.run / "nvidia" / "loaded.json"
    world.flags += ["--driver", "nvidia"]
    with world.plugin():
        world.shown(dict.fromkeys(WELL, "Unhealthy"))
        record.parent.mkdir()
        record.write_text("{}")
        world.shown()
        (answer,) = world.manager.allocate(["sim-gpu1"]).container_responses
    assert dict(answer.envs) == {"SIM_VISIBLE_DEVICES": "sim-gpu1"}
    assert list(answer.mounts) == []
    assert [(one.container_path, one.host_path, one.permissions) for one in answer.devices] == [
        ("/dev/sim-gpu1", "/dev/nvidiactl", "rw")
    ]


LEFT = {
    "it serves them": ('{"cdi": true, "why": "", "bootId": "boot-1"}', True),
    "it does not": ('{"cdi": false, "why": "", "bootId": "boot-1"}', False),
    "the hook has not run": ("", False),
    "it was said on another boot": ('{"cdi": true, "why": "", "bootId": "boot-0"}', False),
    "it is not known when it was said": ('{"cdi": true, "why": ""}', False),
}


@pytest.mark.parametrize(("left", "cdi"), LEFT.values(), ids=LEFT)
def test_cdi_devices_are_handed_in_only_where_the_hook_says_that_the_runtime_serves_them(world, left, cdi):
    world.flags += ["--cdi"]
    loads(world.run, "boot-1")
    if left:
        (world.run / "runtime.json").write_text(left)
    with world.plugin():
        world.shown()
        (answer,) = world.manager.allocate(["sim-gpu1"]).container_responses
    assert [one.name for one in answer.cdi_devices] == (["gpu-upgrader.io/sim=sim-gpu1"] if cdi else [])
    assert [one.container_path for one in answer.mounts] == ([] if cdi else ["/dev/sim-gpu1"])
    assert dict(answer.envs) == {"SIM_VISIBLE_DEVICES": "sim-gpu1"}


def test_a_shared_device_is_offered_several_times_and_handed_in_once(world):
    world.flags += ["--slices", "2"]
    shares = {f"sim-gpu{number}::{part}": "Healthy" for number in range(2) for part in range(2)}
    with world.plugin():
        world.shown(shares)
        answer = world.manager.allocate(["sim-gpu1::0", "sim-gpu1::1"], ["sim-gpu0::1"])
        (world.run / "sim" / "unhealthy").write_text("sim-gpu0")
        world.shown(shares | {"sim-gpu0::0": "Unhealthy", "sim-gpu0::1": "Unhealthy"})
    seen = [[one.container_path for one in each.mounts] for each in answer.container_responses]
    assert seen == [["/dev/sim-gpu1"], ["/dev/sim-gpu0"]]
    assert [dict(each.envs)["SIM_VISIBLE_DEVICES"] for each in answer.container_responses] == ["sim-gpu1", "sim-gpu0"]


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


def test_probes_are_told_of_the_kubelet_that_runs_now(registered):
    soon(registered.ready)
    assert registered.asked("/else") == 503
    registered.manager.stop()
    assert registered.asked("/ready") == 503


def test_a_plugin_that_the_kubelet_has_dropped_registers_again(registered):
    soon(registered.ready)
    registered.manager.drop()
    soon(lambda: len(registered.manager.registrations) == 2)
    registered.shown()
    soon(registered.ready)


class Hurried:
    """A second passes with each wait."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def wait(self, seconds):
        self.now += 1.0


def test_a_kubelet_that_never_asks_for_the_devices_is_asked_again(world):
    world.manager.silent = True
    clock = Hurried()
    offer = AdvertisedDevices(resource=RESOURCE, count=2, run=world.run)
    registration = Registration(offer, folder=world.plugins, clock=clock)
    registration.serve_one_kubelet()
    assert (registration.ready(), len(world.manager.registrations)) == (False, 1)
    assert clock.now == pytest.approx(LIST_SECONDS, abs=2)
    world.manager.silent = False
    with world.plugin():
        world.shown()


def test_stubs_load_without_warnings():
    words = [sys.executable, "-W", "error", "-c", "import upgrader_dev.node.proto.deviceplugin_pb2_grpc"]
    assert run(words, timeout=20, env={**os.environ}).stderr == b""


def test_a_stopped_plugin_leaves_no_claim_of_being_ready(world):
    with contextlib.ExitStack() as stack:
        stack.enter_context(world.plugin())
        soon(world.ready)
    assert world.asked("/ready") == 0


def test_the_unhealthy_file_may_say_what_a_device_has_met(registered):
    unhealthy = registered.run / "sim" / "unhealthy"
    unhealthy.write_text("sim-gpu1 63\n")
    registered.shown(WELL | {"sim-gpu1": "Unhealthy"})
    assert devices.unhealthy_devices(registered.run) == {"sim-gpu1": 63}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("sim-gpu3 sim-gpu5", {"sim-gpu3": 79, "sim-gpu5": 79}),
        ("sim-gpu3 63\nsim-gpu5\n", {"sim-gpu3": 63, "sim-gpu5": 79}),
        ("48 sim-gpu3", {"sim-gpu3": 79}),
    ],
)
def test_what_the_unhealthy_file_says(tmp_path, text, found):
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "unhealthy").write_text(text)
    assert devices.unhealthy_devices(tmp_path) == found
