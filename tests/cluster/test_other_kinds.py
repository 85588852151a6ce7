"""Objects of others on a real API server: in the version that it serves, and no more of them than is read."""

import copy
import uuid

import msgspec
import pytest
import yaml

from tests.support.gangs_on_api import context_of
from tests.support.manifests import checkpoint_request
from tests.support.owners import spec_of
from tests.support.repository import ROOT
from tests.support.waiting import eventually
from upgrader.api.resources import NAMESPACES, PODS, owner_resource
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.api.v1alpha1.checkpoint_request import OwnerRef
from upgrader.core.errors import ClusterError, ConfigurationError
from upgrader.core.patches import value_at
from upgrader.core.workloads.owner_kinds import DECLARING, owner_kind
from upgrader.core.workloads.placement import Placement
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import CRDS
from upgrader.reconcile.checkpoint_request import live_owners
from upgrader.reconcile.checkpoint_request.live_owners import resource_of
from upgrader.reconcile.facts.device_claims import CLAIM, holders_by_node, read_claimed
from upgrader.reconcile.facts.owner_reading import declared_above

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

KUEUE = owner_kind("Workload", "kueue.x-k8s.io/v1beta1")
FIRST, SECOND = resource_of(KUEUE, "v1beta1"), resource_of(KUEUE, "v1beta2")
GPU = "gpu.nvidia.com"


@pytest.fixture
async def space(api):
    name = f"t{uuid.uuid4().hex[:10]}"
    made = await api.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await api.delete(NAMESPACES, made.metadata)


async def served(api, kind):
    try:
        await api.list(kind)
    except ConfigurationError:
        return False
    return True


@pytest.fixture
async def unserved(api, kubeconfig, space):
    """A Workload that was made in v1beta1, of which only v1beta2 is served by now; and a client that has just come."""
    definition = yaml.safe_load((ROOT / "tests/cluster/crds/workloads.kueue.x-k8s.io.yaml").read_text())
    applied = await api.apply(CRDS, definition)
    await eventually(lambda: served(api, FIRST), seconds=30)
    made = await api.create(FIRST, {"metadata": {"name": "train", "namespace": space}, "spec": spec_of(KUEUE)})
    (first,) = definition["spec"]["versions"]
    second = {**copy.deepcopy(first), "name": "v1beta2"}
    definition["spec"]["versions"] = [{**first, "served": False, "storage": False}, second]
    await api.apply(CRDS, definition)
    await eventually(lambda: served(api, SECOND), seconds=30)
    try:
        yield await KubeCluster.connect(kubeconfig), made["metadata"]["uid"]
    finally:
        await api.delete(CRDS, applied.metadata)


async def test_a_workload_that_is_recorded_in_a_version_of_before_is_stopped_found_and_restarted(unserved, space):
    api, uid = unserved
    async with api:
        context, request = context_of(api), msgspec.convert(checkpoint_request("train", space), CheckpointRequest)
        recorded = OwnerRef(kind="Workload", api_version=FIRST.api_version, name="train", uid=uid)
        before = await live_owners.read_owner(context, recorded, space)
        assert (before.resource, before.unread) == (SECOND, "")
        await live_owners.suspend_owner(context, before, request)
        (stopped,) = [one for one in await live_owners.list_recorded_owners(context) if one.meta.namespace == space]
        assert (stopped.row, stopped.resource, value_at(stopped.present, KUEUE.field)) == (KUEUE, SECOND, False)
        on = await live_owners.resume_owner(context, stopped, request.metadata.name, Placement())
        assert value_at(on.present, KUEUE.field) is True


async def created(api, kind, body):
    """Made once the namespace has its service account, as its controller needs a moment for."""

    async def attempt():
        try:
            return await api.create(kind, body)
        except ClusterError:
            return None

    return await eventually(attempt, seconds=60)


async def test_gpus_of_a_claim_are_read_as_the_api_server_has_it(api, space):
    claims = owner_resource(CLAIM)
    asked = {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": GPU, "count": 2}}]}}
    claim = await api.create(claims, {"metadata": {"name": "two", "namespace": space}, "spec": asked})
    holder = {"name": "main", "image": "none", "resources": {"claims": [{"name": "g"}]}}
    spec = {"nodeName": "gpu-x", "containers": [holder], "resourceClaims": [{"name": "g", "resourceClaimName": "two"}]}
    pod = await created(api, PODS, {"metadata": {"name": "p", "namespace": space}, "spec": spec})
    assert (await read_claimed(api, [pod]))[space, "two"] == 1
    results = [{"request": "gpus", "driver": GPU, "pool": "gpu-x", "device": f"gpu-{one}"} for one in range(2)]
    await api.merge(claims, claim.metadata, {"status": {"allocation": {"devices": {"results": results}}}}, "status")
    claimed = await read_claimed(api, [pod])
    assert claimed[space, "two"] == 2
    assert holders_by_node([pod], claimed) == {"gpu-x": (f"{space}/p",)}


async def test_of_a_deployment_only_metadata_comes_and_its_veto_reaches_the_pod(api, space):
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": "web", "namespace": space, "annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    deployments = next(owner_resource(kind) for kind in DECLARING if kind.kind == "Deployment")
    await api.create(deployments, {"metadata": meta, "spec": spec})
    (found,) = await api.list(deployments, space)
    assert (found.metadata.name, found.spec, found.status) == ("web", {}, {})
    (pod,) = await eventually(lambda: api.list(PODS, space, labels="app=web"), lambda pods: len(pods) == 1, 60)
    assert (await declared_above(api, pod)).veto == "karpenter.sh/do-not-disrupt=true"
