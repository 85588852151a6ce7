"""Operands on a real kubelet of a box: shared devices, the runtime hook, and devices only in pods that ask for them."""

import json

import pytest

from tests.support.programs import soon
from tests.support.workbench import RESOURCE
from upgrader.api import names
from upgrader.core.model.operands import PluginSettings
from upgrader.core.model.revisions import plugin_key
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.stack import manifests

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PODS = "/api/v1/namespaces/default/pods"
LOOK = "echo ${SIM_VISIBLE_DEVICES:-none}; for d in /dev/sim-gpu*; do echo $d; done"
NOTHING = ["none", "/dev/sim-gpu*"]


@pytest.fixture
def shared(installed):
    """A plugin that offers each device twice, behind the runtime hook; the plugin of before comes back afterwards."""
    bench = installed
    settings = PluginSettings(vendor="sim", driver_vendor="sim", resource_name=RESOURCE, time_slices=2, cdi=True)
    image = bench.product.plugins["1"]
    key = plugin_key(digest=image, resource_name=RESOURCE, more=settings.facts)
    made = [
        manifests.runtime_daemonset("stack", "f" * 16, image, settings, bench.settings),
        manifests.plugin_daemonset("stack", key, image, settings, bench.settings),
    ]
    collection = f"/apis/apps/v1/namespaces/{bench.settings.namespace}/daemonsets"
    before = bench.operands("device-plugin")[0]["metadata"]["labels"][names.LABEL_IMAGE_KEY]
    bench.label({names.LABEL_DEVICE_PLUGIN: key})
    soon(lambda: not bench.operands("device-plugin"), 60)
    for one in made:
        bench.api.create(collection, one)
    yield bench, key
    bench.label({names.LABEL_RUNTIME: None, names.LABEL_DEVICE_PLUGIN: "none"})
    for one in made:
        bench.api.delete(f"{collection}/{one['metadata']['name']}")
    soon(lambda: not bench.operands("device-plugin"), 60)  # as in a node upgrade: never two of them on a node
    bench.label({names.LABEL_DEVICE_PLUGIN: before})
    bench.wait_operand("device-plugin", before)
    bench.wait_allocatable("8")


def seen_by(bench, name, count):
    """What a pod sees that asks for so many devices."""
    container = {"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never"}
    container |= {"command": ["/bin/busybox", "sh", "-c", LOOK]}
    container |= {"resources": {"limits": {RESOURCE: str(count)}}} if count else {}
    spec = {"nodeName": bench.node.name, "restartPolicy": "Never", "containers": [container]}
    bench.api.create(PODS, {"metadata": {"name": name}, "spec": spec})
    soon(lambda: bench.api.get(f"{PODS}/{name}")["status"]["phase"] in {"Succeeded", "Failed"}, 60)
    lines = bench.api.read_text(f"{PODS}/{name}/log").splitlines()
    bench.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")
    return lines


def test_a_pod_that_does_not_ask_sees_no_device(installed):
    assert seen_by(installed, "asks-not", 0) == NOTHING


def test_the_plugin_waits_for_the_hook_which_says_what_the_runtime_can_and_shares_what_is_there(shared):
    bench, key = shared
    soon(lambda: "after-runtime" in waiting(bench), 90)
    (pod,) = bench.operands("device-plugin")
    assert [set(one["state"]) for one in pod["status"]["containerStatuses"]] == [{"waiting"}]

    bench.label({names.LABEL_RUNTIME: "f" * 16})
    bench.wait_operand("runtime", "f" * 16)
    bench.wait_operand("device-plugin", key)
    bench.wait_allocatable("16")
    left = json.loads(bench.node.enter("cat", f"{RUN_DIRECTORY}/runtime.json").text)
    assert "containerd" in left["why"]
    spec = json.loads(bench.node.enter("cat", "/var/run/cdi/gpu-upgrader-sim.json").text)
    assert (spec["kind"], len(spec["devices"])) == ("gpu-upgrader.io/sim", 8)

    # Served by CDI or, where the box's containerd does not know it, as a mount: a pod sees exactly its own either way.
    visible, *files = seen_by(bench, "asks", 1)
    assert files == [f"/dev/{visible}"]
    assert seen_by(bench, "asks-not", 0) == NOTHING


def waiting(bench):
    """Names of init containers of the plugin that run now."""
    for pod in bench.operands("device-plugin"):
        for status in pod["status"].get("initContainerStatuses", []):
            if "running" in status["state"]:
                yield status["name"]
