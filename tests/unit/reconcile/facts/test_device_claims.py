"""Pods that hold GPUs by ResourceClaim are pods with GPUs: counted, seen on their nodes, which are blocked."""

import msgspec
import pytest

from tests.support.claims import NVIDIA, allocated, claim, claiming
from tests.support.observed import GPUS, RESOURCE
from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.core.errors import UnreachableError
from upgrader.reconcile.facts.device_claims import holders_by_node, read_claimed
from upgrader.reconcile.facts.pod_facts import gpus_of
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.cluster.rig import Rig, start_training

TEMPLATE = [{"name": "gpus", "resourceClaimTemplateName": "two"}]
CLAIMED = {("ml", "two"): 2, ("ml", "net"): 0}
PODS = {
    "by a claim": ({"resourceClaims": [{"name": "g", "resourceClaimName": "two"}]}, {}, 2),
    "by a claim that was made of a template": (
        {"resourceClaims": TEMPLATE},
        {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "two"}]},
        2,
    ),
    "by one that is still to be made": ({"resourceClaims": TEMPLATE}, {}, 1),
    "by one that is not needed": ({"resourceClaims": TEMPLATE}, {"resourceClaimStatuses": [{"name": "gpus"}]}, 0),
    "by one that is gone": ({"resourceClaims": [{"name": "g", "resourceClaimName": "gone"}]}, {}, 1),
    "a network interface": ({"resourceClaims": [{"name": "n", "resourceClaimName": "net"}]}, {}, 0),
    "by an extended resource behind which there is a claim": (
        {"containers": [{"name": "c", "resources": {"limits": {RESOURCE: "2"}}}]},
        {"extendedResourceClaimStatus": {"resourceClaimName": "two", "requestMappings": []}},
        2,
    ),
    "by one of another name": (
        {"containers": [{"name": "c", "resources": {"limits": {"example.com/big": "2"}}}]},
        {"extendedResourceClaimStatus": {"resourceClaimName": "two", "requestMappings": []}},
        2,
    ),
    "by both": (
        {
            "containers": [{"name": "c", "resources": {"limits": {RESOURCE: "1"}}}],
            "resourceClaims": [{"name": "g", "resourceClaimName": "two"}],
        },
        {},
        3,
    ),
}


def pod(spec, status):
    return msgspec.convert({"metadata": {"name": "p", "namespace": "ml"}, "spec": spec, "status": status}, Pod)


@pytest.mark.parametrize(("spec", "status", "gpus"), PODS.values(), ids=PODS.keys())
def test_gpus_that_a_pod_holds(spec, status, gpus):
    assert gpus_of(pod(spec, status), msgspec.structs.replace(GPUS, claimed=CLAIMED)) == gpus


def test_who_holds_gpus_of_a_node_by_claims():
    here = {"nodeName": "gpu-0"}
    seen = [
        pod({**here, **PODS["by a claim"][0]}, {"phase": "Running"}),
        pod({**here, **PODS["by a claim"][0]}, {"phase": "Succeeded"}),
        pod({**here, **PODS["a network interface"][0]}, {"phase": "Running"}),
        pod(PODS["by a claim"][0], {"phase": "Pending"}),
    ]
    assert holders_by_node(seen, CLAIMED) == {"gpu-0": ("ml/p",)}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_claims_are_read_in_the_version_that_is_served(version):
    cluster = FakeCluster()
    cluster.installed = {("resource.k8s.io", "resourceclaims"): (version,)}
    claim(cluster.store, "two", allocated(NVIDIA, NVIDIA), version)
    assert await read_claimed(cluster, [pod(*PODS["by a claim"][:2])]) == {("default", "two"): 2}


async def test_claims_are_listed_once_and_only_where_a_pod_refers_to_one():
    cluster = FakeCluster()
    cluster.reachable = False
    assert await read_claimed(cluster, [pod({}, {})]) == {}
    with pytest.raises(UnreachableError):
        await read_claimed(cluster, [pod(*PODS["by a claim"][:2])])


@pytest.fixture
async def rig():
    """A gang on two nodes with acks of its own; on the third node a pod holds two GPUs by a claim."""
    made = Rig()
    made.cluster.installed |= {("resource.k8s.io", "resourceclaims"): ("v1",)}
    made.revision = await start_training(made, nodes=3)
    claim(made.cluster.store, "two", allocated(NVIDIA, NVIDIA))
    claiming(made.cluster.store, "solo", node="gpu-2", of="two")
    return made


async def test_no_upgrade_begins_where_a_pod_holds_gpus_by_claim(rig):
    rig.apply_plan("up", rig.revision, strategy={"maxUnavailable": "100%"})
    await rig.run_until(lambda: rig.fleet.trainers["gang"].stops > 0)
    blockers = {(one.subject, one.reason) for one in rig.plan_now("up").status.blockers}
    assert ("gpu-2", "DynamicResources") in blockers
    assert {one.spec.node.name for one in rig.upgrades("up")} == {"gpu-0", "gpu-1"}
    (blocked,) = [one for one in rig.nodes() if one["metadata"]["name"] == "gpu-2"]
    assert blocked["metadata"]["labels"][names.LABEL_OPERANDS] == "on"


async def test_a_stack_installs_nothing_under_a_pod_that_holds_gpus_by_claim(rig):
    rig.fleet.add_node("gpu-9")
    claiming(rig.cluster.store, "early", node="gpu-9", of="two")
    for _ in range(20):
        await rig.run_second()
    assert [one for one in rig.upgrades() if one.spec.node.name == "gpu-9"] == []
