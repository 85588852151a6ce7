"""Other pods on a node that is upgraded: who may be evicted there."""

import msgspec
import pytest

from tests.support.claims import NVIDIA, allocated, claim, claiming
from tests.support.manifests import changed, node_upgrade
from tests.support.node_upgrades import state, upgrade
from upgrader.api.kubernetes import Pod
from upgrader.api.resources import NODES, PODS, owner_resource
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.node_upgrade.upgrade_state import OperandFacts
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations
from upgrader.core.workloads.owner_kinds import owner_kind
from upgrader.reconcile.facts.device_claims import CLAIM
from upgrader.reconcile.node_upgrade.upgrade_reading import MayGo, build_view, expected_gpus, read_upgrade
from upgrader_dev.simulated.cluster.fleet import RESOURCE
from upgrader_dev.simulated.cluster.rig import Rig


def shared(slices, mig=""):
    return state("1.0", "1.34.4", "a", timeSlices=slices, migStrategy=mig)


def by_mps(replicas):
    return state("1.0", "1.34.4", "a", mpsReplicas=replicas)


@pytest.mark.parametrize(
    ("source", "target", "found", "expected"),
    [
        (shared(0), shared(0), 8, 8),
        (shared(0), shared(4), 8, 32),
        (shared(4), shared(0), 32, 8),
        (shared(4), shared(2), 32, 16),
        (shared(4), shared(4), 32, 32),
        (shared(0), shared(4), 0, 0),
        (shared(0), shared(0, "mixed"), 8, 0),
        (shared(0, "mixed"), shared(0, "mixed"), 17, 17),
        (shared(2, "mixed"), shared(2, "mixed"), 15, 15),
        (shared(2, "mixed"), shared(4, "mixed"), 15, 0),
        (shared(0), by_mps(4), 8, 32),
        (by_mps(4), shared(2), 32, 16),
        (shared(2), by_mps(3), 16, 24),
        (by_mps(4), shared(0), 32, 8),
    ],
)
def test_what_a_node_should_offer_is_its_gpus_as_they_are_shared_then(source, target, found, expected):
    forward = upgrade(source=source, target=target, found={"gpus": found})
    back = upgrade(source=source, target=target, found={"gpus": found}, reverting=True)
    assert expected_gpus(forward) == expected
    assert expected_gpus(back) == found


@pytest.mark.parametrize(
    ("blocked", "reason", "refused"),
    [
        ("True", "Refused", "pods is forbidden"),
        ("True", "NoAnswer", "pods is forbidden"),
        ("False", "Refused", ""),
        ("False", "NoAnswer", ""),
        ("True", "EvictionRefused", ""),
        ("True", "PodsArrived", ""),
    ],
)
def test_what_a_phase_waits_for_is_kept_for_its_deadline_where_the_api_server_did_not_do_it(blocked, reason, refused):
    """At the deadline the upgrade tells these words, not that it was waiting."""
    conditions = [
        {"type": "Installed", "status": "True", "reason": "Refused", "message": "of no hold"},
        {"type": "Blocked", "status": blocked, "reason": reason, "message": "pods is forbidden"},
    ]
    one = upgrade(phase="Preparing", message="pods is forbidden", conditions=conditions)
    seen = build_view(one, None, [], None, frozenset(), {}, namespace="gpu-upgrader")
    assert (seen.phase, seen.refused) == ("Preparing", refused)


def test_a_container_of_the_driver_that_ended_is_the_trouble_of_its_pod():
    one = upgrade(phase="Loading")
    ended = {"exitCode": 18, "message": "usr/bin/nv-fabricmanager has ended"}
    waiting = {"name": "fabricmanager", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    containers = [
        {"name": "driver", "ready": True, "state": {"running": {}}},
        waiting | {"lastState": {"terminated": ended}, "restartCount": 2},
    ]
    labels = {"gpu-upgrader.io/component": "driver", "gpu-upgrader.io/image-key": one.spec.target.driver_key}
    pod = {
        "metadata": {"name": "driver-x", "namespace": "gpu-upgrader", "labels": labels},
        "spec": {"nodeName": one.spec.node.name},
        "status": {"phase": "Running", "containerStatuses": containers},
    }
    driver = build_view(one, None, [msgspec.convert(pod, Pod)], None, frozenset(), {}, namespace="gpu-upgrader").driver
    trouble = "container fabricmanager ended with 18, 2 restart(s); its output: usr/bin/nv-fabricmanager has ended"
    assert driver == OperandFacts(pods=1, ready=0, trouble=trouble)


METHOD = {"gpu-upgrader.io/checkpoint-method": "file"}
VETO = {"karpenter.sh/do-not-disrupt": "true"}
NOTHING = {}


async def view(rig: Rig, spaces, sharing=("", ""), before=RESOURCE):
    node = rig.cluster.store.find(NODES, "gpu-0")
    manifest = changed(node_upgrade(), "spec.node", {"name": "gpu-0", "uid": node["metadata"]["uid"]})
    manifest = changed(manifest, "spec.target.resourceName", RESOURCE)
    for side, strategy in zip(("source", "target"), sharing, strict=True):
        manifest = changed(manifest, f"spec.{side}.migStrategy", strategy)
    manifest = changed(manifest, "spec.source.resourceName", before)
    manifest["metadata"]["creationTimestamp"] = "2026-11-21T09:00:00Z"
    upgrade = msgspec.convert(manifest, NodeUpgrade)
    return await read_upgrade(rig.context, upgrade, frozenset(), spaces, MayGo(), rig.cluster)


async def evictable(rig: Rig, spaces):
    return [pod.evictable for pod in (await view(rig, spaces)).others]


@pytest.mark.parametrize(
    ("pod", "owner", "space", "expected"),
    {
        "nobody declares anything": (NOTHING, NOTHING, NOTHING, True),
        "the pod does": (METHOD, NOTHING, NOTHING, False),
        "its owner does (law 1)": (NOTHING, METHOD, NOTHING, False),
        "its namespace does": (NOTHING, NOTHING, METHOD, False),
        "the pod forbids it": (VETO, NOTHING, NOTHING, False),
        "its owner forbids it": (NOTHING, VETO, NOTHING, False),
    }.values(),
)
async def test_pods_that_declare_a_method_or_a_veto_in_any_place_are_never_evicted_unasked(pod, owner, space, expected):
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    row = owner_kind("StatefulSet", "apps/v1")
    meta = {"name": "db", "namespace": "ml", "annotations": owner}
    made = rig.cluster.store.put(owner_resource(row), {"metadata": meta})
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": made["metadata"]["uid"]}
    references = [{**reference, "controller": True}]
    body = {"name": "db-0", "namespace": "ml", "annotations": pod, "ownerReferences": references}
    container = {"name": "main", "resources": {"limits": {RESOURCE: "1"}}}
    rig.cluster.store.put(PODS, {"metadata": body, "spec": {"nodeName": "gpu-0", "containers": [container]}})
    spaces = {"ml": CheckpointAnnotations(method="file")} if space else {}
    assert await evictable(rig, spaces) == [expected]


@pytest.mark.parametrize(("asked", "seen"), [("old.example/gpu", [True]), ("rdma/hca", [])])
async def test_pods_with_gpus_of_the_resource_that_the_node_has_offered_are_seen(asked, seen):
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=1, resource=asked)
    assert [pod.gpus for pod in (await view(rig, {}, before="old.example/gpu")).others] == seen


async def test_a_pod_with_gpus_by_claim_is_seen_and_not_evicted_though_its_owner_replaces_it():
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    rig.cluster.installed |= {(CLAIM.group, CLAIM.plural): (CLAIM.version,)}
    claim(rig.cluster.store, "one", allocated(NVIDIA))
    claiming(rig.cluster.store, "web", node="gpu-0", of="one")
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    rig.cluster.store.change(PODS, "web", {"metadata": {"ownerReferences": [reference]}}, "default")
    assert [(pod.gpus, pod.evictable) for pod in (await view(rig, {})).others] == [(True, False)]


async def test_of_a_resource_that_is_offered_all_is_expected_where_gpus_are_partitioned_otherwise():
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    sick = {"capacity": {RESOURCE: "56"}, "allocatable": {RESOURCE: "55"}}
    rig.cluster.store.change(NODES, "gpu-0", {"status": sick})
    seen = (await view(rig, {}, sharing=("", "single"))).node
    assert (seen.gpus, seen.gpus_allocatable) == (56, 55)


@pytest.mark.parametrize(("before", "gpus"), [("mixed", 7), ("single", 15)])
async def test_what_was_offered_before_gpus_were_partitioned_otherwise_is_not_missed(before, gpus):
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    old = {"nvidia.com/mig-1g.10gb": "8"}
    gone = dict.fromkeys(old, "0")
    rig.cluster.store.change(
        NODES, "gpu-0", {"status": {"capacity": {RESOURCE: "7", **old}, "allocatable": {RESOURCE: "7", **gone}}}
    )
    seen = (await view(rig, {}, sharing=(before, "single"))).node
    assert (seen.gpus, seen.gpus_allocatable, seen.gpus_in_parts) == (gpus, 7, ())


@pytest.mark.parametrize(
    ("component", "phase", "counts"),
    [
        ("monitoring", "Running", 1),
        ("feature-discovery", "Pending", 1),
        ("runtime", "Running", 1),
        ("monitoring", "Failed", 0),
        ("node-features", "Running", 0),  # it sees no device
        ("device-plugin", "Running", 0),  # counted by its key
    ],
)
async def test_operands_that_may_hold_a_device_are_seen_until_they_are_gone(component, phase, counts):
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    labels = {"gpu-upgrader.io/component": component}
    meta = {"name": "p", "namespace": "gpu-upgrader-system", "labels": labels}
    rig.cluster.store.put(PODS, {"metadata": meta, "spec": {"nodeName": "gpu-0"}, "status": {"phase": phase}})
    rig.cluster.store.mark_deleted(PODS, "p", "gpu-upgrader-system")
    assert (await view(rig, {})).other_operands.pods == counts
