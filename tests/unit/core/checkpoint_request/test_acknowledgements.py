"""What counts as "everybody's work is safe", sentence by sentence."""

from datetime import timedelta

import msgspec
import pytest

from upgrader.core.checkpoint_request.acknowledgements import (
    Ack,
    AckVerdict,
    Judgement,
    SentRequest,
    is_ephemeral,
    judge_answers,
)
from upgrader.core.model.fleet import MemberFacts
from upgrader_dev.simulated.cluster.ports import START

STOP_BEFORE = START + timedelta(seconds=600)


def member(uid, **changes):
    facts = {
        "pod": f"train-{uid}",
        "uid": uid,
        "namespace": "default",
        "node": "node-1",
        "container": "trainer",
        "phase": "Running",
        "ephemeral_paths": ("/run/checkpoint", "/data/scratch"),
        "volume_paths": ("/data",),
    }
    return MemberFacts(**{**facts, **changes})


def answer(uid, **changes):
    said = {"pod_uid": uid, "request_id": 7, "step": 100, "uri": "/data/ckpt-100", "parked": True}
    return Ack(**{**said, **changes})


def later(seconds):
    return START + timedelta(seconds=seconds)


BOTH = (member("a"), member("b"))
SAID = (answer("a"), answer("b"))


def judged(*, members=("a", "b"), present=BOTH, answers=SAID, wanted=2, now=START, **terms):
    asked = SentRequest(members=members, request_id=7, asked_at=START, stop_before=STOP_BEFORE, **terms)
    return judge_answers(asked, present=present, answers=answers, wanted=wanted, now=now)


CASES = {
    "all parked at one step": (
        {},
        Judgement(verdict=AckVerdict.VALID, message="2 member(s) parked at step 100", step=100),
    ),
    "a member that has succeeded is done and need not answer": (
        {"present": (member("a"), member("b", phase="Succeeded")), "answers": (answer("a"),)},
        Judgement(verdict=AckVerdict.VALID, message="1 member(s) parked at step 100", step=100),
    ),
    "a checkpoint in an object store outlives the pod": (
        {"answers": (answer("a", uri="s3://bucket/ckpt"), answer("b", uri="s3://bucket/ckpt"))},
        Judgement(verdict=AckVerdict.VALID, message="2 member(s) parked at step 100", step=100),
    ),
    "half a gang cannot speak for the whole": (
        {"members": ("a",), "present": (member("a"),), "answers": (answer("a"),)},
        Judgement(verdict=AckVerdict.REPLACED, message="1 of 2 members exist; only complete gangs get a request"),
    ),
    "one member is silent": (
        {"answers": (answer("a"),)},
        Judgement(verdict=AckVerdict.WAITING, message="train-b has not answered yet"),
    ),
    "an answer to an earlier asking": (
        {"answers": (answer("a"), answer("b", request_id=6))},
        Judgement(
            verdict=AckVerdict.WRONG_REQUEST,
            message="train-b acknowledges request 6 instead of 7; the acknowledgement is ignored",
        ),
    ),
    "an answer to an asking that never was": (
        {"answers": (answer("a", request_id=8), answer("b"))},
        Judgement(
            verdict=AckVerdict.WRONG_REQUEST,
            message="train-a acknowledges request 8 instead of 7; the acknowledgement is ignored",
        ),
    ),
    "a refusal": (
        {"answers": (answer("a"), answer("b", step=0, parked=False, refused="in the middle of an evaluation"))},
        Judgement(verdict=AckVerdict.REFUSED, message="train-b refuses: in the middle of an evaluation"),
    ),
    "a refusal decides before the others have spoken": (
        {"answers": (answer("b", step=0, parked=False, refused="no"),)},
        Judgement(verdict=AckVerdict.REFUSED, message="train-b refuses: no"),
    ),
    "a refusal of an earlier asking is no refusal": (
        {"answers": (answer("a"), answer("b", request_id=6, refused="no"))},
        Judgement(
            verdict=AckVerdict.WRONG_REQUEST,
            message="train-b acknowledges request 6 instead of 7; the acknowledgement is ignored",
        ),
    ),
    "a refusal that says for how long": (
        {"answers": (answer("a", refused="no", retry_after_seconds=60), answer("b", refused="no"))},
        Judgement(verdict=AckVerdict.REFUSED, message="train-a refuses: no", retry_after_seconds=60),
    ),
    "of two refusals the longer one": (
        {
            "answers": (
                answer("a", refused="soon", retry_after_seconds=60),
                answer("b", refused="late", retry_after_seconds=900),
            )
        },
        Judgement(verdict=AckVerdict.REFUSED, message="train-b refuses: late", retry_after_seconds=900),
    ),
    "saved, training on, and so much may be lost": (
        {"answers": (answer("a", parked=False), answer("b")), "max_loss_seconds": 300, "now": later(300)},
        Judgement(
            verdict=AckVerdict.VALID, message="2 member(s) have saved step 100, and may lose 300 s of work", step=100
        ),
    ),
    "training on for longer than may be lost": (
        {"answers": (answer("a", parked=False), answer("b")), "max_loss_seconds": 300, "now": later(301)},
        Judgement(
            verdict=AckVerdict.EXPIRED,
            message="train-a continues to train and would lose more than 300 s of work; the request is repeated",
        ),
    ),
    "parking is over, and so much may be lost": (
        {"max_loss_seconds": 3600, "now": later(601)},
        Judgement(verdict=AckVerdict.VALID, message="2 member(s) parked at step 100", step=100),
    ),
    "what may be lost does not make steps equal": (
        {"answers": (answer("a", parked=False), answer("b", step=101)), "max_loss_seconds": 300},
        Judgement(
            verdict=AckVerdict.UNEQUAL_STEPS, message="members acknowledge different steps: train-a 100, train-b 101"
        ),
    ),
    "the leader speaks for all": (
        {"answers": (answer("b"),), "leader": "b"},
        Judgement(
            verdict=AckVerdict.VALID, message="2 member(s) parked at step 100, acknowledged by train-b", step=100
        ),
    ),
    "only the leader speaks for all": (
        {"answers": (answer("a"),), "leader": "b"},
        Judgement(verdict=AckVerdict.WAITING, message="train-b has not answered yet"),
    ),
    "what others say beside the leader does not count": (
        {"answers": (answer("a", refused="no"), answer("b")), "leader": "b"},
        Judgement(
            verdict=AckVerdict.VALID, message="2 member(s) parked at step 100, acknowledged by train-b", step=100
        ),
    ),
    "the leader speaks only for the members that were asked": (
        {"present": (member("b"), member("c")), "answers": (answer("b"),), "leader": "b"},
        Judgement(
            verdict=AckVerdict.REPLACED, message="train-c was added after the request; the request is repeated later"
        ),
    ),
    "a leader that has ended speaks for nobody": (
        {"present": (member("a"), member("b", phase="Succeeded")), "answers": (answer("b"),), "leader": "b"},
        Judgement(verdict=AckVerdict.REPLACED, message="the leader has ended; the request is repeated later"),
    ),
    "saved, and training on": (
        {"answers": (answer("a", parked=False), answer("b"))},
        Judgement(
            verdict=AckVerdict.NOT_PARKED,
            message="train-a continues to train after its checkpoint; only acknowledgements of parked members count",
        ),
    ),
    "parked at unequal steps": (
        {"answers": (answer("a"), answer("b", step=101))},
        Judgement(
            verdict=AckVerdict.UNEQUAL_STEPS, message="members acknowledge different steps: train-a 100, train-b 101"
        ),
    ),
    "a checkpoint on an emptyDir": (
        {"answers": (answer("a", uri="/run/checkpoint/ckpt"), answer("b"))},
        Judgement(
            verdict=AckVerdict.EPHEMERAL,
            message="train-a stores its checkpoint at /run/checkpoint/ckpt, which is deleted with the pod; use "
            "another volume",
        ),
    ),
    "a member's pod was replaced": (
        {"present": (member("a"), member("c"))},
        Judgement(
            verdict=AckVerdict.REPLACED, message="train-c was added after the request; the request is repeated later"
        ),
    ),
    "a member's pod is gone": (
        {"present": (member("a"),)},
        Judgement(
            verdict=AckVerdict.REPLACED, message="a member was deleted after the request; the request is repeated later"
        ),
    ),
    "a member joined": (
        {"present": (*BOTH, member("c"))},
        Judgement(
            verdict=AckVerdict.REPLACED, message="train-c was added after the request; the request is repeated later"
        ),
    ),
    "a pod that has succeeded is no new member": (
        {"present": (*BOTH, member("c", phase="Succeeded"))},
        Judgement(verdict=AckVerdict.VALID, message="2 member(s) parked at step 100", step=100),
    ),
    "an answer under the uid of another pod": (
        {"answers": (answer("a"), answer("somebody else"))},
        Judgement(verdict=AckVerdict.WAITING, message="train-b has not answered yet"),
    ),
    "sixty-one seconds before parking ends": (
        {"now": STOP_BEFORE - timedelta(seconds=61)},
        Judgement(verdict=AckVerdict.VALID, message="2 member(s) parked at step 100", step=100),
    ),
    "sixty seconds before parking ends": (
        {"now": STOP_BEFORE - timedelta(seconds=60)},
        Judgement(verdict=AckVerdict.EXPIRED, message="parking ends within a minute; the request is repeated"),
    ),
    "nobody is left to answer": (
        {"present": (member("a", phase="Succeeded"), member("b", phase="Succeeded")), "answers": ()},
        Judgement(verdict=AckVerdict.VALID, message="0 member(s) parked at step None"),
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_a_gangs_answers_are_judged(changes, expected):
    assert judged(**changes) == expected


def test_every_verdict_has_its_sentence():
    said_by_no_member = {AckVerdict.EXPENDABLE, AckVerdict.UNASKABLE}
    assert {expected.verdict for _, expected in CASES.values()} == set(AckVerdict) - said_by_no_member


PLACES = {
    "under a volume": ("/data/ckpt", False),
    "the volume itself": ("/data", False),
    "under a volume, as a file: URI": ("file:///data/ckpt", False),
    "an emptyDir inside the volume's path": ("/data/scratch/ckpt", True),
    "beside the volume, with a name that begins alike": ("/data2/ckpt", True),
    "the container's own file system": ("/tmp/ckpt", True),
    "climbing out of the volume": ("/data/../tmp/ckpt", True),
    "climbing out as a URI": ("file:///data/../tmp/ckpt", True),
    "a relative path": ("ckpt", True),
    "a file on another host": ("file://other/data/ckpt", True),
    "no place at all": ("", True),
    "an object store": ("s3://bucket/ckpt", False),
    "a URI without scheme": ("://data/ckpt", True),
}


@pytest.mark.parametrize(("uri", "dies"), PLACES.values(), ids=PLACES)
def test_a_place_dies_with_the_pod_or_not(uri, dies):
    assert is_ephemeral(uri, member("a")) is dies


def test_a_volume_at_the_root_holds_everything_below():
    whole = msgspec.structs.replace(member("a"), volume_paths=("/",), ephemeral_paths=("/tmp",))
    assert (is_ephemeral("/x/y", whole), is_ephemeral("/tmp/y", whole)) == (False, True)
