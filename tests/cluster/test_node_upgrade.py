"""What runs on a node, on a real one: images, driver, plugin, prepare, upgrade, validation and the kubelet's own swap.

The kernel and the GPUs are simulated, see docs/reference/node-contract.md; kubelet, containers and device manager are
real.
"""

import pytest

from tests.support.programs import soon
from tests.support.workbench import BROKEN, RESOURCE
from upgrader.core.node_protocol.orders import Reason

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def pod(workbench):
    """A pod of somebody else; gives its object once it runs."""
    made = []

    def start(name, **container):
        made.append(name)
        whole = {"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never", **container}
        spec = {"nodeName": "gpu-a", "terminationGracePeriodSeconds": 1, "containers": [whole]}
        workbench.api.create(PODS, {"metadata": {"name": name}, "spec": spec})
        return soon(lambda: (seen := workbench.api.get(f"{PODS}/{name}")) and running(seen) and seen, 60)

    yield start
    for name in made:
        workbench.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def running(seen):
    return seen["status"]["phase"] == "Running"


def container_id(seen):
    return seen["status"]["containerStatuses"][0]["containerID"]


def well(answer):
    code, result = answer
    assert (code, result.reason) == (0, Reason.DONE), result
    return result


def test_one_upgrade_swaps_driver_plugin_and_kubelet_under_a_running_pod_and_back(installed, pod):
    bench = installed
    bystander = pod("bystander")
    upgrade = bench.upgrade(bench.state("1.0.0", "1.34.4"), bench.state("2.0.0", "1.35.4", plugin="2"))

    prepared = well(bench.prepare(upgrade))
    assert prepared.facts["simulated"] == "the driver image contains no kernel module"
    assert bench.node.state().kubelet == "v1.34.4"

    bench.off()
    upgraded = well(bench.run_upgrade(upgrade))
    assert upgraded.message == "sim 1.0.0 unloaded (simulated); kubelet 1.35.4 runs and the node is Ready"
    assert bench.node.state().kubelet == "v1.35.4"
    assert bench.run_upgrade(upgrade, job="again") == (0, upgraded)

    bench.on("2.0.0", plugin="2")
    bench.wait_allocatable("8")
    assert "sim 2.0.0 (simulated): 8 device(s) open" in well(bench.validate(upgrade)).message
    code, stale = bench.validate(bench.upgrade({}, bench.state("2.0.0", "1.35.4")), boot_id="another")
    assert (code, stale.reason) == (11, Reason.DRIVER_MISMATCH)

    bench.off()
    well(bench.run_upgrade(upgrade, reverting=True))
    assert bench.node.state().kubelet == "v1.34.4"
    assert container_id(bench.api.get(f"{PODS}/bystander")) == container_id(bystander)


def test_a_kubelet_that_does_not_start_is_put_back_by_the_upgrade_itself(installed, pod):
    bench = installed
    bystander = pod("bystander")
    upgrade = bench.upgrade(bench.state("1.0.0", "1.34.4"), bench.state("2.0.0", BROKEN))
    well(bench.prepare(upgrade))
    bench.off()

    code, result = bench.run_upgrade(upgrade, patience=12)

    assert (code, result.reason) == (16, Reason.KUBELET_RESTORED)
    assert f"kubelet {BROKEN}: no kubelet runs" in result.message
    assert "Kubelet 1.34.4 was restored and runs" in result.message
    assert bench.node.wait_ready().kubelet == "v1.34.4"
    assert container_id(bench.api.get(f"{PODS}/bystander")) == container_id(bystander)


def test_a_process_that_holds_a_device_is_named_and_nothing_is_switched(installed, pod):
    bench = installed
    hold = ["/bin/busybox", "sh", "-c", "exec 3<>/dev/$SIM_VISIBLE_DEVICES; exec /bin/busybox sleep 1000"]
    holder = pod("holder", command=hold, resources={"limits": {RESOURCE: "1"}})
    upgrade = bench.upgrade(bench.state("1.0.0", "1.34.4"), bench.state("2.0.0", "1.35.4"))
    bench.off()

    code, result = bench.run_upgrade(upgrade)

    assert (code, result.reason) == (15, Reason.BUSY)
    assert "(busybox)" in result.message
    assert running(bench.api.get(f"{PODS}/holder"))
    assert container_id(bench.api.get(f"{PODS}/holder")) == container_id(holder)
    assert bench.node.state().kubelet == "v1.34.4"
    bench.give_up(upgrade)  # else it looks again, and unloads the driver once the holder has gone


def test_what_prepare_finds_wrong_touches_nothing(installed):
    bench = installed
    there = bench.state("1.0.0", "1.34.4")

    code, kernel = bench.prepare(bench.upgrade(there, bench.state("2.0.0", "1.34.4") | {"kernel": "6.1.0-99"}))
    assert (code, kernel.reason) == (10, Reason.KERNEL_MISMATCH)

    wrong = bench.state("2.0.0", "1.34.4") | {"driverVersion": "3.0.0"}
    code, driver = bench.prepare(bench.upgrade(there, wrong))
    assert (code, driver.reason) == (11, Reason.DRIVER_MISMATCH)

    elsewhere = bench.state("2.0.0", "1.35.4") | {"kubeletBinary": "/var/lib/box/kubelet.yaml"}
    code, kubelet = bench.prepare(bench.upgrade(there, elsewhere))
    assert (code, kubelet.reason) == (14, Reason.MISSING)
    assert "spec.kubelet.binary" in kubelet.message
    assert bench.allocatable() == "8"
