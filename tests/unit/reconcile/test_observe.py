"""What is seen in objects: total functions, without I/O."""

from datetime import timedelta

import msgspec
import pytest

from tests.support.manifests import changed, driver_image, gpu_stack
from tests.support.observed import (
    MOUNTS,
    REQUESTS,
    RESOURCE,
    STACK,
    VOLUMES,
    budget,
    facts,
    job,
    job_facts,
    member,
    node,
    pod,
    wire,
)
from tests.support.world import START
from upgrader.api import kubernetes as k
from upgrader.api.v1alpha1 import DriverImage, GpuStack
from upgrader.core.declarations import Declared
from upgrader.core.disruption import DisruptionBudget, Requirement, Selector
from upgrader.core.fleet import ImageFacts, Target
from upgrader.core.revisions import revision_of
from upgrader.reconcile import observe

# -------------------------------------------------------------------------------------------------------- stack


def test_a_target_is_what_the_stack_asks_of_its_nodes():
    found = observe.target_of(STACK.spec, "pool-a")
    assert found == Target(
        stack="pool-a",
        revision=revision_of(found),
        driver_vendor="sim",
        driver_version="570.10",
        plugin_image="registry.example/plugin:1.0",
        resource_name=RESOURCE,
    )


def test_a_kubelet_counts_only_where_it_is_managed():
    kubelet = {"version": "1.35.4", "artifact": "registry.example/kubelet:1.35.4", "binary": "/opt/kubelet"}
    left = wire(changed(gpu_stack(), "spec.kubelet", kubelet), GpuStack)
    managed = wire(changed(gpu_stack(), "spec.kubelet", {**kubelet, "manage": True}), GpuStack)
    assert observe.target_of(left.spec, "pool-a") == observe.target_of(STACK.spec, "pool-a")
    found = observe.target_of(managed.spec, "pool-a")
    assert (found.kubelet_version, found.kubelet_artifact, found.kubelet_binary) == tuple(kubelet.values())


# ------------------------------------------------------------------------------------------------------- images


def test_only_ready_images_with_key_and_digest_count():
    ready = {"phase": "Ready", "digest": "registry.example/driver@sha256:0", "key": "k"}
    assert observe.image_facts(wire(driver_image() | {"status": ready}, DriverImage)) == ImageFacts(
        key="k", vendor="sim", version="570.10", kernel="6.1.0-40-amd64", digest="registry.example/driver@sha256:0"
    )
    for missing in ({}, {"phase": "Retrying"}, {"digest": None}, {"key": None}):
        status = {} if not missing else ready | missing
        assert observe.image_facts(wire(driver_image() | {"status": status}, DriverImage)) is None


# -------------------------------------------------------------------------------------------------------- nodes


OUR_TAINT = {"key": "gpu-upgrader.io/maintenance", "effect": "NoSchedule"}
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
            annotations={"gpu-upgrader.io/visit": "uid-visit"},
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
            visit="uid-visit",
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
    "our taint without a value is still ours": (
        node(spec={"taints": [OUR_TAINT]}),
        facts(maintenance="without a name"),
    ),
    "Ready unknown is not Ready": (node(conditions=[{"type": "Ready", "status": "Unknown"}]), facts(ready=False)),
    "no condition at all is not Ready": (node(conditions=[]), facts(ready=False)),
    "quantities that are no whole number are none": (
        node(capacity={RESOURCE: "8k"}, allocatable={RESOURCE: -1}),
        facts(),
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
    assert observe.node_facts(seen, RESOURCE) == expected


def test_a_pool_is_what_the_selector_selects():
    assert observe.in_pool(node(labels={"pool": "a", "x": "y"}), STACK.spec)
    assert not observe.in_pool(node(labels={"pool": "b"}), STACK.spec)
    assert not observe.in_pool(node(), STACK.spec)


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
    assert observe.member_facts(seen, RESOURCE, container) == expected


def test_when_a_member_started_and_whose_process_1_it_sees():
    status = k.PodStatus(phase="Running", start_time="2026-11-21T09:00:00Z")
    seen = msgspec.structs.replace(pod(), status=status)
    assert observe.member_facts(seen, RESOURCE).started_at == START
    for shared in ({"shareProcessNamespace": True}, {"hostPID": True}):
        spec = msgspec.convert({**msgspec.to_builtins(seen.spec), **shared}, k.PodSpec)
        assert observe.member_facts(msgspec.structs.replace(seen, spec=spec), RESOURCE).shares_processes


def test_a_job_with_a_deadline_of_its_own_ends_by_then():
    assert observe.job_facts(job(activeDeadlineSeconds=60)).ends_by is None, "not started yet"
    started = msgspec.structs.replace(
        job(activeDeadlineSeconds=60), status=k.JobStatus(start_time="2026-11-21T09:00:00Z")
    )
    assert observe.job_facts(started).ends_by == START + timedelta(seconds=60)


OUTLIVES = {
    "persistentVolumeClaim": True,
    "hostPath": True,
    "nfs": True,
    "iscsi": True,
    "fc": True,
    "cephfs": True,
    "azureFile": True,
    "emptyDir": False,
    "ephemeral": False,
    "csi": False,
    "configMap": False,
    "image": False,
}


@pytest.mark.parametrize(("sort", "outlives"), OUTLIVES.items())
def test_what_outlives_a_pod(sort, outlives):
    found = observe.member_facts(
        pod(volumes=[{"name": "v", sort: {"path": "/x"}}], mounts=[{"name": "v", "mountPath": "/v"}]), RESOURCE
    )
    assert (found.volume_paths, found.ephemeral_paths) == ((("/v",), ()) if outlives else ((), ("/v",)))


def test_gpus_are_those_of_all_containers_or_of_the_largest_init_container():
    def asks(*counts):
        return [{"name": f"c{at}", "resources": {"requests": {RESOURCE: count}}} for at, count in enumerate(counts)]

    def count(containers, init=()):
        spec = {"containers": asks(*containers), "initContainers": asks(*init)}
        return observe.gpus_of(wire({"metadata": {}, "spec": spec}, k.Pod), RESOURCE)

    assert [count(["2", 1]), count([1], ["4", "2"]), count([]), count(["x"])] == [3, 4, 0, 0]


REPLICATED = {
    "of a ReplicaSet": (pod(owner=("ReplicaSet", "web")), None, True),
    "of a StatefulSet": (pod(owner=("StatefulSet", "db")), None, True),
    "of a Job": (pod(), None, False),
    "of nobody": (pod(owner=None), None, False),
    "of a ReplicaSet, but it declares how to ask it": (
        pod(owner=("ReplicaSet", "web"), annotations={"gpu-upgrader.io/checkpoint-method": "file"}),
        None,
        False,
    ),
    "of a ReplicaSet, but its namespace does": (pod(owner=("ReplicaSet", "web")), Declared(method="none"), False),
}


@pytest.mark.parametrize(("seen", "around", "expected"), REPLICATED.values(), ids=REPLICATED.keys())
def test_who_may_be_evicted_alone(seen, around, expected):
    assert observe.replicated(seen, around) is expected


# --------------------------------------------------------------------------------------------------------- jobs


STOPPED = "gpu-upgrader.io/stopped"
JOB_TABLE = {
    "one pod, if nothing is said": (job(), job_facts()),
    "as many as run beside each other": (job(parallelism=2, completions=2), job_facts(wanted=2)),
    "those that succeeded are done": (job(parallelism=2, completions=2, succeeded=1), job_facts(wanted=1)),
    "more to do than run beside each other": (job(parallelism=2, completions=9, succeeded=3), job_facts(wanted=2)),
    "a work queue that empties": (job(parallelism=3, succeeded=1), job_facts(wanted=2)),
    "finished": (job(parallelism=1, completions=1, succeeded=1), job_facts(wanted=0)),
    "suspended with our record": (
        job(suspend=True, annotations={STOPPED: '{"plan": "pool-a-1", "previous": false}'}),
        job_facts(suspended=True, stopped_by="pool-a-1"),
    ),
    "a record that we cannot read is one all the same": (
        job(annotations={STOPPED: "by hand"}),
        job_facts(stopped_by="by hand"),
    ),
    "of a JobSet": (job(owner=("JobSet", "big")), job_facts(managed_by="JobSet big")),
    "of a CronJob, which does not suspend its Jobs": (job(owner=("CronJob", "nightly")), job_facts()),
    "in a queue of Kueue": (
        job(labels={"kueue.x-k8s.io/queue-name": "q"}),
        job_facts(managed_by="Kueue's queue q"),
    ),
    "run by another controller": (
        job(managedBy="kueue.x-k8s.io/multikueue"),
        job_facts(managed_by="kueue.x-k8s.io/multikueue"),
    ),
    "run by the usual one": (job(managedBy="kubernetes.io/job-controller"), job_facts()),
    "what it declares": (
        job(
            annotations={
                "gpu-upgrader.io/checkpoint-method": " file ",
                "gpu-upgrader.io/checkpoint-timeout": "5m",
                "gpu-upgrader.io/checkpoint-container": "main",
                "karpenter.sh/do-not-disrupt": "true",
            }
        ),
        job_facts(
            declared=Declared(method="file", timeout="5m", container="main", veto="karpenter.sh/do-not-disrupt=true")
        ),
    ),
    "safe-to-evict only forbids where it says false": (
        job(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}),
        job_facts(),
    ),
}


@pytest.mark.parametrize(("seen", "expected"), JOB_TABLE.values(), ids=JOB_TABLE.keys())
def test_jobs(seen, expected):
    assert observe.job_facts(seen) == expected


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
    assert observe.disruption_budget(budget(seen, 3)) == DisruptionBudget(
        name="keep", namespace="ml", selector=expected, allowed=3
    )
