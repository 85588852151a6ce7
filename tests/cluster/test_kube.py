"""Our client on a real API server, where the fake could not show it."""

import asyncio
import uuid

import pytest

from tests.support import manifests as m
from tests.support.waiting import eventually
from upgrader.api.kubernetes import Wire
from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, NODES, ResourceKind
from upgrader.core.errors import ConfigurationError, ConflictError, LostLeadershipError, UnreachableError
from upgrader.kube.client import KubeCluster
from upgrader.kube.informer import node_informer
from upgrader.kube.install import install_kinds
from upgrader.kube.lease import LEASES, Election
from upgrader.kube.transport import REQUEST_SECONDS

pytestmark = [pytest.mark.cluster, pytest.mark.gate]


class Event(Wire, frozen=True, kw_only=True):
    reason: str
    message: str
    type: str


EVENTS = ResourceKind(group="", version="v1", kind="Event", plural="events", namespaced=True, type=Event)


@pytest.fixture
def unique():
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="module")
def own_cluster(start_cluster):
    """A control plane that only this file's tests take away."""
    return start_cluster("away", boxes=0, loopback=True)


@pytest.fixture
async def own_api(own_cluster):
    async with await KubeCluster.connect(str(own_cluster.kubeconfig)) as connected:
        await install_kinds(connected)
        yield connected


async def make_nodes(api, unique, count):
    labels = {"test": unique}
    return [
        await api.create(NODES, {"metadata": {"name": f"{unique}-{number:03}", "labels": labels}})
        for number in range(count)
    ]


async def test_a_list_of_several_pages_is_whole(api, unique, monkeypatch):
    monkeypatch.setattr("upgrader.kube.client.PAGE_SIZE", 3)
    made = await make_nodes(api, unique, 8)
    found = await api.list(NODES, labels=f"test={unique}")
    assert [node.metadata.uid for node in found] == [node.metadata.uid for node in made]
    for node in made:
        await api.delete(NODES, node.metadata)


async def test_a_kind_that_is_not_served_is_not_taken_for_an_absent_object(api):
    other = ResourceKind(
        group="no.such.group", version="v1", kind="Thing", plural="things", namespaced=False, type=GPU_STACKS.type
    )
    in_own_group = ResourceKind(
        group=GPU_STACKS.group, version="v1alpha1", kind="T", plural="things", namespaced=False, type=GPU_STACKS.type
    )
    for kind in (other, in_own_group):
        with pytest.raises(ConfigurationError, match="does not serve this kind"):
            await api.get(kind, "x")


async def test_events_are_found_where_people_look(api, unique):
    (node,) = await make_nodes(api, unique, 1)
    await api.event(node.metadata, "Node", "v1", reason="Stopped", message="stopped for plan x at step 7", warning=True)
    found = await api.list(EVENTS, "default", fields=f"involvedObject.uid={node.metadata.uid}")
    assert found == [Event(reason="Stopped", message="stopped for plan x at step 7", type="Warning")]
    await api.delete(NODES, node.metadata)


async def test_responders_apply_their_own_acknowledgements_beside_each_other(api, unique):
    """What `x-kubernetes-list-type: map` is for: two writers of status.acks do not overwrite each other."""
    made = await api.create(CHECKPOINT_REQUESTS, m.checkpoint_request(unique))
    for uid in ("u1", "u2"):
        ack = {"podUid": uid, "requestId": 100, "step": 4}
        missing = [] if uid == "u2" else [{"op": "add", "path": "/status", "value": {"acks": []}}]
        add = {"op": "add", "path": "/status/acks/-", "value": ack}
        made = await api.edit(CHECKPOINT_REQUESTS, made.metadata, [*missing, add], "status")
    assert [ack.pod_uid for ack in made.status.acks] == ["u1", "u2"]


async def test_the_node_cache_follows_a_real_api_server(api, unique):
    cache = node_informer(api)
    running = asyncio.create_task(cache.run())
    first, second = await make_nodes(api, unique, 2)
    async with asyncio.timeout(20):
        await cache.wait(lambda nodes: second.metadata.name in nodes)
        label = {"op": "add", "path": "/metadata/labels/seen", "value": "yes"}
        changed = await api.edit(NODES, first.metadata, [label])
        await api.delete(NODES, second.metadata)
        nodes = await cache.wait(lambda nodes: second.metadata.name not in nodes)
    assert nodes[first.metadata.name].metadata.labels["seen"] == "yes"
    assert nodes[first.metadata.name].metadata.uid == changed.metadata.uid
    await api.delete(NODES, changed.metadata)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_of_two_candidates_one_leads_and_hands_over(api, unique):
    place = {"name": unique, "namespace": "default"}
    first, second = Election(api, identity="a", **place), Election(api, identity="b", **place)
    assert await first.attempt()
    assert not await second.attempt()
    first.check()
    with pytest.raises(LostLeadershipError):
        second.check()
    await first.release()
    assert await second.attempt()
    lease = await api.get(LEASES, unique, "default")
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("b", 1)


async def test_ten_writers_of_one_version_make_one_write(api, unique):
    read = await api.create(GPU_STACKS, m.gpu_stack(unique))

    async def write(number):
        try:
            return await api.merge(GPU_STACKS, read.metadata, {"metadata": {"labels": {"writer": str(number)}}})
        except ConflictError:
            return None

    written = [each for each in await asyncio.gather(*(write(number) for number in range(10))) if each]
    assert [await api.get(GPU_STACKS, unique)] == written


async def test_a_lease_seen_by_others_is_the_one_that_was_written(api, unique):
    async def holder():
        found = await api.get(LEASES, unique, "default")
        return found.spec.holder_identity if found else None

    async def work():
        assert await eventually(holder) == "a"

    await Election(api, identity="a", name=unique, namespace="default").run(work)
    assert await holder() is None


async def test_while_the_api_server_is_away_nothing_is_known_and_then_all_is(own_api, own_cluster, unique):
    """Issue's trouble "API server away": refused, then silent; nodes that went meanwhile are not believed in."""
    cache = node_informer(own_api)
    running = asyncio.create_task(cache.run())
    kept, deleted = await make_nodes(own_api, unique, 2)
    await cache.wait(lambda nodes: deleted.metadata.name in nodes)

    async def known():
        return cache.snapshot() is not None

    await asyncio.to_thread(own_cluster.stop_api_server)
    await eventually(known, lambda yes: not yes)
    with pytest.raises(UnreachableError, match="no response from the API server"):
        await own_api.get(NODES, kept.metadata.name)
    await asyncio.to_thread(own_cluster.start_api_server)
    await own_api.delete(NODES, deleted.metadata)
    await eventually(known)
    nodes = await cache.wait(lambda nodes: deleted.metadata.name not in nodes)
    assert kept.metadata.name in nodes
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_silent_api_server_does_not_hold_a_request_longer_than_a_lease_allows(own_api, own_cluster, unique):
    await asyncio.to_thread(own_cluster.pause_api_server)
    loop = asyncio.get_running_loop()
    before = loop.time()
    try:
        with pytest.raises(UnreachableError):
            await own_api.create(GPU_STACKS, m.gpu_stack(unique))
    finally:
        own_cluster.resume_api_server()
    assert REQUEST_SECONDS - 1 < loop.time() - before < REQUEST_SECONDS + 2
