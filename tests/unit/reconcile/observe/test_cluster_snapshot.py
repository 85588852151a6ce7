"""What is seen in objects: total functions, without I/O."""

import json

import msgspec
import pytest

from tests.support.manifests import changed, driver_image, gpu_stack
from tests.support.observed import (
    GPUS,
    MOUNTS,
    REQUESTS,
    RESOURCE,
    STACK,
    VOLUMES,
    budget,
    facts,
    member,
    node,
    pod,
    wire,
)
from upgrader.api import kubernetes as k
from upgrader.api.v1alpha1 import DriverImage, GpuStack
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.fleet import ImageFacts, Target
from upgrader.core.model.revisions import revision_of
from upgrader.core.workloads.pod_disruption_budgets import DisruptionBudget, Requirement, Selector
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.facts.pod_facts import gpus_of, member_facts
from upgrader.reconcile.observe import cluster_snapshot
from upgrader_dev.simulated.cluster.ports import START

# -------------------------------------------------------------------------------------------------------- stack


def test_a_target_is_what_the_stack_asks_of_its_nodes():
    found = cluster_snapshot.target_of(STACK.spec, "pool-a")
    assert found == Target(
        stack="pool-a",
        revision=revision_of(found),
        driver_vendor="sim",
        driver_version="570.10",
        plugin_image="registry.example/plugin:1.0",
        resource_name=RESOURCE,
    )


def test_the_driver_of_a_recipe_is_asked_for_apart_from_the_operands():
    driver = {"vendor": "sim", "recipe": "nvidia-open", "version": "535.261.03"}
    found = cluster_snapshot.target_of(wire(changed(gpu_stack(), "spec.driver", driver), GpuStack).spec, "pool-a")
    assert (found.vendor, found.operands) == ("sim", "sim")
    assert (found.driver_vendor, found.driver_recipe, found.driver_flavour) == ("nvidia", "nvidia-open", "open")
    assert found.driver == "nvidia-open 535.261.03"


def test_a_kubelet_counts_only_where_it_is_managed():
    kubelet = {"version": "1.35.4", "artifact": "registry.example/kubelet:1.35.4", "binary": "/opt/kubelet"}
    left = wire(changed(gpu_stack(), "spec.kubelet", kubelet), GpuStack)
    managed = wire(changed(gpu_stack(), "spec.kubelet", {**kubelet, "manage": True}), GpuStack)
    assert cluster_snapshot.target_of(left.spec, "pool-a") == cluster_snapshot.target_of(STACK.spec, "pool-a")
    found = cluster_snapshot.target_of(managed.spec, "pool-a")
    assert (found.kubelet_version, found.kubelet_artifact, found.kubelet_binary) == tuple(kubelet.values())


REAL = {"vendor": "nvidia", "version": "535.261.03"}


def asked(driver, **plugin):
    manifest = changed(gpu_stack(), "spec.driver", driver)
    spec = manifest["spec"]["devicePlugin"] | plugin
    return wire(changed(manifest, "spec.devicePlugin", spec), GpuStack).spec


def test_gpus_are_shared_by_mps_where_that_is_asked_for():
    found = cluster_snapshot.target_of(
        asked(REAL, sharing={"mps": {"replicas": 4, "runtimeClass": "nvidia"}}), "pool-a"
    )
    assert (found.mps_replicas, found.mps_runtime, found.time_slices, found.plugin.shares) == (4, "nvidia", 0, 4)
    without = cluster_snapshot.target_of(asked(REAL, sharing={"mps": {"replicas": 4}}), "pool-a")
    assert (without.mps_replicas, without.mps_runtime) == (4, "")
    assert len({one.revision for one in (found, without, cluster_snapshot.target_of(asked(REAL), "pool-a"))}) == 3


@pytest.mark.parametrize(
    ("driver", "plugin", "said"),
    [
        ({"vendor": "sim", "version": "570.10"}, {}, "GPUs of vendor sim cannot be shared by MPS: use timeSlices"),
        (REAL, {"timeSlices": 2}, "timeSlices and mps are mutually exclusive"),
        (REAL, {"migStrategy": "single"}, "NVIDIA's device plugin does not share MIG partitions by MPS"),
        (REAL, {"migStrategy": "mixed"}, "NVIDIA's device plugin does not share MIG partitions by MPS"),
        (REAL, {"resourceName": "example.com/gpu"}, "NVIDIA's device plugin shares only nvidia.com/gpu by MPS"),
    ],
)
def test_what_does_not_go_with_mps_is_refused_before_anything_is_planned(driver, plugin, said):
    resource = {"resourceName": plugin["resourceName"]} if "resourceName" in plugin else {}
    shares = {key: value for key, value in plugin.items() if key != "resourceName"}
    spec = asked(driver, **resource, sharing={"mps": {"replicas": 2}, **shares})
    with pytest.raises(ConfigurationError, match=said):
        cluster_snapshot.target_of(spec, "pool-a")


@pytest.mark.parametrize("name", ["allReduce", "diagnostics"])
@pytest.mark.parametrize("shares", [{"migStrategy": "single"}, {"mps": {"replicas": 2}}])
def test_a_program_for_whole_gpus_is_refused_where_they_are_divided(name, shares):
    manifest = changed(gpu_stack(), "spec.driver", {"vendor": "nvidia", "version": "570.10"})
    manifest = changed(manifest, "spec.devicePlugin.sharing", shares)
    spec = wire(changed(manifest, f"spec.validation.{name}", {"image": "registry.example/program:1"}), GpuStack).spec
    with pytest.raises(ConfigurationError, match=rf"spec.validation.{name}: the program needs "):
        cluster_snapshot.target_of(spec, "pool-a")


@pytest.mark.parametrize(
    ("vendor", "field", "value", "message"),
    [
        ("sim", "devicePlugin.sharing", {"migStrategy": "single"}, "GPUs of vendor sim cannot be partitioned"),
        ("sim", "validation.workloadImage", "x", "GPUs of vendor sim are validated by a built-in program"),
        ("acme", "driver.version", "1", "there is no vendor acme, but nvidia and sim"),
    ],
)
def test_a_setting_that_a_vendor_does_not_support_is_refused(vendor, field, value, message):
    manifest = changed(gpu_stack(), "spec.driver", {"vendor": vendor, "version": "570.10"})
    spec = wire(changed(manifest, f"spec.{field}", value), GpuStack).spec
    with pytest.raises(ConfigurationError, match=message):
        cluster_snapshot.target_of(spec, "pool-a")


# ------------------------------------------------------------------------------------------------------- images


def test_only_ready_images_with_key_and_digest_count():
    ready = {"phase": "Ready", "digest": "registry.example/driver@sha256:0", "key": "k"}
    assert cluster_snapshot.image_facts(wire(driver_image() | {"status": ready}, DriverImage)) == ImageFacts(
        key="k", vendor="sim", version="570.10", kernel="6.1.0-40-amd64", digest="registry.example/driver@sha256:0"
    )
    for missing in ({}, {"phase": "Retrying"}, {"digest": None}, {"key": None}):
        status = {} if not missing else ready | missing
        assert cluster_snapshot.image_facts(wire(driver_image() | {"status": status}, DriverImage)) is None


# -------------------------------------------------------------------------------------------------------- nodes


OUR_TAINT = {"key": "gpu-upgrader.io/maintenance", "effect": "NoSchedule"}
FULL = "feature.node.kubernetes.io/kernel-version.full"


def recorded(kernel):
    """What our labeller leaves on a Node."""
    text = json.dumps({"stack": "pool-a", "bootId": "boot-1", "labels": {FULL: kernel}})
    return {"gpu-upgrader.io/node-features": text}


NODE_TABLE = {
    "a node that says little": (node(), facts()),
    "everything that we read": (
        node(
            labels={
                "feature.node.kubernetes.io/kernel-version.full": "6.1.0",
                "nvidia.com/cuda.driver-version.full": "570.10",
                "gpu-upgrader.io/driver": "key",
                "gpu-upgrader.io/device-plugin": "plugin",
                "gpu-upgrader.io/operands": "on",
                "gpu-upgrader.io/revision": "0123456789",
            },
            annotations={"gpu-upgrader.io/claimed-by": "uid-upgrade"},
            spec={"unschedulable": True, "taints": [{"key": "other"}, {**OUR_TAINT, "value": "c-1"}]},
            nodeInfo={"kernelVersion": "6.1.0", "kubeletVersion": "v1.35.4", "bootID": "boot"},
            capacity={RESOURCE: "8", "cpu": "4"},
            allocatable={RESOURCE: 7},
        ),
        facts(
            kernel="6.1.0",
            kubelet_version="1.35.4",
            boot_id="boot",
            gpus=8,
            gpus_allocatable=7,
            unschedulable=True,
            kernel_label="6.1.0",
            driver_version_label="570.10",
            driver_key="key",
            plugin_key="plugin",
            operands="on",
            revision="0123456789",
            maintenance="c-1",
            claimed_by="uid-upgrade",
            labels={
                "feature.node.kubernetes.io/kernel-version.full": "6.1.0",
                "nvidia.com/cuda.driver-version.full": "570.10",
                "gpu-upgrader.io/driver": "key",
                "gpu-upgrader.io/device-plugin": "plugin",
                "gpu-upgrader.io/operands": "on",
                "gpu-upgrader.io/revision": "0123456789",
            },
        ),
    ),
    "our kernel label carries the boot on which it was read": (
        node(labels={FULL: "6.1.0"}, annotations=recorded("6.1.0")),
        facts(kernel_label="6.1.0", labels_boot="boot-1", labels={FULL: "6.1.0"}),
    ),
    "one that somebody changed after us does not": (
        node(labels={FULL: "6.1.1"}, annotations=recorded("6.1.0")),
        facts(kernel_label="6.1.1", labels={FULL: "6.1.1"}),
    ),
    "nor does one whose record cannot be read": (
        node(labels={FULL: "6.1.0"}, annotations={"gpu-upgrader.io/node-features": "?"}),
        facts(kernel_label="6.1.0", labels={FULL: "6.1.0"}),
    ),
    "a maintenance taint without a value counts": (
        node(spec={"taints": [OUR_TAINT]}),
        facts(maintenance="without a name"),
    ),
    "Ready unknown is not Ready": (node(conditions=[{"type": "Ready", "status": "Unknown"}]), facts(ready=False)),
    "no condition at all is not Ready": (node(conditions=[]), facts(ready=False)),
    "a thousand is written with its suffix": (
        node(capacity={RESOURCE: "1k"}, allocatable={RESOURCE: "1k"}),
        facts(gpus=1000, gpus_allocatable=1000),
    ),
    "quantities that are no whole number are none, and said": (
        node(capacity={RESOURCE: "1500m"}, allocatable={RESOURCE: -1}),
        facts(
            unreadable="nvidia.com/gpu of node a cannot be read: '1500m' is not a whole number of GPUs. "
            "See its device plugin, and restart its kubelet."
        ),
    ),
    "partitions are GPUs, and known by their names": (
        node(
            capacity={RESOURCE: "4", "nvidia.com/mig-1g.10gb": "14", "rdma/hca": "8"},
            allocatable={RESOURCE: "4", "nvidia.com/mig-1g.10gb": "13", "nvidia.com/mig-2g.20gb": "0", "rdma/hca": "8"},
        ),
        facts(gpus=18, gpus_allocatable=17, gpus_in_parts=(("nvidia.com/mig-1g.10gb", 13),)),
    ),
    "skip is a person's word": (
        node(labels={"gpu-upgrader.io/skip": "true"}),
        facts(skip=True, labels={"gpu-upgrader.io/skip": "true"}),
    ),
    "any other word is not": (
        node(labels={"gpu-upgrader.io/skip": "maybe"}),
        facts(labels={"gpu-upgrader.io/skip": "maybe"}),
    ),
}


@pytest.mark.parametrize(("seen", "expected"), NODE_TABLE.values(), ids=NODE_TABLE.keys())
def test_nodes(seen, expected):
    assert node_facts(seen, RESOURCE) == expected


def test_a_pool_is_what_the_selector_selects():
    assert cluster_snapshot.in_pool(node(labels={"pool": "a", "x": "y"}), STACK.spec)
    assert not cluster_snapshot.in_pool(node(labels={"pool": "b"}), STACK.spec)
    assert not cluster_snapshot.in_pool(node(), STACK.spec)


# --------------------------------------------------------------------------------------------------------- pods


SIDECAR = {
    "container": "sidecar",
    "ephemeral_paths": (),
    "volume_paths": (),
    "mounted": False,
    "answers_mounted": False,
}
NO_ITEM = {"name": "requests", "downwardAPI": {"items": REQUESTS["downwardAPI"]["items"][:1]}}
POD_TABLE = {
    "a trainer with its mounts": (pod(), "", member()),
    "asked": (
        pod(annotations={"gpu-upgrader.io/checkpoint-request": "17"}, labels={"app": "x"}),
        "",
        member(request="17", labels={"app": "x"}),
    ),
    "ending": (pod(deletionTimestamp="2026-11-21T09:00:00Z"), "", member(terminating=True)),
    "the container that was asked for": (pod(), "sidecar", member(**SIDECAR)),
    "the container that its annotation names": (
        pod(annotations={"gpu-upgrader.io/checkpoint-container": "sidecar"}),
        "",
        member(**SIDECAR),
    ),
    "the container that kubectl takes": (
        pod(annotations={"kubectl.kubernetes.io/default-container": "sidecar"}),
        "",
        member(**SIDECAR),
    ),
    "a container that is not there": (pod(), "main", member(**{**SIDECAR, "container": ""})),
    "by a projected volume": (
        pod(volumes=[{"name": "requests", "projected": {"sources": [REQUESTS, {"secret": {}}]}}, *VOLUMES[1:]]),
        "",
        member(),
    ),
    "one item is missing": (pod(volumes=[NO_ITEM, *VOLUMES[1:]]), "", member(mounted=False)),
    "mounted by subPath it would never change": (
        pod(mounts=[{**MOUNTS[0], "subPath": "checkpoint-request"}, *MOUNTS[1:]]),
        "",
        member(mounted=False),
    ),
    "nowhere to answer": (
        pod(mounts=[MOUNTS[0], MOUNTS[2]]),
        "",
        member(mounted=False, answers_mounted=False, ephemeral_paths=("/etc/gpu-upgrader/",)),
    ),
    "its place among the members": (
        pod(labels={"batch.kubernetes.io/job-completion-index": "3"}),
        "",
        member(rank=3, labels={"batch.kubernetes.io/job-completion-index": "3"}),
    ),
}


@pytest.mark.parametrize(("seen", "container", "expected"), POD_TABLE.values(), ids=POD_TABLE.keys())
def test_members(seen, container, expected):
    assert member_facts(seen, GPUS, container) == expected


def test_when_a_member_started_and_whose_process_1_it_sees():
    status = k.PodStatus(phase="Running", start_time="2026-11-21T09:00:00Z")
    seen = msgspec.structs.replace(pod(), status=status)
    assert member_facts(seen, GPUS).started_at == START
    for shared in ({"shareProcessNamespace": True}, {"hostPID": True}):
        spec = msgspec.convert({**msgspec.to_builtins(seen.spec), **shared}, k.PodSpec)
        assert member_facts(msgspec.structs.replace(seen, spec=spec), GPUS).shares_processes


# --------------------------------------------------------------------------------------------------------- jobs


# ------------------------------------------------------------------------------------------------------ budgets


SELECTORS = {
    "none selects nothing": (None, None),
    "the empty one selects everything": ({}, Selector()),
    "labels and expressions": (
        {
            "matchLabels": {"app": "train"},
            "matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}, {"key": "z", "operator": "Exists"}],
        },
        Selector(
            labels={"app": "train"},
            requirements=(
                Requirement(key="x", operator="In", values=("y",)),
                Requirement(key="z", operator="Exists"),
            ),
        ),
    ),
}


@pytest.mark.parametrize(("seen", "expected"), SELECTORS.values(), ids=SELECTORS.keys())
def test_disruption_budgets(seen, expected):
    assert cluster_snapshot.disruption_budget(budget(seen, 3)) == DisruptionBudget(
        name="keep", namespace="ml", selector=expected, allowed=3
    )


def test_a_pod_holds_of_each_resource_what_its_containers_or_one_before_them_ask_for():
    asked = [{"nvidia.com/mig-1g.10gb": "1"}, {"nvidia.com/mig-1g.10gb": "1", RESOURCE: "1"}]
    before = [{"nvidia.com/mig-3g.40gb": "2"}, {RESOURCE: "3", "nvidia.com/mig-3g.40gb": "1"}]
    containers, first = ([{"name": "c", "resources": {"limits": one}} for one in many] for many in (asked, before))
    made = wire({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": first}}, k.Pod)
    assert gpus_of(made, GPUS) == 2 + 3 + 2
