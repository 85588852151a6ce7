"""Merges and edits of objects: the same for the fake in memory and for the client on a real API server."""

import pytest

from tests.support import manifests as m
from tests.support.port_objects import pod
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import (
    CHECKPOINT_REQUESTS,
    GPU_STACKS,
    NODES,
    PODS,
)
from upgrader.core.errors import ConfigurationError, ConflictError, NotFoundError

FOREIGN_UID = "00000000-0000-0000-0000-0000000000ff"


# ---- merge


async def test_a_merge_fits_only_what_was_read(cluster, unique):
    read = await cluster.create(GPU_STACKS, m.gpu_stack(unique))
    now = await cluster.merge(GPU_STACKS, read.metadata, {"metadata": {"labels": {"a": "1"}}})
    assert now.metadata.resource_version != read.metadata.resource_version
    with pytest.raises(ConflictError):
        await cluster.merge(GPU_STACKS, read.metadata, {"metadata": {"labels": {"a": "2"}}})
    assert await cluster.get(GPU_STACKS, unique) == now


async def test_a_merge_removes_by_null_and_leaves_the_rest(cluster, unique):
    manifest = m.changed(m.gpu_stack(unique), "metadata.labels", {"a": "1", "b": "2"})
    read = await cluster.create(GPU_STACKS, manifest)
    now = await cluster.merge(GPU_STACKS, read.metadata, {"metadata": {"labels": {"a": None, "c": "3"}}})
    assert now.metadata.labels == {"b": "2", "c": "3"}
    assert now.spec == read.spec


async def test_a_merge_that_changes_nothing_makes_no_new_version(cluster, unique):
    read = await cluster.create(GPU_STACKS, m.gpu_stack(unique))
    assert await cluster.merge(GPU_STACKS, read.metadata, {"spec": {"driver": {"version": "570.10"}}}) == read


async def test_a_merge_of_what_is_gone_is_not_found(cluster, unique):
    read = await cluster.create(GPU_STACKS, m.gpu_stack(unique))
    await cluster.delete(GPU_STACKS, read.metadata)
    with pytest.raises(NotFoundError):
        await cluster.merge(GPU_STACKS, read.metadata, {"metadata": {"labels": {"a": "1"}}})


@pytest.mark.parametrize(
    ("patch", "subresource", "generation"),
    [
        ({"spec": {"driver": {"version": "580.1"}}}, "", 2),
        ({"metadata": {"labels": {"a": "1"}}}, "", 1),
        ({"status": {"nodes": 3}}, "status", 1),
    ],
)
async def test_the_generation_counts_wishes(cluster, unique, patch, subresource, generation):
    read = await cluster.create(GPU_STACKS, m.gpu_stack(unique))
    now = await cluster.merge(GPU_STACKS, read.metadata, patch, subresource)
    assert now.metadata.generation == generation


async def test_status_is_written_by_its_subresource_only(cluster, unique):
    manifest = m.changed(m.gpu_stack(unique), "status", {"nodes": 9})
    read = await cluster.create(GPU_STACKS, manifest)
    assert read.status.nodes == 0
    both = {"spec": {"driver": {"version": "580.1"}}, "status": {"nodes": 3}}
    read = await cluster.merge(GPU_STACKS, read.metadata, both)
    assert (read.spec.driver.version, read.status.nodes) == ("580.1", 0)
    both = {"spec": {"driver": {"version": "590.1"}}, "status": {"nodes": 3}}
    read = await cluster.merge(GPU_STACKS, read.metadata, both, "status")
    assert (read.spec.driver.version, read.status.nodes) == ("580.1", 3)


async def test_a_node_keeps_the_status_it_registers_with(cluster, unique):
    info = {"kernelVersion": "6.1.0", "kubeletVersion": "v1.34.4"}
    read = await cluster.create(NODES, {"metadata": {"name": unique}, "status": {"nodeInfo": info}})
    assert read.status.node_info.kernel_version == "6.1.0"
    await cluster.delete(NODES, read.metadata)


# ---- edit


async def test_an_edit_tests_what_it_replaces(cluster, namespace):
    read = await cluster.create(PODS, pod("p", namespace))
    set_it = {"op": "add", "path": "/metadata/annotations", "value": {"request": "7"}}
    read = await cluster.edit(PODS, read.metadata, [set_it])
    replace = {"op": "replace", "path": "/metadata/annotations/request", "value": "9"}
    expect = {"op": "test", "path": "/metadata/annotations/request", "value": "8"}
    with pytest.raises(ConflictError):
        await cluster.edit(PODS, read.metadata, [expect, replace])
    now = await cluster.edit(PODS, read.metadata, [expect | {"value": "7"}, replace])
    assert now.metadata.annotations["request"] == "9"


async def test_an_edit_of_what_is_not_there_is_a_conflict(cluster, namespace):
    read = await cluster.create(PODS, pod("p", namespace))
    with pytest.raises(ConflictError):
        await cluster.edit(PODS, read.metadata, [{"op": "remove", "path": "/metadata/annotations/request"}])


async def test_an_edit_is_for_one_object_not_for_its_name(cluster, unique):
    read = await cluster.create(GPU_STACKS, m.gpu_stack(unique))
    other = ObjectMeta(name=unique, uid=FOREIGN_UID)
    with pytest.raises(ConflictError):
        await cluster.edit(GPU_STACKS, other, [{"op": "replace", "path": "/spec/driver/version", "value": "1"}])
    assert await cluster.get(GPU_STACKS, unique) == read


async def test_an_edit_that_makes_an_invalid_object_is_a_fault_of_the_controller(cluster, unique):
    read = await cluster.create(GPU_STACKS, m.gpu_stack(unique))
    with pytest.raises(ConfigurationError, match=r"driver\.vendor|Acme!"):
        await cluster.edit(
            GPU_STACKS, read.metadata, [{"op": "replace", "path": "/spec/driver/vendor", "value": "Acme!"}]
        )


async def test_an_edit_reaches_the_status_by_its_subresource(cluster, namespace):
    read = await cluster.create(CHECKPOINT_REQUESTS, m.checkpoint_request(namespace=namespace))
    ack = {"podUid": "u", "requestId": 100, "step": 4}
    now = await cluster.edit(
        CHECKPOINT_REQUESTS, read.metadata, [{"op": "add", "path": "/status", "value": {"acks": [ack]}}], "status"
    )
    assert [each.step for each in now.status.acks] == [4]
