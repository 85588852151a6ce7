"""The client against a scripted server: what it sends, what it tries again, what it makes of bad answers."""

import asyncio
import json as stdjson
import re

import pytest
from aiohttp import web
from yarl import URL

from tests.support.http import json, write_kubeconfig
from tests.support.waiting import eventually
from upgrader.api.kubernetes import ObjectMeta, Pod
from upgrader.api.resources import GPU_STACKS, NODES, PODS, owner_resource
from upgrader.core.errors import (
    ClusterError,
    ConflictError,
    LostLeadershipError,
    NotFoundError,
    ThrottledError,
    TwoBudgetsError,
    UnreachableError,
)
from upgrader.core.workloads.owner_kinds import DECLARING, OWNERS
from upgrader.kube import client as module
from upgrader.kube.client import KubeCluster
from upgrader.kube.listing import Listing
from upgrader.telemetry import metrics

NODE = {"metadata": {"name": "n1", "resourceVersion": "7", "uid": "u1"}}
READ = ObjectMeta(name="n1", uid="u1", resource_version="7")
STATUS_404 = {"kind": "Status", "details": {"name": "n1", "kind": "nodes"}}


async def test_it_says_who_it_is(cluster, stub):
    stub.answers = [json(NODE)]
    assert (await cluster.get(NODES, "n1")).metadata.name == "n1"
    method, path, body, headers = stub.requests[0]
    assert (method, path, body) == ("GET", "/api/v1/nodes/n1", "")
    assert headers["Authorization"] == "Bearer t0"
    assert re.fullmatch(r"gpu-upgrader/\d+\.\d+\.\d+", headers["User-Agent"])


async def test_lists_are_fetched_page_by_page(cluster, stub):
    stub.answers = [
        json({"metadata": {"continue": "next page"}, "items": [NODE]}),
        json({"metadata": {"resourceVersion": "9"}, "items": [NODE | {"metadata": {"name": "n2"}}]}),
    ]
    listing = await cluster.listing(NODES, labels="pool=a,gpu", fields="spec.unschedulable=false")
    assert ([node.metadata.name for node in listing.items], listing.resource_version) == (["n1", "n2"], "9")
    first = {"limit": "2000", "labelSelector": "pool=a,gpu", "fieldSelector": "spec.unschedulable=false"}
    queries = [dict(URL(path).query) for _, path, _, _ in stub.requests]
    assert queries == [first, first | {"continue": "next page"}]


async def test_a_list_whose_items_are_null_is_empty(cluster, stub):
    stub.answers = [json({"metadata": {"resourceVersion": "9"}, "items": None})]
    assert await cluster.listing(NODES) == Listing([], "9")


async def test_kinds_of_which_only_metadata_is_read_come_without_the_rest(cluster, stub):
    kind = owner_resource(DECLARING[0])
    stub.answers = [json({"items": [NODE]}), json(NODE), json(NODE)]
    assert [one.metadata.name for one in await cluster.list(kind)] == ["n1"]
    await cluster.get(kind, "n1", "ml")
    await cluster.get(NODES, "n1")
    partial = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
    accepted = [headers["Accept"] for _, _, _, headers in stub.requests]
    assert accepted == [partial.format("List"), partial.format(""), "application/json"]


async def test_a_page_that_is_too_old_makes_a_new_list(cluster, stub):
    stub.answers = [
        json({"metadata": {"continue": "old"}, "items": [NODE]}),
        json({"message": "expired"}, status=410),
        json({"metadata": {}, "items": [NODE]}),
    ]
    assert len(await cluster.list(NODES)) == 1


async def test_what_is_written_carries_the_version_that_was_read(cluster, stub):
    stub.answers = [json(NODE)]
    await cluster.merge(NODES, READ, {"spec": {"taints": None}}, "status")
    method, path, body, headers = stub.requests[0]
    assert (method, path) == ("PATCH", "/api/v1/nodes/n1/status?fieldManager=gpu-upgrader")
    assert stdjson.loads(body) == {"spec": {"taints": None}, "metadata": {"resourceVersion": "7"}}
    assert headers["Content-Type"] == "application/merge-patch+json"


async def test_a_merge_without_the_version_that_was_read_is_a_fault_of_the_controller(cluster):
    with pytest.raises(ValueError, match="requires the resourceVersion"):
        await cluster.merge(NODES, ObjectMeta(name="n1"), {})


async def test_an_edit_tests_the_uid_first(cluster, stub):
    stub.answers = [json(NODE)]
    operation = {"op": "remove", "path": "/metadata/labels/a"}
    await cluster.edit(NODES, READ, [operation])
    _, _, body, headers = stub.requests[0]
    assert stdjson.loads(body) == [{"op": "test", "path": "/metadata/uid", "value": "u1"}, operation]
    assert headers["Content-Type"] == "application/json-patch+json"


async def test_apply_is_forced_under_our_name(cluster, stub):
    stub.answers = [json(NODE)]
    await cluster.apply(NODES, {"metadata": {"name": "n1"}})
    method, path, body, headers = stub.requests[0]
    assert (method, path) == ("PATCH", "/api/v1/nodes/n1?fieldManager=gpu-upgrader&force=true")
    assert stdjson.loads(body) == {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    assert headers["Content-Type"] == "application/apply-patch+yaml"


async def test_delete_names_the_object_and_takes_what_it_owns(cluster, stub):
    stub.answers = [json({"kind": "Status", "status": "Success"}), json(STATUS_404, 404), json({}, 409)]
    for _ in stub.answers:
        await cluster.delete(NODES, READ)
    assert stdjson.loads(stub.requests[0][2]) == {"propagationPolicy": "Background", "preconditions": {"uid": "u1"}}


async def test_two_budgets_on_one_pod_are_told_apart_from_a_failing_server(cluster, stub):
    stub.answers = [
        json({"message": "This pod has more than one PodDisruptionBudget, which ... does not support."}, 500),
        json({"message": "etcd is gone"}, 500),
    ]
    with pytest.raises(TwoBudgetsError, match="more than one PodDisruptionBudget"):
        await cluster.evict(READ)
    with pytest.raises(UnreachableError):
        await cluster.evict(READ)


# ---- trying again


async def test_a_read_comes_back_when_the_api_server_says(cluster, stub):
    stub.answers = [json({}, 429, **{"Retry-After": "0"}), json(NODE)]
    assert await cluster.get(NODES, "n1") is not None
    assert len(stub.requests) == 2


async def test_a_read_does_not_wait_for_long(cluster, stub):
    stub.answers = [json({}, 429, **{"Retry-After": "60"})]
    with pytest.raises(ThrottledError) as raised:
        await cluster.get(NODES, "n1")
    assert (raised.value.retry_after, len(stub.requests)) == (60.0, 1)


@pytest.mark.parametrize("status", [429, 503, 409])
async def test_a_write_is_sent_once(cluster, stub, status):
    stub.answers = [json({}, status, **{"Retry-After": "0"})]
    with pytest.raises(ClusterError):
        await cluster.merge(NODES, READ, {})
    assert len(stub.requests) == 1


async def test_a_read_is_tried_again_when_nobody_listens_and_then_given_up(tmp_path):
    path = write_kubeconfig(tmp_path / "nobody", "http://127.0.0.1:9")
    async with await KubeCluster.connect(path) as nobody:
        with pytest.raises(UnreachableError, match=r"GET /api/v1/nodes/n1: .*127\.0\.0\.1:9"):
            await nobody.get(NODES, "n1")


async def test_a_connection_that_ends_without_an_answer_is_unreachable(cluster, stub):
    async def hang_up(request):
        request.transport.close()
        return web.Response()

    stub.answers = [hang_up]
    with pytest.raises(UnreachableError):
        await cluster.merge(NODES, READ, {})


async def test_an_answer_that_does_not_come_is_unreachable(cluster, stub, monkeypatch):
    monkeypatch.setattr("upgrader.kube.transport.REQUEST_SECONDS", 0.2)
    waiting = asyncio.Event()

    async def never(_request):
        await waiting.wait()
        return web.Response()

    stub.answers = [never]
    with pytest.raises(UnreachableError, match=r"PATCH /api/v1/nodes/n1: \S"):
        await cluster.merge(NODES, READ, {})
    waiting.set()


async def test_it_logs_in_again_once_when_it_is_no_longer_known(cluster, stub, kubeconfig, tmp_path, address):
    write_kubeconfig(tmp_path / "config", address, "t1")
    stub.answers = [json({}, 401), json(NODE)]
    assert await cluster.get(NODES, "n1") is not None
    assert [headers["Authorization"] for *_, headers in stub.requests] == ["Bearer t0", "Bearer t1"]
    stub.answers = [json({"message": "no"}, 401)]
    with pytest.raises(ClusterError, match="rejected the credentials"):
        await cluster.get(NODES, "n1")
    assert len(stub.requests) == 4


# ---- the rest


async def test_a_stored_object_that_cannot_be_read_names_the_field(cluster, stub):
    stub.answers = [json({"metadata": {"name": "s"}, "spec": {"nodeSelector": {"a": "b"}, "driver": 3}})]
    with pytest.raises(ClusterError, match=r"\$\.spec\.driver"):
        await cluster.get(GPU_STACKS, "s")


async def test_an_object_that_is_nested_too_deep_is_an_error_with_a_way_out(cluster, stub):
    deep = "[" * 5000 + "]" * 5000
    body = f'{{"items":[{{"metadata":{{"name":"j"}},"spec":{{"x":{deep}}}}}]}}'
    stub.answers = [web.Response(content_type="application/json", text=body)]
    with pytest.raises(ClusterError, match="nested too deeply"):
        await cluster.list(owner_resource(OWNERS[0]))


async def test_the_guard_is_asked_right_before_every_write(cluster, stub):
    stub.answers = [json(NODE)]

    def lost():
        raise LostLeadershipError("held by another process")

    guarded = cluster.guarded(lost)
    for write in (
        guarded.create(PODS, {"metadata": {"name": "p", "namespace": "x"}}),
        guarded.merge(NODES, READ, {}),
        guarded.edit(NODES, READ, []),
        guarded.apply(NODES, {"metadata": {"name": "n1"}}),
        guarded.delete(NODES, READ),
        guarded.evict(READ),
        guarded.call(Pod(metadata=READ), "POST", ":8080/checkpoint", {}),
        guarded.run(Pod(metadata=READ), "trainer", ["save"], {}),
    ):
        with pytest.raises(LostLeadershipError):
            await write
    assert stub.requests == []
    await guarded.get(NODES, "n1")
    await cluster.merge(NODES, READ, {})
    assert len(stub.requests) == 2


async def test_writes_are_counted(cluster, stub):
    stub.answers = [json({}, 409)]
    labels = {"verb": "merge", "kind": "Node"}
    before = metrics.REGISTRY.get_sample_value("upgrader_api_writes_total", labels) or 0
    with pytest.raises(ConflictError):
        await cluster.merge(NODES, READ, {})
    assert metrics.REGISTRY.get_sample_value("upgrader_api_writes_total", labels) == before + 1


async def test_a_lost_event_is_no_error(cluster, stub):
    stub.answers = [json({"message": "namespace is being terminated"}, 403)]
    await cluster.event(READ, "Node", "v1", reason="Stopped", message="m" * 3000)
    sent = stdjson.loads(stub.requests[0][2])
    assert stub.requests[0][1].startswith("/api/v1/namespaces/default/events")
    assert (len(sent["message"]), sent["type"], sent["involvedObject"]["uid"]) == (1024, "Normal", "u1")


async def test_the_version_is_asked_once_in_a_while(cluster, stub):
    stub.answers = [json({"gitVersion": "v1.36.3"}), json({"gitVersion": "v1.37.0"})]
    assert [await cluster.version(), await cluster.version()] == ["v1.36.3", "v1.36.3"]
    cluster._version_until = 0.0
    assert await cluster.version() == "v1.37.0"


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        ([b"\x01{}", b"MARK"], b"{}"),
        ([b"\x01{", b"\x01}", b"\x02warning", b"MARK"], b"{}"),
        ([b"\x01{"], None),  # cut off by a kubelet that restarts
        ([], None),
        ([b"\x01", b"MARK"], b""),
        ([b"\x01" + b"x" * (module.LARGEST_FILE + 1), b"MARK"], None),
    ],
)
async def test_a_file_counts_only_with_its_end_marker(cluster, stub, frames, found):
    async def run(request):
        marker = request.query.getall("command")[-1]
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        for frame in frames:
            await socket.send_bytes(b"\x01" + marker.encode() if frame == b"MARK" else frame)
        await socket.send_bytes(b'\x03{"status":"Success"}')
        await socket.close()
        return socket

    stub.answers = [json({"metadata": {"name": "p", "namespace": "x", "uid": "u"}}), run]
    pod = await cluster.get(PODS, "p", "x")
    assert await cluster.read_file(pod, "main", "/run/checkpoint/ack.json") == found
    query = stub.requests[1][1]
    assert query.startswith("/api/v1/namespaces/x/pods/p/exec?container=main&command=sh&command=-c")


@pytest.mark.parametrize(("status", "raises"), [(500, False), (404, False), (403, True)])
async def test_a_file_that_may_not_be_read_is_an_error_others_are_none(cluster, stub, status, raises):
    stub.answers = [json({"metadata": {"name": "p", "namespace": "x", "uid": "u"}}), json({}, status)]
    pod = await cluster.get(PODS, "p", "x")
    reading = cluster.read_file(pod, "main", "/f")
    if raises:
        with pytest.raises(ClusterError, match="does not allow"):
            await reading
    else:
        assert await reading is None


async def test_no_more_files_are_read_at_a_time_than_the_limit(cluster, stub):
    open_now, release = [], asyncio.Event()

    async def run(request):
        open_now.append(1)
        await release.wait()
        return web.Response(status=500)

    stub.answers = [json({"metadata": {"name": "p", "namespace": "x", "uid": "u"}}), run]
    pod = await cluster.get(PODS, "p", "x")
    async with asyncio.TaskGroup() as group:
        for _ in range(module.MAX_CONCURRENT_READS + 12):
            group.create_task(cluster.read_file(pod, "main", "/f"))

        async def seen():
            return len(open_now)

        await eventually(seen, lambda count: count >= module.MAX_CONCURRENT_READS)
        assert len(open_now) == module.MAX_CONCURRENT_READS
        release.set()
    assert len(open_now) == module.MAX_CONCURRENT_READS + 12


MEMBER = Pod(metadata=ObjectMeta(name="p1", namespace="ml", uid="u1"))


async def test_a_pod_is_called_through_the_api_server(cluster, stub):
    stub.answers = [json({"step": 7}, status=409, **{"Retry-After": "60"})]
    reply = await cluster.call(MEMBER, "POST", ":8080/checkpoint", {"requestId": 7})
    assert (reply.status, stdjson.loads(reply.body), reply.retry_after_seconds) == (409, {"step": 7}, 60)
    method, path, body, _ = stub.requests[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/ml/pods/p1:8080/proxy/checkpoint")
    assert stdjson.loads(body) == {"requestId": 7}


async def test_a_query_reaches_the_pod(cluster, stub):
    stub.answers = [json({}, status=204)]
    assert (await cluster.call(MEMBER, "DELETE", ":80?requestId=7")).status == 204
    assert stub.requests[0][1] == "/api/v1/namespaces/ml/pods/p1:80/proxy?requestId=7"


UNREACHED = {"kind": "Status", "apiVersion": "v1", "code": 503, "message": "error trying to reach service"}


async def test_what_the_api_server_says_in_place_of_a_pod_is_no_answer_of_it(cluster, stub):
    gone = UNREACHED | {"code": 404, "details": {"name": "p1", "kind": "pods"}}
    stub.answers = [json(UNREACHED, status=503), json(gone, status=404), json({"step": 1}, status=404)]
    assert await cluster.call(MEMBER, "GET", ":80") is None
    with pytest.raises(NotFoundError, match="pods p1 does not exist"):
        await cluster.call(MEMBER, "GET", ":80")
    assert (await cluster.call(MEMBER, "GET", ":80")).status == 404


async def test_a_right_that_is_missing_is_told(cluster, stub):
    stub.answers = [json(UNREACHED | {"code": 403, "message": "pods proxy is forbidden"}, status=403)]
    with pytest.raises(ClusterError, match="does not allow this"):
        await cluster.call(MEMBER, "GET", ":80")


async def test_a_pod_does_not_send_us_elsewhere_with_our_credentials(cluster, stub):
    """A redirect to the API server itself would be followed as ourselves: to any object, by any verb."""
    stub.answers = [json({}, status=307, Location="/api/v1/namespaces/kube-system/secrets/x"), json({"step": 1})]
    assert await cluster.call(MEMBER, "DELETE", ":80") is None
    assert len(stub.requests) == 1


async def test_a_pod_that_says_too_much_says_nothing(cluster, stub, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_FILE", 100)
    stub.answers = [json({"noise": "x" * 200})]
    assert await cluster.call(MEMBER, "GET", ":80") is None
