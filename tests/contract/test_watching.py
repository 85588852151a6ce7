"""Lists page by page, and watches: the same for the fake in memory and for a real API server."""

import asyncio
import json

import msgspec
import pytest

from tests.support import manifests as m
from upgrader.api.resources import GPU_STACKS, ResourceKind
from upgrader.core.errors import ConfigurationError
from upgrader.kube.client import KubeCluster
from upgrader.kube.listing import Page
from upgrader.kube.transport import Call

WATCH = {"seconds": 4, "idle_seconds": 30.0}


async def page(cluster, kind: ResourceKind, *, labels="", limit=0, following=""):
    if not isinstance(cluster, KubeCluster):
        return cluster.pages.page(kind, "", labels, "", limit, following)
    query = (("limit", str(limit)), ("labelSelector", labels), *((("continue", following),) if following else ()))
    body = await cluster._transport.read(Call(method="GET", path=kind.path(), query=query))
    return msgspec.json.decode(body, type=Page[kind.type])


async def some_stacks(cluster, unique, count):
    bodies = [
        m.changed(m.gpu_stack(f"{unique}-{number}"), "metadata.labels", {"test": unique}) for number in range(count)
    ]
    return [await cluster.create(GPU_STACKS, body) for body in bodies]


async def seen(cluster, unique, version, act=None):
    """Type, name and version of a watch's events about the test's own stacks, and the last version that it reached."""
    found, reached = [], ""
    async with cluster.watch(GPU_STACKS, version, **WATCH) as lines:
        reading = asyncio.ensure_future(anext(lines, None))
        if act is not None:
            await act()
        while True:
            while not isinstance(cluster, KubeCluster) and not reading.done():
                await asyncio.sleep(0)
                cluster.clock.advance(0.5)
            line = await reading
            if line is None:
                return found, reached
            event = json.loads(line)
            meta = event["object"].get("metadata", {})
            reached = meta.get("resourceVersion", reached)
            if event["type"] in {"BOOKMARK", "ERROR"}:
                found.append((event["type"], event["object"].get("code", ""), ""))
            elif meta["name"].startswith(unique):
                found.append((event["type"], meta["name"], meta["resourceVersion"]))
            reading = asyncio.ensure_future(anext(lines, None))


async def remove(cluster, made):
    for each in made:
        await cluster.delete(GPU_STACKS, each.metadata)


async def test_a_list_comes_page_by_page_as_of_its_first_page(cluster, unique):
    made = await some_stacks(cluster, unique, 5)
    first = await page(cluster, GPU_STACKS, labels=f"test={unique}", limit=2)
    made += await some_stacks(cluster, f"{unique}-z", 1)
    await cluster.delete(GPU_STACKS, made[4].metadata)
    second = await page(cluster, GPU_STACKS, labels=f"test={unique}", limit=2, following=first.metadata.continue_)
    third = await page(cluster, GPU_STACKS, labels=f"test={unique}", limit=2, following=second.metadata.continue_)
    names = [[each.metadata.name.removeprefix(unique) for each in one.items or ()] for one in (first, second, third)]
    assert (names, third.metadata.continue_) == ([["-0", "-1"], ["-2", "-3"], ["-4"]], "")
    assert {one.metadata.resource_version for one in (second, third)} == {first.metadata.resource_version}
    await remove(cluster, made)


async def test_a_watch_says_what_happened_since_its_version_and_ends_with_a_bookmark(cluster, unique):
    version = (await cluster.listing(GPU_STACKS)).resource_version
    (stack,) = await some_stacks(cluster, unique, 1)
    changed = await cluster.merge(GPU_STACKS, stack.metadata, {"metadata": {"labels": {"a": "1"}}})
    found, reached = await seen(cluster, unique, version, lambda: cluster.delete(GPU_STACKS, stack.metadata))
    name = stack.metadata.name
    *added_and_modified, deleted = [event for event in found if event[0] != "BOOKMARK"]  # one may come at any time
    assert added_and_modified == [
        ("ADDED", name, stack.metadata.resource_version),
        ("MODIFIED", name, changed.metadata.resource_version),
    ]
    assert deleted[:2] == ("DELETED", name)
    assert found[-1][0] == "BOOKMARK"
    assert int(deleted[2]) > int(changed.metadata.resource_version), "a deletion has a version of its own"
    assert int(reached) >= int(deleted[2])


async def test_a_watch_from_a_version_that_is_not_known_any_more_has_expired(cluster, unique):
    if isinstance(cluster, KubeCluster):
        pytest.skip("a real API server forgets after minutes; tests/unit/kube/test_informer.py has its answer")
    await some_stacks(cluster, unique, 2)
    cluster.store.history.compact()
    assert await seen(cluster, unique, "1") == ([("ERROR", 410, "")], "")


async def test_an_object_that_is_being_deleted_gets_no_new_finalizer(cluster, unique):
    body = m.changed(m.gpu_stack(unique), "metadata.finalizers", ["gpu-upgrader.io/test"])
    stack = await cluster.create(GPU_STACKS, body)
    await cluster.delete(GPU_STACKS, stack.metadata)
    held = await cluster.get(GPU_STACKS, unique)
    more = {"metadata": {"finalizers": ["gpu-upgrader.io/test", "gpu-upgrader.io/other"]}}
    with pytest.raises(ConfigurationError):
        await cluster.merge(GPU_STACKS, held.metadata, more)
    await cluster.merge(GPU_STACKS, held.metadata, {"metadata": {"finalizers": None}})
    assert await cluster.get(GPU_STACKS, unique) is None
