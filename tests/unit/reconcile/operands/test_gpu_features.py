"""Labels of simulated GPUs in virtual time: of what is loaded, while discovery is on, and nobody else's."""

import json

import pytest

from tests.support.pools import pool
from upgrader.api import names
from upgrader.api.resources import GPU_STACKS, NODES
from upgrader.core.model.phases import NodePhase
from upgrader.reconcile.gpu_stack import stack_reconciler
from upgrader_dev.simulated.cluster.rig import STACK, Rig
from upgrader_dev.vendor.labels import LABELS_CAPABLE, LABELS_DRIVER, LABELS_DRIVER_VERSION, LABELS_GPU

GFD = "registry/gfd:1"
FEATURE_LABELS = frozenset((*LABELS_GPU, *LABELS_DRIVER, *LABELS_DRIVER_VERSION, *LABELS_CAPABLE))


@pytest.fixture
def rig():
    found = Rig()
    found.registry.push(GFD, "cc")
    return found


def discovering(rig, version="1.0", *, management="Managed"):
    named = {"image": GFD} if management == "Managed" else {}
    return rig.make_spec(version) | {"featureDiscovery": {"management": management, **named}}


def meta(rig, node="gpu-0"):
    return rig.cluster.store.find(NODES, node)["metadata"]


def labels(rig, node="gpu-0"):
    return {key: value for key, value in meta(rig, node)["labels"].items() if key in FEATURE_LABELS}


def version(rig, node="gpu-0"):
    return labels(rig, node).get(names.LABEL_DRIVER_GFD)


def told(rig):
    standings = (one for one in rig.stack_now().status.operands if one.operand.value == "FeatureDiscovery")
    return next(((one.shown, one.message) for one in standings), ("", ""))


async def running(rig):
    await pool(rig)
    rig.apply_stack(discovering(rig))
    await rig.run_until(lambda: version(rig) == "1.0")


async def test_nodes_say_which_simulated_devices_they_have_on_which_driver(rig):
    await running(rig)
    await rig.run_until(lambda: told(rig) == ("1/1", ""))
    assert labels(rig) == {
        "nvidia.com/gpu.product": "SIMULATED-GPU",
        "nvidia.com/gpu.memory": "81920",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.family": "simulated",
        "nvidia.com/gpu.compute.major": "0",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/cuda.driver.major": "1",
        "nvidia.com/cuda.driver.minor": "0",
        "nvidia.com/cuda.driver.rev": "",
        "nvidia.com/cuda.driver-version.major": "1",
        "nvidia.com/cuda.driver-version.minor": "0",
        "nvidia.com/cuda.driver-version.revision": "",
        "nvidia.com/cuda.driver-version.full": "1.0",
        "nvidia.com/mig.capable": "false",
        "nvidia.com/mps.capable": "false",
    }
    before = meta(rig)["resourceVersion"]
    for _ in range(20):
        await rig.run_second()
    assert meta(rig)["resourceVersion"] == before


async def test_they_go_with_the_operands_of_a_node_upgrade_and_say_the_new_driver_after_it(rig):
    await running(rig)
    rig.put_image("2.0")
    rig.apply_plan("p", rig.apply_stack(discovering(rig, "2.0")))
    await rig.run_until(lambda: any(one.status.phase is NodePhase.UPGRADING for one in rig.upgrades("p")))
    await rig.run_until(lambda: labels(rig) == {})
    await rig.run_until(lambda: version(rig) == "2.0")
    await rig.run_until(lambda: rig.is_over("p"))
    assert rig.stack_now().status.drift == []


async def test_they_go_when_it_is_turned_off(rig):
    await running(rig)
    rig.apply_stack(discovering(rig, management="External"))
    await rig.run_until(lambda: told(rig) == ("External", ""))
    await rig.run_until(lambda: labels(rig) == {})
    assert names.ANNOTATION_GPU_FEATURES not in meta(rig).get("annotations", {})


async def test_they_go_with_their_stack_and_with_a_node_that_leaves_it(rig):
    await pool(rig, nodes=2)
    rig.apply_stack(discovering(rig))
    await rig.run_until(lambda: {version(rig, "gpu-0"), version(rig, "gpu-1")} == {"1.0"})
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {"pool": "none"}}})
    await rig.run_until(lambda: labels(rig, "gpu-1") == {})
    assert version(rig) == "1.0"
    rig.cluster.store.remove(GPU_STACKS, STACK)
    for _ in range(20):
        await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings)
    assert labels(rig) == {}


async def test_a_label_of_another_client_stays(rig):
    await pool(rig)
    foreign_labels = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": foreign_labels}})
    rig.apply_stack(discovering(rig))
    await rig.run_until(lambda: version(rig) == "1.0")
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {"nvidia.com/gpu.memory": "1"}}})
    rig.apply_stack(discovering(rig, management="External"))
    await rig.run_until(lambda: labels(rig) == foreign_labels | {"nvidia.com/gpu.memory": "1"})


async def test_labels_of_another_stacks_nodes_are_left_alone(rig):
    await running(rig)
    rig.fleet.add_node("other-0")
    rig.cluster.store.change(NODES, "other-0", {"metadata": {"labels": {"pool": "b"}}})
    rig.apply_stack(discovering(rig) | {"nodeSelector": {"pool": "b"}}, "pool-b")
    await rig.run_until(lambda: version(rig, "other-0") == "1.0")
    for _ in range(10):
        await rig.run_second()
        assert (version(rig), version(rig, "other-0")) == ("1.0", "1.0")


async def test_shared_devices_are_told_as_shared(rig):
    await running(rig)
    spec = discovering(rig)
    rig.apply_plan("p", rig.apply_stack(spec | {"devicePlugin": spec["devicePlugin"] | {"sharing": {"timeSlices": 4}}}))
    await rig.run_until(lambda: rig.is_over("p"))
    await rig.run_until(lambda: labels(rig).get("nvidia.com/gpu.replicas") == "4")
    assert labels(rig)["nvidia.com/gpu.product"] == "SIMULATED-GPU-SHARED"


async def test_a_record_that_nobody_can_read_and_a_report_that_is_none_are_said(rig):
    await running(rig)
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"annotations": {names.ANNOTATION_GPU_FEATURES: "{"}}})
    said = "gpu-0: annotation gpu-upgrader.io/gpu-features cannot be read; remove it, and its GPU labels"
    await rig.run_until(lambda: told(rig) == ("1/1", said))
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"annotations": {names.ANNOTATION_GPU_FEATURES: None}}})
    await rig.run_until(lambda: told(rig) == ("1/1", ""))
    rig.fleet.loaded = lambda *_: {"exitCode": 0, "message": json.dumps({"version": 3})}
    await rig.run_until(lambda: "gpu-0: the output of its pod is not a report" in told(rig)[1])
