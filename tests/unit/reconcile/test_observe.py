from datetime import UTC, datetime

import msgspec
import pytest

from tests.support.manifests import changed, driver_image, gpu_stack
from upgrader.api import kubernetes as k
from upgrader.api.resources import DRIVER_IMAGES, JOBS, NAMESPACES, PDBS, PODS, UPGRADE_PLANS
from upgrader.api.v1alpha1 import DriverImage, GpuStack
from upgrader.core.declarations import Declared
from upgrader.core.disruption import DisruptionBudget, Requirement, Selector
from upgrader.core.fleet import Gang, ImageFacts, MemberFacts, NodeFacts, Owner, Snapshot, Target
from upgrader.core.gangs import JobFacts
from upgrader.core.revisions import revision_of
from upgrader.reconcile import observe

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
RESOURCE = "nvidia.com/gpu"


def wire(body, type_):
    return msgspec.convert(body, type_)


# -------------------------------------------------------------------------------------------------------- stack


STACK = wire(gpu_stack(), GpuStack)


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


def node(name="a", labels=None, annotations=None, spec=None, **status):
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    meta = {"name": name, "uid": f"uid-{name}", "labels": labels or {}, "annotations": annotations or {}}
    return wire({"metadata": meta, "spec": spec or {}, "status": {**ready, **status}}, k.Node)


def facts(**changes):
    return NodeFacts(**{"name": "a", "uid": "uid-a", "kernel": "", **changes})


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


REQUESTS = {
    "name": "requests",
    "downwardAPI": {
        "items": [
            {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['gpu-upgrader.io/{file}']"}}
            for file in ("checkpoint-request", "park-seconds")
        ]
    },
}
VOLUMES = [
    REQUESTS,
    {"name": "answers", "emptyDir": {}},
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
]
MOUNTS = [
    {"name": "requests", "mountPath": "/etc/gpu-upgrader/"},
    {"name": "answers", "mountPath": "/run/checkpoint"},
    {"name": "data", "mountPath": "/data"},
]


def pod(name="train-0", at="a", *, owner=("Job", "train"), volumes=VOLUMES, mounts=MOUNTS, gpus="8", **meta):
    references = [{"kind": owner[0], "name": owner[1], "uid": f"uid-{owner[1]}", "controller": True}] if owner else []
    trainer = {
        "name": "trainer",
        "volumeMounts": mounts,
        "resources": {"limits": {RESOURCE: gpus}} if gpus else {},
    }
    return wire(
        {
            "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "ownerReferences": references, **meta},
            "spec": {"nodeName": at, "containers": [trainer, {"name": "sidecar"}], "volumes": volumes},
            "status": {"phase": "Running"},
        },
        k.Pod,
    )


def member(**changes):
    values = {
        "pod": "train-0",
        "uid": "uid-train-0",
        "namespace": "ml",
        "node": "a",
        "container": "trainer",
        "phase": "Running",
        "gpus": 8,
        "ephemeral_paths": ("/etc/gpu-upgrader/", "/run/checkpoint"),
        "volume_paths": ("/data",),
        "mounted": True,
    }
    return MemberFacts(**{**values, **changes})


SIDECAR = {"container": "sidecar", "ephemeral_paths": (), "volume_paths": (), "mounted": False}
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
        member(mounted=False, ephemeral_paths=("/etc/gpu-upgrader/",)),
    ),
}


@pytest.mark.parametrize(("seen", "container", "expected"), POD_TABLE.values(), ids=POD_TABLE.keys())
def test_members(seen, container, expected):
    assert observe.member_facts(seen, RESOURCE, container) == expected


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


def job(name="train", *, owner=None, annotations=None, labels=None, succeeded=0, **spec):
    references = [{"kind": owner[0], "name": owner[1], "uid": "u", "controller": True}] if owner else []
    meta = {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-{name}",
        "ownerReferences": references,
        "annotations": annotations or {},
        "labels": labels or {},
    }
    return wire({"metadata": meta, "spec": spec, "status": {"succeeded": succeeded}}, k.Job)


def job_facts(**changes):
    return JobFacts(**{"name": "train", "namespace": "ml", "uid": "uid-train", "wanted": 1, **changes})


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


def budget(selector, allowed=0):
    meta = {"name": "keep", "namespace": "ml"}
    spec = {} if selector is None else {"selector": selector}
    return wire({"metadata": meta, "spec": spec, "status": {"disruptionsAllowed": allowed}}, k.PodDisruptionBudget)


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


# ----------------------------------------------------------------------------------------------------- snapshot


def seen_world(**changes):
    pool = {"pool": "a"}
    file = {"gpu-upgrader.io/checkpoint-method": "file"}
    marks = {"gpu-upgrader.io/visit": "uid-visit"}
    values = {
        "nodes": {
            "a": node("a", pool),
            "b": node("b", pool),
            "away": node("away", annotations=marks, capacity={RESOURCE: "4"}),
        },
        "pods": [
            pod("train-0", "a", annotations=file),
            pod("train-1", "b", annotations=file, labels={"app": "train"}),
            pod("elsewhere", "away", owner=None),
            pod("idle", "a", owner=("ReplicaSet", "web"), gpus=None),
            pod("validate", "a", owner=None, labels={"gpu-upgrader.io/component": "validate"}),
        ],
        "jobs": [job(parallelism=2)],
        "budgets": [budget({"matchLabels": {"app": "train"}})],
        "images": [wire(driver_image() | {"status": {"phase": "Ready", "digest": "d", "key": "k"}}, DriverImage)],
        "namespaces": [
            wire({"metadata": {"name": "kube-system", "uid": "uid-cluster"}}, k.Namespace),
            wire({"metadata": {"name": "ml"}}, k.Namespace),
        ],
        "api_server_version": "v1.36.0",
    }
    return observe.Reading(**{**values, **changes})


def test_a_whole_snapshot():
    assert observe.snapshot_of(seen_world(), STACK.spec, RESOURCE, NOW) == Snapshot(
        cluster="uid-cluster",
        taken_at=NOW,
        nodes=(
            facts(labels={"pool": "a"}),
            facts(name="b", uid="uid-b", labels={"pool": "a"}),
        ),
        gangs=(
            Gang(
                name="ml/Job/train",
                namespace="ml",
                kind="Job",
                members=(
                    member(),
                    member(pod="train-1", uid="uid-train-1", node="b", labels={"app": "train"}),
                ),
                owner=Owner(kind="Job", name="train", uid="uid-train"),
                wanted=2,
                method="file",
            ),
        ),
        images=(ImageFacts(key="k", vendor="sim", version="570.10", kernel="6.1.0-40-amd64", digest="d"),),
        pdb_blocked={"ml/Job/train": "keep"},
        steering=True,
        foreign_unavailable_gpus=4,
        api_server_version="v1.36.0",
    )


@pytest.mark.parametrize(
    ("version", "steering"), [("v1.36.0", True), ("v1.37.1", True), ("v1.35.9", False), ("", False)]
)
def test_gangs_can_be_steered_where_a_suspended_jobs_template_can_change(version, steering):
    seen = seen_world(api_server_version=version)
    assert observe.snapshot_of(seen, STACK.spec, RESOURCE, NOW).steering is steering


def test_the_container_may_be_named_by_the_namespace():
    annotations = {
        "gpu-upgrader.io/checkpoint-method": "api",
        "gpu-upgrader.io/checkpoint-container": "sidecar",
    }
    space = wire({"metadata": {"name": "ml", "annotations": annotations}}, k.Namespace)
    seen = seen_world(pods=[pod()], namespaces=[space])
    (gang,) = observe.snapshot_of(seen, STACK.spec, RESOURCE, NOW).gangs
    assert (gang.method, gang.members[0].container) == ("api", "sidecar")


def test_pods_without_gpus_are_members_beside_their_mates():
    seen = seen_world(pods=[pod(), pod("launcher", "b", gpus=None), pod("other", "b", owner=("Job", "cpu"), gpus=None)])
    (gang,) = observe.snapshot_of(seen, STACK.spec, RESOURCE, NOW).gangs
    assert [(one.pod, one.gpus) for one in gang.members] == [("launcher", 0), ("train-0", 8)]


# ------------------------------------------------------------------------------------------------------ reading


class World:
    """Lists what a test put there, and remembers what was asked."""

    def __init__(self, **objects):
        self.objects = objects
        self.asked = []

    async def list(self, kind, namespace="", *, labels="", fields=""):
        self.asked.append((kind.kind, namespace, labels, fields))
        return self.objects.get(kind.kind, [])


class Known:
    def __init__(self, nodes):
        self.nodes = nodes

    def snapshot(self):
        return self.nodes


async def test_the_world_is_read_once_each():
    seen = seen_world()
    world = World(
        Pod=seen.pods,
        Job=seen.jobs,
        PodDisruptionBudget=seen.budgets,
        DriverImage=seen.images,
        Namespace=seen.namespaces,
        UpgradePlan=seen.plans,
    )
    target = observe.target_of(STACK.spec, "pool-a")
    found = await observe.read_snapshot(world, Known(seen.nodes), STACK, target, NOW, api_server_version="v1.36.0")
    assert found == observe.snapshot_of(seen, STACK.spec, RESOURCE, NOW)
    kinds = [PODS, JOBS, PDBS, DRIVER_IMAGES, NAMESPACES, UPGRADE_PLANS]
    assert sorted(world.asked) == sorted((kind.kind, "", "", "") for kind in kinds)


async def test_nothing_is_read_while_the_nodes_are_not_in_step():
    world = World()
    target = observe.target_of(STACK.spec, "pool-a")
    assert await observe.read_snapshot(world, Known(None), STACK, target, NOW) is None
    assert world.asked == []
