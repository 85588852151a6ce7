"""The simulated device plugin at a real kubelet's device manager; the same API played: tests/unit/node."""

import pytest

from tests.support.programs import soon
from tests.support.workbench import RESOURCE
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_a_pod_gets_the_device_files_that_it_asked_for(installed):
    bench = installed
    path = "/api/v1/namespaces/default/pods"
    line = "echo $SIM_VISIBLE_DEVICES; for d in /dev/sim-gpu*; do echo $d; done; /bin/busybox cat /dev/sim-gpu*"
    container = {"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never"}
    container |= {"command": ["/bin/busybox", "sh", "-c", line], "resources": {"limits": {RESOURCE: "2"}}}
    spec = {"nodeName": "gpu-a", "restartPolicy": "Never", "containers": [container]}
    bench.api.create(path, {"metadata": {"name": "asks"}, "spec": spec})
    soon(lambda: bench.api.get(f"{path}/asks")["status"]["phase"] in {"Succeeded", "Failed"}, 60)

    visible, *lines = bench.api.read_text(f"{path}/asks/log").splitlines()

    names = visible.split(",")
    assert len(names) == 2
    assert lines == [f"/dev/{name}" for name in names] + [f"sim 1.0.0 {name} simulated" for name in names]
    bench.api.delete(f"{path}/asks?gracePeriodSeconds=0")


def test_health_reaches_the_node(installed):
    bench = installed
    bench.node.enter("sh", "-c", f"echo sim-gpu3 sim-gpu5 > {RUN_DIRECTORY}/sim/unhealthy")
    bench.wait_allocatable("6")
    bench.node.enter("rm", f"{RUN_DIRECTORY}/sim/unhealthy")
    bench.wait_allocatable("8")


def test_it_registers_again_with_every_kubelet_that_starts(installed):
    bench = installed
    before = bench.operands("device-plugin")[0]
    for _ in range(2):
        known = registrations(bench)
        bench.node.restart("kubelet")
        soon(lambda known=known: registrations(bench) == known + 1, 90)
    bench.wait_allocatable("8")
    after = bench.operands("device-plugin")[0]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_reboot_forgets_the_driver_and_the_daemonset_loads_it_again(installed):
    bench = installed
    old = bench.node.state().boot_id
    assert old in record(bench)
    bench.node.power_off()
    bench.node.power_on()
    soon(lambda: bench.node.state().boot_id != old and bench.node.state().ready == "True", 90)
    soon(lambda: bench.node.state().boot_id in record(bench), 90)
    bench.wait_allocatable("8")


def registrations(bench):
    """How often a kubelet of this node took a registration, by its own word."""
    return bench.node.log("kubelet").read_text().count("Got registration request from device plugin with resource")


def record(bench):
    return bench.node.enter("sh", "-c", f"cat {RUN_DIRECTORY}/sim/loaded.json || true").text
