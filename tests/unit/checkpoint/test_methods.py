"""Asking and answering on the fake cluster: what is written on members, and what counts as said."""

import asyncio
import contextlib
import json
import tracemalloc
from typing import get_args

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.asked import ack, add_pod, answer, marked, request_for
from upgrader.api import names
from upgrader.api.resources import PODS
from upgrader.api.v1alpha1.checkpoint_request import MethodName
from upgrader.checkpoint.answers import ACK, PROGRESS
from upgrader.checkpoint.api import ApiMethod
from upgrader.checkpoint.exec import ExecMethod
from upgrader.checkpoint.file import FileMethod
from upgrader.checkpoint.http import HttpMethod
from upgrader.checkpoint.methods import checkpoint_methods
from upgrader.checkpoint.signal import SignalMethod
from upgrader.core.errors import ConflictError, UnreachableError
from upgrader.core.replies import CommandResult, Reply
from upgrader.core.workloads.checkpoint_annotations import METHODS
from upgrader.workload import CheckpointListener
from upgrader_dev.simulated.apiserver.cluster import FakeCluster


@pytest.fixture
def cluster():
    return FakeCluster()


@pytest.fixture(params=[FileMethod, ApiMethod, ExecMethod, HttpMethod, SignalMethod])
def method(request, cluster):
    cluster.program = lambda *_: CommandResult(output=b"", code=0)
    cluster.server = lambda *_: Reply(status=202)
    return request.param(cluster)


BEFORE = {
    "a pod without annotations": None,
    "a pod with annotations of others": {"kept": "yes"},
    "a pod that was asked before": {names.ANNOTATION_REQUEST: "99", names.ANNOTATION_PARK_SECONDS: "5"},
}


@pytest.mark.parametrize("annotations", BEFORE.values(), ids=BEFORE)
async def test_asking_and_withdrawing_leave_what_is_others(cluster, method, annotations):
    pod = add_pod(cluster, "a", annotations=annotations)
    request = request_for(pod)
    await method.send_request(request, [pod])
    assert marked(cluster, pod) == ("100", "2100")
    again = await cluster.get(PODS, "a", "default")
    await method.withdraw(request, [again])
    assert marked(cluster, pod) == (None, None)
    kept = cluster.store.find(PODS, "a", "default")["metadata"]["annotations"]
    assert kept == {key: value for key, value in (annotations or {}).items() if key == "kept"}


@pytest.mark.parametrize("number", ["100", "101"])
async def test_who_was_asked_is_not_asked_again_and_who_is_no_member_not_at_all(cluster, method, number):
    asked = add_pod(cluster, "a", annotations={names.ANNOTATION_REQUEST: number})
    other, done = add_pod(cluster, "b"), add_pod(cluster, "c", phase="Succeeded")
    await method.send_request(request_for(asked, done), [asked, other, done])
    assert cluster.writes == []


async def test_a_member_that_was_asked_meanwhile_is_a_conflict_and_the_others_are_asked(cluster, method):
    pods = [add_pod(cluster, name) for name in "abc"]
    cluster.store.change(PODS, "b", {"metadata": {"annotations": {names.ANNOTATION_REQUEST: "777"}}}, "default")
    with pytest.raises(ConflictError):
        await method.send_request(request_for(*pods), pods)
    assert [marked(cluster, pod)[0] for pod in pods] == ["100", "777", "100"]


async def test_an_earlier_request_is_replaced_only_if_it_is_the_one_that_was_read(cluster, method):
    pod = add_pod(cluster, "a", annotations={names.ANNOTATION_REQUEST: "99"})
    cluster.store.change(PODS, "a", {"metadata": {"annotations": {names.ANNOTATION_REQUEST: "101"}}}, "default")
    with pytest.raises(ConflictError):
        await method.send_request(request_for(pod), [pod])
    assert marked(cluster, pod)[0] == "101"


async def test_a_member_that_is_gone_does_not_keep_the_others_from_being_asked(cluster, method):
    pods = [add_pod(cluster, name) for name in "ab"]
    cluster.store.remove(PODS, "a", "default")
    await method.send_request(request_for(*pods), pods)
    assert marked(cluster, pods[1])[0] == "100"


async def test_a_pod_of_the_same_name_is_not_asked(cluster, method):
    pod = add_pod(cluster, "a")
    cluster.store.remove(PODS, "a", "default")
    successor = add_pod(cluster, "a")
    with contextlib.suppress(ConflictError):
        await method.send_request(request_for(pod), [pod])
    assert marked(cluster, successor) == (None, None)


async def test_a_later_request_is_not_withdrawn(cluster, method):
    pod = add_pod(cluster, "a", annotations={names.ANNOTATION_REQUEST: "101"})
    await method.withdraw(request_for(pod), [pod])
    stale = msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations={names.ANNOTATION_REQUEST: "100"}),
    )
    await method.withdraw(request_for(pod), [stale])
    assert marked(cluster, pod)[0] == "101"


@pytest.mark.parametrize(("mark", "left"), [("1795251653", None), ("1795251599", "1795251599")])
async def test_an_earlier_asking_of_the_same_request_is_withdrawn_with_it(cluster, method, mark, left):
    """A controller that ended between asking again and marking the members leaves the id before on them."""
    pod = add_pod(cluster, "a", annotations={names.ANNOTATION_REQUEST: mark})
    request = request_for(pod)
    meta = msgspec.structs.replace(request.metadata, creation_timestamp="2026-11-21T09:00:00Z")
    spec = msgspec.structs.replace(request.spec, request_id=1795251999)
    await method.withdraw(msgspec.structs.replace(request, metadata=meta, spec=spec), [pod])
    assert marked(cluster, pod)[0] == left


async def test_an_api_server_that_is_away_is_an_error_as_itself(cluster, method):
    pod = add_pod(cluster, "a")
    cluster.reachable = False
    with pytest.raises(UnreachableError):
        await method.send_request(request_for(pod), [pod])


# ---- file


FILES = {
    "an acknowledgement": (ack, lambda uid: (answer(uid),)),
    "not parked yet": (lambda pod: ack(pod, parked=False), lambda uid: (answer(uid, parked=False),)),
    "a refusal": (
        lambda pod: json.dumps({"requestId": 100, "podUid": pod.metadata.uid, "step": 0, "refused": "no"}).encode(),
        lambda uid: (answer(uid, step=0, uri="", parked=False, refused="no"),),
    ),
    "fields of a later contract": (lambda pod: ack(pod, colour="red"), lambda uid: (answer(uid),)),
    "of another pod, left on a volume": (
        lambda pod: ack(pod, podUid="former"),
        lambda uid: (answer(f"former (in the pod {uid})"),),
    ),
    "no file": (lambda _: None, lambda _: ()),
    "an empty file": (lambda _: b"", lambda _: ()),
    "half a file": (lambda pod: ack(pod)[:-5], lambda _: ()),
    "no JSON": (lambda _: b"done", lambda _: ()),
    "no text": (lambda _: b'{"step": "\xff\xfe"}', lambda _: ()),
    "a step that is no number": (lambda pod: ack(pod, step="7"), lambda _: ()),
    "a step below zero": (lambda pod: ack(pod, step=-1), lambda _: ()),
    "a truth that is a word": (lambda pod: ack(pod, parked="false"), lambda _: ()),
    "without a step": (lambda _: b'{"requestId": 100, "podUid": "u", "parked": true}', lambda _: ()),
}


@pytest.mark.parametrize(("text", "expected"), FILES.values(), ids=FILES)
async def test_an_answer_is_read_whole_or_is_none(cluster, text, expected):
    pod = add_pod(cluster, "a")
    cluster.files[pod.metadata.uid, ACK] = text(pod)
    assert await FileMethod(cluster).answers(request_for(pod), [pod]) == expected(pod.metadata.uid)


async def test_what_cannot_be_read_is_told_once_per_contents(cluster):
    pod = add_pod(cluster, "a")
    method, request = FileMethod(cluster), request_for(pod)
    with capture_logs() as told:
        for text in (b"{", b"{", b"[", None, b"["):
            cluster.files[pod.metadata.uid, ACK] = text
            await method.answers(request, [pod])
    assert [(one["event"], one["pod"], one["path"]) for one in told] == [
        ("unreadable answer of a member", "default/a", ACK)
    ] * 2


async def test_only_running_members_are_read(cluster):
    member, other, pending = add_pod(cluster, "a"), add_pod(cluster, "b"), add_pod(cluster, "c", phase="Pending")
    for pod in (member, other, pending):
        cluster.files[pod.metadata.uid, ACK] = ack(pod)
    found = await FileMethod(cluster).answers(request_for(member, pending), [member, other, pending])
    assert [one.pod_uid for one in found] == [member.metadata.uid]


async def test_progress_is_that_of_the_pods_that_run_now(cluster):
    pods = {name: add_pod(cluster, name) for name in ("new", "stale", "silent", "old")}
    said = {"new": {"step": 9, "podUid": pods["new"].metadata.uid}, "stale": {"step": 99, "podUid": "former"}}
    said["old"] = {"step": 8}
    for name, one in said.items():
        cluster.files[pods[name].metadata.uid, PROGRESS] = json.dumps(one).encode()
    found = await FileMethod(cluster).progress(request_for(), list(pods.values()))
    assert found == {pods["new"].metadata.uid: 9, pods["old"].metadata.uid: 8}


class Counting:
    """Reads that all wait for each other: counts how many are under way at once."""

    def __init__(self):
        self.now = self.most = 0

    async def read_file(self, pod, container, path):
        del pod, path
        assert container == "trainer"
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1

    async def edit(self, kind, meta, operations, subresource=""):
        raise AssertionError("nothing is asked here")


async def test_at_most_eight_members_are_read_at_once(cluster):
    pods = [add_pod(cluster, f"p{i}") for i in range(30)]
    counting = Counting()
    assert await FileMethod(counting).answers(request_for(*pods), pods) == ()
    assert counting.most == 8


async def test_what_a_workload_writes_is_what_is_read(cluster, tmp_path):
    pod = add_pod(cluster, "a")
    (tmp_path / "asked").mkdir()
    (tmp_path / "said").mkdir()
    (tmp_path / "asked" / "checkpoint-request").write_text("100")
    listener = CheckpointListener(
        requests=tmp_path / "asked", answers=tmp_path / "said", pod_uid=pod.metadata.uid, exit_on_sigterm=False
    )
    for path, name in ((ACK, "ack.json"), (PROGRESS, "progress.json")):
        cluster.files[pod.metadata.uid, path] = (tmp_path / "said" / name).read_bytes
    method, request = FileMethod(cluster), request_for(pod)
    listener.acknowledge(listener.requested(), 7, "/data/c")
    assert await method.answers(request, [pod]) == (answer(pod.metadata.uid, parked=False),)
    listener.progress(8)
    assert await method.progress(request, [pod]) == {pod.metadata.uid: 8}
    listener.refuse(100, "not now")
    assert await method.answers(request, [pod]) == (
        answer(pod.metadata.uid, step=0, uri="", parked=False, refused="not now"),
    )


# ---- api


async def test_a_responders_acks_are_the_answers_and_the_progress(cluster):
    pod = add_pod(cluster, "a")
    acks = [
        {"podUid": pod.metadata.uid, "requestId": 100, "step": 7, "uri": "s3://b/c", "parked": True},
        {"podUid": "former", "requestId": 99, "step": 6},
    ]
    method, request = ApiMethod(cluster), request_for(pod, acks=acks)
    assert await method.answers(request, [pod]) == (
        answer(pod.metadata.uid, uri="s3://b/c"),
        answer("former", request_id=99, step=6, uri="", parked=False),
    )
    assert await method.progress(request, [pod]) == {pod.metadata.uid: 7}
    assert cluster.writes == []


async def test_texts_that_cannot_be_read_are_remembered_by_their_digest(cluster):
    pods = [add_pod(cluster, f"a-{number}") for number in range(40)]
    method = FileMethod(cluster)
    for number, pod in enumerate(pods):
        cluster.files[pod.metadata.uid, ACK] = f"{number}".encode() + b"[" * (1 << 20)
    with capture_logs():
        tracemalloc.start()
        assert await method.answers(request_for(*pods), pods) == ()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert kept < 1 << 20, "less than one of them"


async def test_what_a_job_says_is_as_long_as_a_status_can_carry(cluster):
    """A reason is cut; a location, a step or a uid of that length is none."""
    pod = add_pod(cluster, "a")
    method, request = FileMethod(cluster), request_for(pod)
    cluster.files[pod.metadata.uid, ACK] = ack(pod, refused="x" * 100_000)
    (found,) = await method.answers(request, [pod])
    assert found.refused == "x" * 256
    for changes in ({"uri": "/" + "x" * 100_000}, {"step": 10**18}, {"podUid": "x" * 1000}, {"requestId": -1}):
        cluster.files[pod.metadata.uid, ACK] = ack(pod, **changes)
        assert await method.answers(request, [pod]) == ()


def test_methods_are_the_same_in_the_api_the_declarations_and_the_code():
    assert set(METHODS) == set(get_args(MethodName)) == set(checkpoint_methods(FakeCluster()))
