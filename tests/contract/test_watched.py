"""Reads from watches are those of the API server a moment ago: for the fake in memory and for a real API server."""

import asyncio

import pytest

from tests.support.waiting import eventually
from upgrader.api.resources import JOBS, NAMESPACES, NODES, PODS
from upgrader.kube.informer import node_informer
from upgrader.kube.watched import WatchedReads

CONTAINER = {"name": "main", "image": "none"}


class Once:
    """Lists and watches as the cluster has them; every other read is counted."""

    def __init__(self, cluster):
        self.cluster, self.requests = cluster, []

    async def listing(self, kind, namespace=""):
        return await self.cluster.listing(kind, namespace)

    def watch(self, kind, resource_version, **settings):
        return self.cluster.watch(kind, resource_version, **settings)

    async def get(self, kind, name, namespace=""):
        self.requests.append(("get", kind.kind, name))
        return await self.cluster.get(kind, name, namespace)

    async def list(self, kind, namespace="", *, labels="", fields=""):
        self.requests.append(("list", kind.kind, labels or fields))
        return await self.cluster.list(kind, namespace, labels=labels, fields=fields)

    async def served(self):
        return await self.cluster.served()


@pytest.fixture
async def source(cluster):
    return Once(cluster)


@pytest.fixture
async def watched(source, namespace):
    nodes = node_informer(source)
    made = WatchedReads(source, nodes, namespace)
    running = asyncio.gather(nodes.run(), made.run())
    await eventually(lambda: known(made, source))
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def known(watched, source):
    """Whether nothing has to be read by a request any more."""
    source.requests.clear()
    for kind in (NODES, PODS, NAMESPACES):
        await watched.list(kind)
    await watched.get(JOBS, "none", watched._namespace)
    found, source.requests[:] = list(source.requests), []
    return not found


def pod(name, namespace, node):
    spec = {"nodeName": node, "containers": [CONTAINER]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def job(name, namespace):
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"suspend": True, "template": template}}


async def names_on(reads, node):
    return [one.metadata.name for one in await reads.list(PODS, fields=f"spec.nodeName={node}")]


async def test_pods_are_found_by_their_node_as_they_come_and_go(cluster, source, watched, namespace, unique):
    made = [await cluster.create(PODS, pod(f"p{at}", namespace, unique)) for at in range(2)]
    await cluster.create(PODS, pod("elsewhere", namespace, f"{unique}-x"))
    assert await eventually(lambda: names_on(watched, unique), lambda seen: len(seen) == 2) == ["p0", "p1"]
    labelled = await cluster.merge(PODS, made[0].metadata, {"metadata": {"labels": {"a": "1"}}})

    async def first():
        return await watched.get(PODS, "p0", namespace)

    seen = await eventually(first, lambda one: one.metadata.resource_version == labelled.metadata.resource_version)
    assert seen == await cluster.get(PODS, "p0", namespace)
    assert source.requests == []


async def test_what_is_not_there_is_not_there_and_costs_no_request(source, watched, namespace, unique):
    assert await watched.get(NODES, unique) is None
    assert await watched.get(PODS, unique, namespace) is None
    assert await watched.get(JOBS, unique, namespace) is None
    assert await watched.get(NAMESPACES, unique) is not None, "that of this test"
    assert await names_on(watched, unique) == []
    assert source.requests == []


async def test_jobs_are_watched_in_one_namespace_and_all_else_is_asked_for(cluster, source, watched, namespace, unique):
    made = await cluster.create(JOBS, job(unique, namespace))

    async def seen():
        return await watched.get(JOBS, unique, namespace)

    assert (await eventually(seen)).metadata.uid == made.metadata.uid
    assert source.requests == []
    assert await watched.get(JOBS, unique, "kube-system") is None
    assert await watched.list(PODS, namespace) == []
    await watched.list(PODS, labels=f"a={unique}")
    assert await watched.list(JOBS, namespace) == await cluster.list(JOBS, namespace)
    assert source.requests == [
        ("get", "Job", unique),
        ("list", "Pod", ""),
        ("list", "Pod", f"a={unique}"),
        ("list", "Job", ""),
    ]
    await cluster.delete(JOBS, made.metadata)
    await eventually(seen, lambda one: one is None)
    assert await watched.served() == await cluster.served()
