"""What reconcile may rely on: the same for the fake in memory and for the client on a real API server."""

import functools
import re

import pytest

from tests.support import manifests as m
from tests.support.port_objects import daemonset, job, pod
from tests.support.waiting import eventually
from upgrader.api.resources import (
    CHECKPOINT_REQUESTS,
    CONTROLLER_REVISIONS,
    DAEMONSETS,
    DRIVER_IMAGES,
    GPU_STACKS,
    JOBS,
    NODE_UPGRADES,
    NODES,
    PDBS,
    PODS,
    UPGRADE_PLANS,
)
from upgrader.core.errors import ConfigurationError, ConflictError, NameTakenError, NotFoundError, ThrottledError


async def test_what_is_not_there_is_none(cluster, unique):
    assert await cluster.get(GPU_STACKS, unique) is None
    assert await cluster.get(PODS, unique, "default") is None


async def test_kinds_are_served_in_versions_and_what_is_not_installed_is_not_among_them(cluster):
    served = await cluster.served()
    assert (served["batch", "jobs"], served["apps", "statefulsets"]) == (("v1",), ("v1",))
    assert ("example.org", "things") not in served


async def test_what_was_created_can_be_read(cluster, unique):
    made = await cluster.create(GPU_STACKS, m.gpu_stack(unique))
    assert await cluster.get(GPU_STACKS, unique) == made
    assert made.metadata.uid
    assert made.metadata.resource_version
    assert (made.metadata.name, made.metadata.generation, made.spec.driver.version) == (unique, 1, "570.10")


async def test_a_name_is_taken_once(cluster, unique):
    await cluster.create(GPU_STACKS, m.gpu_stack(unique))
    with pytest.raises(NameTakenError):
        await cluster.create(GPU_STACKS, m.gpu_stack(unique))


async def test_a_rehearsal_keeps_nothing_and_a_taken_name_is_none_of_it(cluster, unique, namespace):
    for kind, body, space in ((GPU_STACKS, m.gpu_stack(unique), ""), (PODS, pod(unique, namespace), namespace)):
        await cluster.rehearse(kind, body)
        assert await cluster.get(kind, unique, space) is None
        made = await cluster.create(kind, body)
        await cluster.rehearse(kind, body)
        assert await cluster.get(kind, unique, space) == made


async def test_a_rehearsal_refuses_what_would_be_refused(cluster, unique):
    with pytest.raises(ConfigurationError, match=r"driver\.vendor|Acme!"):
        await cluster.rehearse(GPU_STACKS, m.changed(m.gpu_stack(unique), "spec.driver.vendor", "Acme!"))
    with pytest.raises(NotFoundError):
        await cluster.rehearse(CHECKPOINT_REQUESTS, m.checkpoint_request(namespace=unique))


async def test_nothing_is_created_in_a_namespace_that_is_not_there(cluster, unique):
    with pytest.raises(NotFoundError):
        await cluster.create(CHECKPOINT_REQUESTS, m.checkpoint_request(namespace=unique))


async def test_an_invalid_manifest_is_refused_with_its_field(cluster, unique):
    broken = m.changed(m.gpu_stack(unique), "spec.driver.vendor", "Acme!")
    with pytest.raises(ConfigurationError, match=r"driver\.vendor|Acme!"):
        await cluster.create(GPU_STACKS, broken)
    assert await cluster.get(GPU_STACKS, unique) is None


async def test_defaults_are_stored_with_the_object(cluster, unique):
    made = await cluster.create(UPGRADE_PLANS, m.upgrade_plan(unique))
    await cluster.edit(
        UPGRADE_PLANS,
        made.metadata,
        [
            {"op": "test", "path": "/spec/strategy/maxUnavailable", "value": "25%"},
            {"op": "replace", "path": "/spec/state", "value": "Paused"},
        ],
    )


async def test_a_node_upgrade_that_is_decided_once_does_not_change(cluster, unique):
    made = await cluster.create(NODE_UPGRADES, m.node_upgrade(unique))
    with pytest.raises(ConfigurationError, match="the spec of a NodeUpgrade is immutable, except force"):
        await cluster.merge(NODE_UPGRADES, made.metadata, {"spec": {"group": "another"}})


async def test_request_ids_only_grow(cluster, namespace):
    made = await cluster.create(CHECKPOINT_REQUESTS, m.checkpoint_request(namespace=namespace))
    made = await cluster.merge(CHECKPOINT_REQUESTS, made.metadata, {"spec": {"requestId": 101}})
    with pytest.raises(ConfigurationError, match="requestId must not decrease"):
        await cluster.merge(CHECKPOINT_REQUESTS, made.metadata, {"spec": {"requestId": 100}})


# ---- delete


async def test_a_finalizer_holds_a_deleted_object(cluster, unique):
    manifest = m.changed(m.upgrade_plan(unique), "metadata.finalizers", ["gpu-upgrader.io/test"])
    read = await cluster.create(UPGRADE_PLANS, manifest)
    await cluster.delete(UPGRADE_PLANS, read.metadata)
    held = await cluster.get(UPGRADE_PLANS, unique)
    assert held.metadata.deletion_timestamp
    await cluster.merge(UPGRADE_PLANS, held.metadata, {"metadata": {"finalizers": None}})
    assert await cluster.get(UPGRADE_PLANS, unique) is None


async def test_deleting_what_is_gone_is_fine(cluster, unique):
    read = await cluster.create(GPU_STACKS, m.gpu_stack(unique))
    await cluster.delete(GPU_STACKS, read.metadata)
    await cluster.delete(GPU_STACKS, read.metadata)
    again = await cluster.create(GPU_STACKS, m.gpu_stack(unique))
    await cluster.delete(GPU_STACKS, read.metadata)
    assert await cluster.get(GPU_STACKS, unique) == again, "another object of the same name stays"


async def test_what_an_object_owns_goes_with_it(cluster, namespace):
    owner = await cluster.create(JOBS, job("train", namespace))
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": owner.metadata.uid}
    manifest = m.checkpoint_request(namespace=namespace)
    manifest["metadata"]["ownerReferences"] = [reference]
    await cluster.create(CHECKPOINT_REQUESTS, manifest)
    await cluster.delete(JOBS, owner.metadata)
    # On a new cluster the garbage collector learns of our kinds at its next discovery, which it does every 30 s.
    look = functools.partial(cluster.get, CHECKPOINT_REQUESTS, "gang-1", namespace)
    await eventually(look, lambda found: found is None, seconds=90)


async def test_what_two_objects_own_goes_with_the_last_of_them(cluster, namespace):
    owners = [await cluster.create(JOBS, job(name, namespace)) for name in ("first", "second")]
    manifest = m.checkpoint_request(namespace=namespace)
    manifest["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": each.metadata.name, "uid": each.metadata.uid}
        for each in owners
    ]
    made = await cluster.create(CHECKPOINT_REQUESTS, manifest)
    look = functools.partial(cluster.get, CHECKPOINT_REQUESTS, "gang-1", namespace)
    await cluster.delete(JOBS, owners[0].metadata)
    left = await eventually(look, lambda found: found is None or len(found.metadata.owner_references) == 1, seconds=90)
    assert left is not None
    assert left.metadata.uid == made.metadata.uid
    await cluster.delete(JOBS, owners[1].metadata)
    await eventually(look, lambda found: found is None, seconds=90)


async def test_a_bound_pod_waits_for_its_kubelet(cluster, namespace):
    read = await cluster.create(PODS, pod("p", namespace, node="no-such-node"))
    await cluster.delete(PODS, read.metadata)
    held = await cluster.get(PODS, "p", namespace)
    assert held.metadata.deletion_timestamp


# ---- list


async def test_lists_select_by_labels_and_fields(cluster, namespace):
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {})):
        await cluster.create(PODS, pod(name, namespace, labels=labels, node="n1" if name == "b" else ""))

    async def names(**selectors):
        return [each.metadata.name for each in await cluster.list(PODS, namespace, **selectors)]

    assert await names() == ["a", "b", "c"]
    assert await names(labels="x=1") == ["a"]
    assert await names(labels="x") == ["a", "b"]
    assert await names(labels="!x") == ["c"]
    assert await names(labels="x!=1") == ["b", "c"]
    assert await names(labels="x in (1, 2),x notin (2)") == ["a"]
    assert await names(fields="spec.nodeName=n1") == ["b"]
    assert await names(fields="metadata.name!=a", labels="x") == ["b"]


async def test_a_list_without_namespace_is_of_all(cluster, namespace, unique):
    await cluster.create(CHECKPOINT_REQUESTS, m.checkpoint_request(unique, namespace))
    found = await cluster.list(CHECKPOINT_REQUESTS, fields=f"metadata.name={unique}")
    assert [each.metadata.namespace for each in found] == [namespace]


# ---- apply


async def test_apply_makes_keeps_and_takes_back_what_it_wrote(cluster, namespace):
    made = await cluster.apply(DAEMONSETS, daemonset("d", namespace, own="1", more="2"))
    other_annotation = {"op": "add", "path": "/metadata/annotations/foreign", "value": "3"}
    foreign = await cluster.edit(DAEMONSETS, made.metadata, [other_annotation])
    now = await cluster.apply(DAEMONSETS, daemonset("d", namespace, own="9"))
    kept = {name: value for name, value in now.metadata.annotations.items() if not name.startswith("deprecated.")}
    assert kept == {"own": "9", "foreign": "3"}
    assert now.metadata.uid == foreign.metadata.uid


async def test_apply_of_the_same_changes_nothing(cluster, unique):
    made = await cluster.apply(DRIVER_IMAGES, m.driver_image(unique))
    assert await cluster.apply(DRIVER_IMAGES, m.driver_image(unique)) == made


async def test_a_revision_keeps_its_data(cluster, namespace):
    body = {"metadata": {"name": "r", "namespace": namespace}, "data": {"spec": {"a": [1, {"b": None}]}}, "revision": 3}
    made = await cluster.create(CONTROLLER_REVISIONS, body)
    assert (made.data, made.revision) == ({"spec": {"a": [1, {"b": None}]}}, 3)


# ---- evict


async def running(cluster, name, namespace):
    """A pod that runs, as far as the API server knows."""
    read = await cluster.create(PODS, pod(name, namespace, labels={"app": name}))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return await cluster.merge(PODS, read.metadata, {"status": status}, "status")


async def test_an_evicted_pod_goes(cluster, namespace):
    read = await running(cluster, "p", namespace)
    await cluster.evict(read.metadata)
    assert await cluster.get(PODS, "p", namespace) is None
    with pytest.raises(NotFoundError):
        await cluster.evict(read.metadata)


async def test_an_eviction_is_for_the_pod_that_was_read(cluster, namespace):
    read = await running(cluster, "p", namespace)
    now = await cluster.merge(PODS, read.metadata, {"metadata": {"labels": {"changed": "yes"}}})
    with pytest.raises(ConflictError):
        await cluster.evict(read.metadata)
    assert await cluster.get(PODS, "p", namespace) == now


async def test_a_budget_forbids_an_eviction_without_saying_when_to_come_back(cluster, namespace):
    read = await running(cluster, "p", namespace)
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "p"}}}
    await cluster.create(PDBS, {"metadata": {"name": "b", "namespace": namespace}, "spec": spec})

    async def answer():
        with pytest.raises(ThrottledError) as raised:
            await cluster.evict(read.metadata)
        return raised.value

    # While the budget is new the API server does say when: it has not been counted yet.
    await eventually(answer, lambda error: error.retry_after is None)
    assert await cluster.get(PODS, "p", namespace) == read


async def test_a_budget_does_not_hold_a_pod_that_does_not_run(cluster, namespace):
    read = await cluster.create(PODS, pod("p", namespace, labels={"app": "p"}))
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "p"}}}
    await cluster.create(PDBS, {"metadata": {"name": "b", "namespace": namespace}, "spec": spec})
    await cluster.evict(read.metadata)
    assert await cluster.get(PODS, "p", namespace) is None


# ---- the rest


async def test_an_event_can_be_about_anything(cluster, namespace, unique):
    node = await cluster.create(NODES, {"metadata": {"name": unique}})
    await cluster.event(node.metadata, "Node", "v1", reason="UpgradeStarted", message="stopped for plan a at step 3")
    read = await cluster.create(PODS, pod("p", namespace))
    await cluster.event(read.metadata, "Pod", "v1", reason="Asked", message="x" * 5000, warning=True)
    await cluster.delete(NODES, node.metadata)


async def test_a_file_of_a_pod_that_does_not_run_is_none(cluster, namespace):
    read = await cluster.create(PODS, pod("p", namespace))
    assert await cluster.read_file(read, "main", "/run/checkpoint/ack.json") is None


async def test_the_log_of_a_pod_that_does_not_exist_is_not_found(cluster, namespace):
    read = await cluster.create(PODS, pod("p", namespace))
    await cluster.delete(PODS, read.metadata)
    with pytest.raises(NotFoundError):
        await cluster.read_log(read, "main")


async def test_the_version_is_the_api_servers(cluster):
    assert re.fullmatch(r"v1\.\d+\.\d+", await cluster.version())
