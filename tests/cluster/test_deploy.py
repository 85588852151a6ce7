"""deploy/ on a real API server: it is accepted, and the controller's service account can do what it should, no more."""

import uuid

import msgspec
import pytest

from tests.support import manifests as m
from tests.support.deploying import SYSTEM, apply
from tests.support.repository import ROOT
from tests.support.waiting import eventually
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import GPU_STACKS, JOBS, NAMESPACES, NODES, PODS
from upgrader.core.errors import ClusterError
from upgrader.kube.client import KubeCluster
from upgrader.kube.lease import LEASES, Election

pytestmark = [pytest.mark.cluster, pytest.mark.gate]


@pytest.fixture
async def controller(controllers_kubeconfig):
    """Our client under the controller's own service account."""
    async with await KubeCluster.connect(controllers_kubeconfig) as connected:
        yield connected


@pytest.fixture
async def namespace(api):
    made = await api.create(NAMESPACES, {"metadata": {"name": f"t{uuid.uuid4().hex[:10]}"}})
    yield made.metadata.name
    await api.delete(NAMESPACES, made.metadata)


async def test_it_reads_everything_and_changes_nodes(api, controller, namespace):
    node = await api.create(NODES, {"metadata": {"name": namespace}})
    for kind in (NODES, PODS, JOBS, NAMESPACES, GPU_STACKS):
        await controller.list(kind)
    label = {"op": "add", "path": "/metadata/labels", "value": {"gpu-upgrader.io/operands": "off"}}
    await controller.edit(NODES, node.metadata, [label])
    await api.delete(NODES, node.metadata)


async def test_it_can_lead(controller):
    election = Election(controller, name=f"t{uuid.uuid4().hex[:8]}", namespace=SYSTEM, identity="a")
    assert await election.attempt()
    election.check()
    await election.release()


async def test_it_touches_jobs_only_where_it_was_let_in(api, controller, namespace):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i:1"}]}}
    body = {"metadata": {"name": "train", "namespace": namespace}, "spec": {"suspend": True, "template": template}}
    await api.create(JOBS, body)

    async def stop():
        job = await controller.get(JOBS, "train", namespace)
        return await controller.merge(JOBS, job.metadata, {"metadata": {"annotations": {"a": "b"}}})

    with pytest.raises(ClusterError, match="does not allow this") as refused:
        await stop()
    assert f'cannot patch resource "jobs" in API group "batch" in the namespace "{namespace}"' in refused.value.details
    await apply(api, (ROOT / "deploy" / "job-namespace.yaml").read_text().replace("NAMESPACE", namespace))

    async def stopped():
        try:
            return await stop()
        except ClusterError:
            return None

    assert (await eventually(stopped)).metadata.annotations["a"] == "b"


async def test_files_are_read_only_where_it_was_let_in(api, controller, namespace):
    pod = {"metadata": {"name": "p", "namespace": namespace, "uid": "u"}}
    read = msgspec.convert(pod, PODS.type)
    with pytest.raises(ClusterError, match="does not allow this"):
        await controller.read_file(read, "main", "/run/checkpoint/ack.json")
    await apply(api, (ROOT / "deploy" / "job-namespace.yaml").read_text().replace("NAMESPACE", namespace))

    async def seen():
        try:
            return await controller.read_file(read, "main", "/run/checkpoint/ack.json") or "no file"
        except ClusterError:
            return None

    assert await eventually(seen) == "no file"


async def test_it_may_not_change_what_people_decide(api, controller, namespace):
    made = await api.create(GPU_STACKS, m.gpu_stack(namespace))
    with pytest.raises(ClusterError, match="does not allow this"):
        await controller.merge(GPU_STACKS, made.metadata, {"spec": {"driver": {"version": "1"}}})
    with pytest.raises(ClusterError, match="does not allow this"):
        await controller.delete(LEASES, ObjectMeta(name="x", namespace="kube-system", uid="u"))
    await api.delete(GPU_STACKS, made.metadata)
