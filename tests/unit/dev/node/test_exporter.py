"""The simulated exporter as a program, scraped over HTTP; the kubelet's side of the pod resources API is played.

The same scraped by a real Prometheus on a real kubelet: tests/cluster/test_monitoring.py.
"""

import http.client
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.pod_resources import RESOURCE, KubeletPods
from tests.support.programs import soon, started
from upgrader.node.validation import devices
from upgrader_dev.node.exporter import HELP, MEMORY_MIB

FREE = {"container": "", "namespace": "", "pod": "", "vgpu": ""}
BUSY = "import sys; held = open(sys.argv[1]); [None for _ in iter(int, 1)]"


class Node:
    """A loaded driver with two devices, a kubelet that says who has them, and the exporter."""

    def __init__(self, folder):
        self.run, self.log = folder / "run", folder / "exporter.log"
        self.kubelet = KubeletPods(folder)
        self.port = 0
        (self.run / "sim").mkdir(parents=True)
        self.load("2.0.0")

    def load(self, version):
        folder = devices.device_folder(self.run)
        folder.mkdir(exist_ok=True)
        for number in range(2):
            (folder / devices.device_name(number)).write_text("")
        facts = {"vendor": "sim", "version": version, "kernel": "k", "bootId": "boot-1", "devices": 2}
        (self.run / "sim" / "loaded.json").write_bytes(msgspec.json.encode(facts))

    def exporter(self, *more):
        words = ["exporter", *more, "--run", str(self.run), "--socket", str(self.kubelet.socket), "--port", "0"]
        words += ["--every", "0.1", "--resource", RESOURCE]
        return started(
            [sys.executable, "-m", "upgrader_dev.node", *words], log=self.log, env={"UPGRADER_NODE": "node-1"}
        )

    def wait(self):
        text = soon(lambda: self.log.exists() and "devices at :" in (seen := self.log.read_text()) and seen)
        self.port = int(text.partition("devices at :")[2].partition("/")[0])

    def scrape(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            assert answer.status == 200
            return answer.read().decode()
        finally:
            connection.close()

    def families(self):
        return {family.name: family for family in text_string_to_metric_families(self.scrape())}

    def samples(self, metric):
        return [(one.labels, one.value) for one in self.families()[metric].samples]

    def holders(self, metric="DCGM_FI_DEV_GPU_UTIL"):
        """(device, vgpu, pod) of each series."""
        return [(labels["device"], labels["vgpu"], labels["pod"]) for labels, _ in self.samples(metric)]


@pytest.fixture
def node():
    with tempfile.TemporaryDirectory(prefix="ex") as folder:  # pytest's own are too long for a socket's 107 bytes
        node = Node(Path(folder))
        node.kubelet.start()
        try:
            with node.exporter():
                node.wait()
                yield node
        finally:
            node.kubelet.stop()


def test_names_and_labels_are_dcgm_exporters_and_every_text_says_simulated(node):
    families = node.families()
    assert {name for name in families if name.startswith("DCGM")} == set(HELP)
    for name in HELP:
        assert families[name].type == "gauge"
        assert "simulated" in families[name].documentation
    (labels, _), _ = node.samples("DCGM_FI_DEV_GPU_UTIL")
    assert labels == FREE | {
        "gpu": "0",
        "UUID": "GPU-dc82d2ef-acf8-5d39-8bd5-6319a23ebe1a",
        "device": "sim-gpu0",
        "modelName": "Simulated GPU",
        "Hostname": "node-1",
        "DCGM_FI_DRIVER_VERSION": "2.0.0",
    }


def test_an_idle_device(node):
    values = {name: node.samples(name)[1][1] for name in HELP}
    assert values == {
        "DCGM_FI_DEV_GPU_UTIL": 0.0,
        "DCGM_FI_DEV_FB_USED": 0.0,
        "DCGM_FI_DEV_FB_FREE": MEMORY_MIB,
        "DCGM_FI_DEV_GPU_TEMP": 30.0,
        "DCGM_FI_DEV_POWER_USAGE": 70.0,
        "DCGM_FI_DEV_XID_ERRORS": 0.0,
    }
    assert node.samples("upgrader_sim_devices") == [({}, 2.0)]
    assert node.samples("upgrader_sim_attribution") == [({}, 1.0)]


def test_a_device_is_attributed_to_the_pod_that_has_it(node):
    node.kubelet.given = {"sim-gpu1": ("team", "trainer-0", "main")}
    idle, taken = node.samples("DCGM_FI_DEV_FB_FREE")
    assert FREE.items() <= idle[0].items()
    assert taken[0] | {"container": "main", "namespace": "team", "pod": "trainer-0", "vgpu": ""} == taken[0]
    node.kubelet.given = {}
    assert node.holders() == [("sim-gpu0", "", ""), ("sim-gpu1", "", "")]


def test_a_shared_device_is_attributed_to_each_of_its_pods(node):
    node.kubelet.given = {"sim-gpu0::0": ("team", "one", "main"), "sim-gpu0::3": ("team", "two", "main")}
    assert node.holders() == [("sim-gpu0", "0", "one"), ("sim-gpu0", "3", "two"), ("sim-gpu1", "", "")]


def test_utilisation_follows_what_the_holder_does(node):
    held = devices.device_folder(node.run) / "sim-gpu1"
    with started([sys.executable, "-c", BUSY, str(held)], log=node.log.with_name("busy.log")):
        soon(lambda: node.samples("DCGM_FI_DEV_GPU_UTIL")[1][1] > 5)
        assert node.samples("DCGM_FI_DEV_POWER_USAGE")[1][1] > 70
        assert node.samples("DCGM_FI_DEV_FB_USED")[1][1] > 1
        assert node.samples("DCGM_FI_DEV_GPU_UTIL")[0][1] == 0
    soon(lambda: node.samples("DCGM_FI_DEV_GPU_UTIL")[1][1] == 0)


def test_an_unhealthy_device_shows_its_xid(node):
    (node.run / "sim" / "unhealthy").write_text("sim-gpu1 63\n")
    assert [value for _, value in node.samples("DCGM_FI_DEV_XID_ERRORS")] == [0.0, 63.0]


def test_without_the_kubelets_word_no_pod_is_named_and_a_metric_says_so(node):
    node.kubelet.given = {"sim-gpu1": ("team", "trainer-0", "main")}
    node.kubelet.stop()
    assert node.holders() == [("sim-gpu0", "", ""), ("sim-gpu1", "", "")]
    assert node.samples("upgrader_sim_attribution") == [({}, 0.0)]
    assert "the pods of devices cannot be read" in node.log.read_text()
    node.kubelet.start()
    soon(lambda: node.holders()[1] == ("sim-gpu1", "", "trainer-0"))


def test_a_driver_that_is_swapped_is_shown_and_one_that_is_away_shows_no_device(node):
    shutil.rmtree(devices.device_folder(node.run))
    (node.run / "sim" / "loaded.json").unlink()
    assert node.samples("DCGM_FI_DEV_GPU_UTIL") == []
    assert node.samples("upgrader_sim_devices") == [({}, 0.0)]
    node.load("3.0.0")
    assert {labels["DCGM_FI_DRIVER_VERSION"] for labels, _ in node.samples("DCGM_FI_DEV_GPU_UTIL")} == {"3.0.0"}


def test_devices_that_are_simulated_on_a_real_driver():
    with tempfile.TemporaryDirectory(prefix="ex") as folder:
        node = Node(Path(folder))
        (node.run / "nvidia").mkdir()
        facts = {"vendor": "nvidia", "version": "535.261.03", "kernel": "k", "bootId": "boot-1", "devices": 0}
        (node.run / "nvidia" / "loaded.json").write_bytes(msgspec.json.encode(facts))
        with node.exporter("--driver", "nvidia", "--count", "4"):
            node.wait()
            assert [one[0] for one in node.holders()] == [f"sim-gpu{number}" for number in range(4)]
            versions = {labels["DCGM_FI_DRIVER_VERSION"] for labels, _ in node.samples("DCGM_FI_DEV_GPU_UTIL")}
            assert versions == {"535.261.03"}
