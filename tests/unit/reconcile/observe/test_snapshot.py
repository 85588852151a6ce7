"""The one reading of the world."""

import dataclasses

import pytest

from tests.support.manifests import driver_image
from tests.support.observed import GPUS, NOW, OWN, RESOURCE, STACK, budget, facts, member, node, owned, pod, wire
from upgrader.api import kubernetes as k
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core.model.fleet import Gang, ImageBuild, ImageFacts, Owner, Snapshot, Terms
from upgrader.core.model.phases import DriverImagePhase
from upgrader.reconcile.facts.reading import ClusterReading
from upgrader.reconcile.observe import cluster_snapshot
from upgrader_dev.simulated.cluster.rig import Rig


def seen_world(**changes):
    pool = {"pool": "a"}
    file = {"gpu-upgrader.io/checkpoint-method": "file"}
    marks = {"gpu-upgrader.io/claimed-by": "uid-upgrade"}
    values = {
        "own_namespace": OWN,
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
            pod("validate", "a", owner=None, namespace=OWN, labels={"gpu-upgrader.io/component": "validate"}),
        ],
        "works": [owned(spec={"parallelism": 2})],
        "budgets": [budget({"matchLabels": {"app": "train"}})],
        "images": [wire(driver_image() | {"status": {"phase": "Ready", "digest": "d", "key": "k"}}, DriverImage)],
        "namespaces": [
            wire({"metadata": {"name": "kube-system", "uid": "uid-cluster"}}, k.Namespace),
            wire({"metadata": {"name": "ml"}}, k.Namespace),
        ],
        "api_server_version": "v1.36.0",
    }
    return ClusterReading(**{**values, **changes})


def test_a_whole_snapshot():
    assert cluster_snapshot.snapshot_of(seen_world(), STACK.spec, GPUS, NOW) == Snapshot(
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
                terms=Terms(methods=("file",)),
                resolved_by="the same owner (Job train)",
                owners=(Owner(kind="Job", name="train", uid="uid-train"),),
            ),
        ),
        images=(ImageFacts(key="k", vendor="sim", version="570.10", kernel="6.1.0-40-amd64", digest="d"),),
        builds=(
            ImageBuild(
                name="sim-570.10", vendor="sim", version="570.10", kernel="6.1.0-40-amd64", phase=DriverImagePhase.READY
            ),
        ),
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
    assert cluster_snapshot.snapshot_of(seen, STACK.spec, GPUS, NOW).steering is steering


@pytest.mark.parametrize(("shaping", "namespaces"), [(True, ("ml",)), (False, ())])
def test_pods_are_steered_by_policy_in_namespaces_that_opt_in(shaping, namespaces):
    opted = wire({"metadata": {"name": "ml", "labels": {"gpu-upgrader.io/admission": "true"}}}, k.Namespace)
    other = wire({"metadata": {"name": "other"}}, k.Namespace)
    seen = seen_world(namespaces=[opted, other], shaping=shaping)
    assert cluster_snapshot.snapshot_of(seen, STACK.spec, GPUS, NOW).shaped == namespaces


def test_the_container_may_be_named_by_the_namespace():
    annotations = {
        "gpu-upgrader.io/checkpoint-method": "api",
        "gpu-upgrader.io/checkpoint-container": "sidecar",
    }
    space = wire({"metadata": {"name": "ml", "annotations": annotations}}, k.Namespace)
    seen = seen_world(pods=[pod()], namespaces=[space])
    (gang,) = cluster_snapshot.snapshot_of(seen, STACK.spec, GPUS, NOW).gangs
    assert (gang.method, gang.members[0].container) == ("api", "sidecar")


def test_pods_without_gpus_are_members_beside_their_mates():
    seen = seen_world(pods=[pod(), pod("launcher", "b", gpus=None), pod("other", "b", owner=("Job", "cpu"), gpus=None)])
    (gang,) = cluster_snapshot.snapshot_of(seen, STACK.spec, GPUS, NOW).gangs
    assert [(one.pod, one.gpus) for one in gang.members] == [("launcher", 0), ("train-0", 8)]


# ------------------------------------------------------------------------------------------------------ reading


class World:
    """Lists what a test put there, and remembers what was asked."""

    def __init__(self, **objects):
        self.objects = objects
        self.asked = []

    async def served(self):
        return {}

    async def version(self):
        return "v1.36.0"

    async def get(self, kind, name, namespace=""):
        self.asked.append((kind.kind, namespace, name, ""))
        return self.objects.get(kind.kind)

    async def list(self, kind, namespace="", *, labels="", fields=""):
        self.asked.append((kind.kind, namespace, labels, fields))
        return self.objects.get(kind.kind, [])


class Known:
    def __init__(self, nodes):
        self.nodes = nodes

    def snapshot(self):
        return self.nodes


def looking(world, nodes):
    return dataclasses.replace(Rig().context, cluster=world, nodes=Known(nodes))


async def test_the_world_is_read_once_each():
    claim = {"metadata": {"name": "data", "namespace": "ml"}, "spec": {"storageClassName": "nfs-slow"}}
    seen = seen_world(claims=[wire(claim, k.PersistentVolumeClaim)])
    meta = {"name": "train", "namespace": "ml", "uid": "uid-train"}
    world = World(
        PersistentVolumeClaim=seen.claims,
        Pod=seen.pods,
        Job=[wire({"metadata": meta, "spec": {"parallelism": 2}}, k.OwnerObject)],
        PodDisruptionBudget=seen.budgets,
        DriverImage=seen.images,
        Namespace=seen.namespaces,
        UpgradePlan=seen.plans,
        GpuStack=[],
    )
    target = cluster_snapshot.target_of(STACK.spec, "pool-a")
    found = await cluster_snapshot.read_snapshot(looking(world, seen.nodes), STACK, target)
    assert found == cluster_snapshot.snapshot_of(seen, STACK.spec, GPUS, NOW)
    assert found.gangs[0].lane == "nfs-slow"
    kinds = ["Pod", "Job", "StatefulSet", "PodDisruptionBudget", "DriverImage", "Namespace", "UpgradePlan"]
    kinds += ["PersistentVolumeClaim", "GpuStack", "ReplicaSet", "Deployment", "DaemonSet"]
    policy = ("MutatingAdmissionPolicyBinding", "", "gpu-upgrader-steering", "")
    assert sorted(world.asked) == sorted([*((kind, "", "", "") for kind in kinds), policy])


async def test_nothing_is_read_while_the_nodes_are_not_in_step():
    world = World()
    target = cluster_snapshot.target_of(STACK.spec, "pool-a")
    assert await cluster_snapshot.read_snapshot(looking(world, None), STACK, target) is None
    assert world.asked == []
