"""Which pods stay asked: members of a request that is under way in their namespace, and no others."""

import msgspec
import pytest

from tests.support.asked import add_pod, marked
from tests.support.manifests import checkpoint_request
from tests.support.torn import asked, silent, strip_plan, strip_request, strip_stack
from upgrader.api import names
from upgrader.api.kubernetes import Pod
from upgrader.api.resources import CHECKPOINT_REQUESTS, PODS
from upgrader.core.errors import ConfigurationError, UnreachableError
from upgrader.core.model.phases import RequestPhase
from upgrader.reconcile.checkpoint_request import orphaned_annotations
from upgrader.reconcile.gpu_stack import stack_reconciler, stackless
from upgrader_dev.simulated.cluster.rig import STACK, Rig

MADE = "2026-11-21T09:00:00Z"
AT = 1795251600
"""The same in seconds."""
MARKS = {names.ANNOTATION_REQUEST: str(AT + 30), names.ANNOTATION_PARK_SECONDS: "600"}
UNDER_WAY = {
    RequestPhase.REQUESTED,
    RequestPhase.PARKED,
    RequestPhase.STOPPING,
    RequestPhase.STOPPED,
    RequestPhase.RESTARTING,
    RequestPhase.EXPIRED,
}
"""Phases of which none ends: an expired request is made again."""
OWNER = {"apiVersion": "gpu-upgrader.io/v1alpha1", "kind": "UpgradePlan", "name": "up", "uid": "p1", "controller": True}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def pod_in(rig: Rig, name: str, namespace: str = "default") -> Pod:
    meta = {"name": name, "namespace": namespace, "annotations": MARKS}
    value = {"metadata": meta, "spec": {"containers": []}, "status": {"phase": "Running"}}
    return msgspec.convert(rig.cluster.store.put(PODS, value), Pod)


def ask(
    rig: Rig, *members: Pod, number: int = AT + 30, phase: str = "Requested", namespace: str = "default", **meta: object
) -> None:
    """A request for these pods."""
    body = checkpoint_request()
    body["metadata"] |= {"namespace": namespace, "creationTimestamp": MADE, "ownerReferences": [OWNER], **meta}
    body["spec"] |= {
        "plan": "up",
        "requestId": number,
        "members": [
            {"pod": pod.metadata.name, "uid": pod.metadata.uid, "node": "gpu-0", "container": "main"} for pod in members
        ],
    }
    rig.cluster.store.put(CHECKPOINT_REQUESTS, body | {"status": {"phase": phase}})


async def stay_asked(rig: Rig, *pods: Pod) -> list[bool]:
    refused = await orphaned_annotations.remove_annotations(rig.context, pods)
    assert refused == []
    annotations = [
        rig.cluster.store.find(PODS, pod.metadata.name, pod.metadata.namespace)["metadata"]["annotations"]
        for pod in pods
    ]
    for found in annotations:
        assert {key: found[key] for key in MARKS if key in found} in ({}, MARKS), "both marks go, or none"
    return [names.ANNOTATION_REQUEST in found for found in annotations]


@pytest.mark.parametrize("phase", RequestPhase)
async def test_members_stay_asked_until_their_request_has_ended(rig: Rig, phase: RequestPhase) -> None:
    pod = pod_in(rig, "a")
    ask(rig, pod, phase=phase.value)
    assert await stay_asked(rig, pod) == [phase in UNDER_WAY]


async def test_a_request_of_another_namespace_asks_nobody_here(rig: Rig) -> None:
    here, there = pod_in(rig, "a"), pod_in(rig, "a", "team")
    ask(rig, here, there, namespace="team")
    assert await stay_asked(rig, here, there) == [False, True]


async def test_a_request_asks_its_members_only(rig: Rig) -> None:
    """Of two gangs of a namespace one was asked between the first and the latest asking of the other."""
    member, other = pod_in(rig, "a"), pod_in(rig, "b")
    ask(rig, member, number=AT + 60)
    assert await stay_asked(rig, member, other) == [True, False]


@pytest.mark.parametrize(
    ("number", "stays"), [(AT + 30, True), (AT + 31, True), (AT + 29, False)], ids=["this", "asked again", "earlier"]
)
async def test_marks_of_a_later_request_are_not_an_earlier_ones(rig: Rig, number: int, stays: bool) -> None:  # noqa: FBT001
    pod = pod_in(rig, "a")
    ask(rig, pod, number=number)
    assert await stay_asked(rig, pod) == [stays]


async def test_a_request_that_no_plan_can_know_as_its_own_asks_nobody(rig: Rig) -> None:
    """Its plan was deleted with --cascade=orphan: nobody drives it."""
    pod = pod_in(rig, "a")
    ask(rig, pod, ownerReferences=[])
    assert await stay_asked(rig, pod) == [False]


def forbid(rig: Rig, words: str = "pods is forbidden") -> list[str]:
    """Nobody may write pods; which were tried."""
    tried: list[str] = []

    def refuse(write) -> None:
        if write.kind == PODS.kind and write.namespace == "default":
            tried.append(write.name)
            raise ConfigurationError(words)

    rig.cluster.before_write = refuse
    return tried


def failing(rig: Rig) -> list[tuple[str, str, str]]:
    found = [one for one in rig.stack_now().status.conditions if one.type == "StepFailed"]
    return [(one.status, one.reason, one.message) for one in found]


async def test_marks_that_may_not_be_taken_away_are_named_by_the_stack_and_tried_again_after_a_pause(rig: Rig) -> None:
    await silent(rig)
    pods = asked(rig)
    strip_request(rig)
    strip_plan(rig)
    tried = forbid(rig)
    looks = []
    for _ in range(3):
        await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings)
        looks.append((list(tried), failing(rig)))
        rig.cluster.clock.advance(10)
    named = "; ".join(f"the annotations of pod default/{pod}: pods is forbidden" for pod in pods)
    told = [("True", "Error", f"these parts fail and are retried, all others continue: {named}")]
    assert looks == [(pods, told)] * 3
    rig.cluster.clock.advance(40)
    await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings)
    assert tried == pods * 2
    rig.cluster.before_write = lambda _write: None
    rig.cluster.clock.advance(60)
    await stack_reconciler.reconcile_stack(rig.context, STACK, rig.sightings)
    assert (asked(rig), failing(rig)) == ([], [("False", "NothingFails", "every part of the step succeeds")])


async def test_without_a_stack_they_are_tried_again_after_the_same_pause(rig: Rig) -> None:
    await silent(rig)
    pods = asked(rig)
    strip_request(rig)
    strip_plan(rig)
    strip_stack(rig)
    tried = forbid(rig)
    loop, context = stackless.StacklessPass(), rig.context
    pauses = [await loop.run_pass(context) for _ in range(3)]
    assert (pauses, tried) == ([context.idle_seconds] * 3, pods)
    rig.cluster.before_write = lambda _write: None
    rig.cluster.clock.advance(61)
    assert (await loop.run_pass(context), asked(rig)) == (stackless.PAUSE_SECONDS, [])


async def test_what_was_annotated_otherwise_is_no_mark(rig: Rig) -> None:
    number, seconds = names.ANNOTATION_REQUEST, names.ANNOTATION_PARK_SECONDS
    values = [{number: "1"}, {seconds: "1"}, {number: "soon", seconds: "1"}, {number: "1", seconds: "1"}]
    pods = [add_pod(rig.cluster, f"pod-{place}", annotations=value) for place, value in enumerate(values)]
    assert [pod.metadata.name for pod in orphaned_annotations.annotated_pods(pods)] == ["pod-3"]
    await orphaned_annotations.remove_annotations(rig.context, orphaned_annotations.annotated_pods(pods))
    assert [marked(rig.cluster, pod) for pod in pods] == [("1", None), (None, "1"), ("soon", "1"), (None, None)]


async def test_a_pod_of_which_no_answer_came_is_tried_again_at_the_next_look(rig: Rig) -> None:
    pod = pod_in(rig, "a")

    def lose(_write) -> None:
        raise UnreachableError("no answer")

    rig.cluster.before_write = lose
    with pytest.raises(UnreachableError, match="no answer"):
        await orphaned_annotations.remove_annotations(rig.context, [pod])
    rig.cluster.before_write = lambda _write: None
    assert await stay_asked(rig, pod) == [False]
