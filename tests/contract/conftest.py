"""Both implementations of the Cluster port."""

import uuid

import pytest

from tests.support.waiting import eventually
from upgrader.api.kubernetes import ObjectMeta, Wire
from upgrader.api.resources import NAMESPACES, ResourceKind
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader_dev.simulated.apiserver.cluster import FakeCluster


class ServiceAccount(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta


SERVICE_ACCOUNTS = ResourceKind(
    group="", version="v1", kind="ServiceAccount", plural="serviceaccounts", namespaced=True, type=ServiceAccount
)


@pytest.fixture(params=["fake", pytest.param("real", marks=[pytest.mark.cluster, pytest.mark.gate])])
async def cluster(request):
    if request.param == "fake":
        yield FakeCluster()
        return
    async with await KubeCluster.connect(request.getfixturevalue("kubeconfig")) as real:
        await install_kinds(real)
        yield real


@pytest.fixture
def unique():
    """A name that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
async def namespace(cluster, unique):
    """A namespace of this test, with the service account that pods need."""
    made = await cluster.create(NAMESPACES, {"metadata": {"name": unique}})
    if isinstance(cluster, KubeCluster):
        await eventually(lambda: cluster.get(SERVICE_ACCOUNTS, "default", unique))
    yield unique
    await cluster.delete(NAMESPACES, made.metadata)
