"""The methods that speak to a program in the pod: exec, http, signal."""

import json

import msgspec
import pytest

from tests.support.asked import ack, add_pod, answer, marked, request_for
from upgrader.api.resources import PODS
from upgrader.api.v1alpha1.checkpoint_request import MissedMember
from upgrader.checkpoint.answers import ACK, PROGRESS
from upgrader.checkpoint.api import ApiMethod
from upgrader.checkpoint.exec import ExecMethod
from upgrader.checkpoint.file import FileMethod
from upgrader.checkpoint.http import HttpMethod
from upgrader.checkpoint.signal import ASK, WITHDRAW, SignalMethod
from upgrader.core.errors import ClusterError, UnaskableError
from upgrader.core.replies import CommandResult, Reply
from upgrader_dev.simulated.apiserver.cluster import FakeCluster


@pytest.fixture
def cluster():
    return FakeCluster()


class Heard:
    """Programs and servers in pods: keeps what was said to each, and answers what a test gives."""

    def __init__(self, cluster):
        self.said = []
        self.ran, self.reply = CommandResult(output=b"", code=0), Reply(status=202)
        cluster.program, cluster.server = self.program, self.server

    def program(self, pod, argv, env):
        self.said.append((pod.metadata.name, tuple(argv), dict(env)))
        return self.ran(pod) if callable(self.ran) else self.ran

    def server(self, pod, method, endpoint, body):
        self.said.append((pod.metadata.name, method, endpoint, body))
        return self.reply(pod) if callable(self.reply) else self.reply


@pytest.fixture
def heard(cluster):
    return Heard(cluster)


def variables(pod, action):
    return {
        "CHECKPOINT_ACTION": action,
        "CHECKPOINT_REQUEST": "100",
        "CHECKPOINT_PARK_SECONDS": "2100",
        "CHECKPOINT_POD_UID": pod.metadata.uid,
    }


async def test_a_command_is_run_with_all_that_it_must_know_for_each_thing_that_is_wanted(cluster, heard):
    pod = add_pod(cluster, "a")
    method, request = ExecMethod(cluster), request_for(pod)
    await method.send_request(request, [pod])
    pod = await cluster.get(PODS, "a", "default")
    await method.send_request(request, [pod])
    await method.answers(request, [pod])
    await method.progress(request, [pod])
    await method.withdraw(request, [pod])
    wanted = ("request", "answer", "progress", "withdraw")
    assert heard.said == [("a", ("/app/save", "--all"), variables(pod, action)) for action in wanted]


async def test_what_a_command_prints_is_the_answer_and_where_it_prints_nothing_the_file_is(cluster, heard):
    pods = [add_pod(cluster, name) for name in "abc"]
    printed = {"a": ack(pods[0], step=9) + b"\n", "b": b"", "c": b""}
    heard.ran = lambda pod: CommandResult(output=printed[pod.metadata.name], code=0)
    cluster.files[pods[1].metadata.uid, ACK] = ack(pods[1])
    found = await ExecMethod(cluster).answers(request_for(*pods), pods)
    assert found == (answer(pods[0].metadata.uid, step=9), answer(pods[1].metadata.uid))
    printed |= {"a": b'{"step": 11}', "b": b"11 steps"}
    cluster.files[pods[2].metadata.uid, PROGRESS] = b'{"step": 12}'
    assert await ExecMethod(cluster).progress(request_for(*pods), pods) == {
        pods[0].metadata.uid: 11,
        pods[2].metadata.uid: 12,
    }


@pytest.mark.parametrize("ran", [None, CommandResult(output=b"{}", code=1)], ids=["unknown", "failed"])
async def test_a_command_that_is_not_known_to_have_worked_is_run_again(cluster, heard, ran):
    pods = [add_pod(cluster, name) for name in "ab"]
    heard.ran = lambda pod: ran if pod.metadata.name == "a" else CommandResult(output=b"", code=0)
    method, request = ExecMethod(cluster), request_for(*pods)
    await method.send_request(request, pods)
    assert [marked(cluster, pod)[0] for pod in pods] == [None, "100"]
    assert await method.answers(request, pods[:1]) == ()
    heard.ran = CommandResult(output=b"", code=0)
    await method.send_request(request, [await cluster.get(PODS, name, "default") for name in "ab"])
    assert [name for name, _, env in heard.said if env["CHECKPOINT_ACTION"] == "request"] == ["a", "b", "a"]


@pytest.mark.parametrize(("code", "why"), [(127, "does not exist"), (126, "cannot be run")])
async def test_a_command_that_is_not_in_the_container_is_told(cluster, heard, code, why):
    pod = add_pod(cluster, "a")
    heard.ran = CommandResult(output=b"", code=code)
    with pytest.raises(UnaskableError, match=f"/app/save {why} in pod a"):
        await ExecMethod(cluster).send_request(request_for(pod), [pod])
    assert marked(cluster, pod) == (None, None)


async def test_an_endpoint_is_called_for_each_thing_that_is_wanted(cluster, heard):
    pod = add_pod(cluster, "a")
    method, request = HttpMethod(cluster), request_for(pod)
    await method.send_request(request, [pod])
    pod = await cluster.get(PODS, "a", "default")
    await method.send_request(request, [pod])
    await method.answers(request, [pod])
    await method.progress(request, [pod])
    await method.withdraw(request, [pod])
    assert heard.said == [
        ("a", "POST", ":8080/ckpt", {"requestId": 100, "podUid": pod.metadata.uid, "parkSeconds": 2100}),
        ("a", "GET", ":8080/ckpt", None),
        ("a", "GET", ":8080/ckpt/progress", None),
        ("a", "DELETE", ":8080/ckpt?requestId=100", None),
    ]


REPLIES = {
    "the acknowledgement": (lambda pod: Reply(status=200, body=ack(pod)), lambda uid: (answer(uid),)),
    "not yet": (lambda pod: Reply(status=202, body=ack(pod)), lambda _: ()),
    "no answer": (lambda _: None, lambda _: ()),
    "nothing there": (lambda pod: Reply(status=404, body=ack(pod)), lambda _: ()),
    "not well": (lambda pod: Reply(status=500, body=ack(pod)), lambda _: ()),
    "not JSON": (lambda _: Reply(status=200, body=b"done"), lambda _: ()),
    "not now": (
        lambda _: Reply(status=409, retry_after_seconds=60),
        lambda uid: (answer(uid, step=0, uri="", parked=False, refused="not now", retry_after_seconds=60),),
    ),
    "not now, and why": (
        lambda _: Reply(status=409, body=b'{"refused": "evaluating"}'),
        lambda uid: (answer(uid, step=0, uri="", parked=False, refused="evaluating"),),
    ),
    "not in this life": (
        lambda _: Reply(status=409, retry_after_seconds=10**9),
        lambda uid: (answer(uid, step=0, uri="", parked=False, refused="not now", retry_after_seconds=604800),),
    ),
}


@pytest.mark.parametrize(("reply", "expected"), REPLIES.values(), ids=REPLIES)
async def test_what_an_endpoint_answers(cluster, heard, reply, expected):
    pod = add_pod(cluster, "a")
    heard.reply = reply
    assert await HttpMethod(cluster).answers(request_for(pod), [pod]) == expected(pod.metadata.uid)


async def test_a_refusal_of_the_call_itself_is_an_answer_and_no_mark_is_left(cluster, heard):
    pod = add_pod(cluster, "a")
    heard.reply = Reply(status=409, retry_after_seconds=60)
    method, request = HttpMethod(cluster), request_for(pod)
    await method.send_request(request, [pod])
    heard.reply = Reply(status=404)
    refused = (answer(pod.metadata.uid, step=0, uri="", parked=False, refused="not now", retry_after_seconds=60),)
    assert await method.answers(request, [pod]) == refused
    assert await method.answers(request_for(pod, request_id=101), [pod]) == (), "another asking is another answer"
    assert marked(cluster, pod) == (None, None)
    await method.withdraw(request, [pod])
    assert await method.answers(request, [pod]) == ()


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (None, ("no program listens")),
        (Reply(status=404), "404 is the response"),
        (Reply(status=405), "405 is the response"),
    ],
)
async def test_an_endpoint_that_is_not_there_is_told(cluster, heard, reply, why):
    pod = add_pod(cluster, "a")
    heard.reply = reply
    with pytest.raises(UnaskableError, match=f"{why} at :8080/ckpt of pod a"):
        await HttpMethod(cluster).send_request(request_for(pod), [pod])
    assert marked(cluster, pod) == (None, None)


async def test_a_signal_follows_the_request_and_none_its_withdrawal(cluster, heard):
    pod = add_pod(cluster, "a")
    method, request = SignalMethod(cluster), request_for(pod)
    await method.send_request(request, [pod])
    pod = await cluster.get(PODS, "a", "default")
    await method.withdraw(request, [pod])
    env = {"CHECKPOINT_REQUEST": "100", "CHECKPOINT_PARK_SECONDS": "2100"}
    assert heard.said == [("a", (*ASK, "USR1"), env), ("a", WITHDRAW, env)]
    assert "kill" not in " ".join(WITHDRAW)


async def test_a_signal_that_cannot_be_sent_is_told(cluster, heard):
    pod = add_pod(cluster, "a")
    heard.ran = CommandResult(output=b"", code=1)
    with pytest.raises(UnaskableError, match="SIGUSR1 could not be sent to pod a"):
        await SignalMethod(cluster).send_request(request_for(pod), [pod])
    assert marked(cluster, pod) == (None, None)


def deaf(heard, name):
    """One member cannot be asked by any way; all others can."""
    heard.ran = lambda pod: CommandResult(output=b"", code=127 if pod.metadata.name == name else 0)
    heard.reply = lambda pod: None if pod.metadata.name == name else Reply(status=202)


@pytest.mark.parametrize("kind", [ExecMethod, HttpMethod, SignalMethod])
async def test_who_heard_the_request_carries_its_mark_although_another_cannot_be_asked(cluster, heard, kind):
    pods = [add_pod(cluster, name) for name in "abc"]
    deaf(heard, "b")
    with pytest.raises(UnaskableError) as raised:
        await kind(cluster).send_request(request_for(*pods), pods)
    assert raised.value.missed == {pods[1].metadata.uid: raised.value.brief}
    assert [marked(cluster, pod)[0] for pod in pods] == ["100", None, "100"]


@pytest.mark.parametrize("kind", [ExecMethod, HttpMethod, SignalMethod])
async def test_who_heard_the_request_carries_its_mark_although_another_may_not_be_spoken_to(cluster, heard, kind):
    pods = [add_pod(cluster, name) for name in "ab"]

    def forbidden(pod):
        if pod.metadata.name == "b":
            raise ClusterError("forbidden")
        return CommandResult(output=b"", code=0) if kind is not HttpMethod else Reply(status=202)

    heard.ran = heard.reply = forbidden
    with pytest.raises(ClusterError, match="forbidden"):
        await kind(cluster).send_request(request_for(*pods), pods)
    assert [marked(cluster, pod)[0] for pod in pods] == ["100", None]


@pytest.mark.parametrize("kind", [ExecMethod, HttpMethod, SignalMethod])
async def test_who_may_have_heard_the_request_is_released_too(cluster, heard, kind):
    """The call may have arrived and only its answer got lost; who was never spoken to is left in peace."""
    pods = [add_pod(cluster, name) for name in "abc"]
    request = request_for(*pods)
    missed = [MissedMember(pod_uid=pods[1].metadata.uid, method="http", request_id=100, at="2026-11-21T09:00:00Z")]
    request = msgspec.structs.replace(request, status=msgspec.structs.replace(request.status, missed=missed))
    await kind(cluster).withdraw(request, pods)
    assert [said[0] for said in heard.said] == ["b"]


@pytest.mark.parametrize("kind", [ExecMethod, HttpMethod, SignalMethod])
async def test_only_the_leader_is_spoken_to_and_all_are_marked(cluster, heard, kind):
    pods = [add_pod(cluster, name) for name in "abc"]
    request = request_for(*pods, leader=pods[1].metadata.uid)
    await kind(cluster).send_request(request, pods)
    assert {said[0] for said in heard.said} == {"b"}
    assert [marked(cluster, pod)[0] for pod in pods] == ["100"] * 3


async def test_all_ways_give_the_same_answer(cluster, heard):
    pod = add_pod(cluster, "a")
    heard.ran, heard.reply = CommandResult(output=ack(pod), code=0), Reply(status=200, body=ack(pod))
    cluster.files[pod.metadata.uid, ACK] = ack(pod)
    acks = [json.loads(ack(pod))]
    found = {
        await kind(cluster).answers(request_for(pod, acks=acks), [pod])
        for kind in (FileMethod, ExecMethod, HttpMethod, SignalMethod, ApiMethod)
    }
    assert found == {(answer(pod.metadata.uid),)}
