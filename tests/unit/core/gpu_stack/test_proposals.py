"""What a stack does about drift, for every way it may stand with plans, images and limits."""

from datetime import timedelta

import pytest
from msgspec import structs

from tests.support.facts import KERNEL, NEW, OLD, node, snapshot, target
from upgrader.core.gpu_stack.proposals import (
    DriftReaction,
    ImagesSeen,
    OnDrift,
    PlanSeen,
    Proposal,
    ProposalView,
    decide,
    images_seen,
)
from upgrader.core.model.fleet import ImageBuild
from upgrader.core.model.phases import DriverImagePhase, PlanPhase
from upgrader_dev.simulated.cluster.ports import START

P, D = PlanPhase, DriverImagePhase
NEXT = "6.1.0-41-amd64"


def view(mode=OnDrift.PROPOSE, **changes):
    facts = {"mode": mode, "revision": "r2", "drifted": 3, "steady": 2, "images": ImagesSeen(ready=2)}
    return ProposalView(**{**facts, **changes})


def plan(phase, name="p", revision="r2", **changes):
    return PlanSeen(name=name, target_revision=revision, phase=phase, **changes)


READY = ImagesSeen(ready=2)
AHEAD = {
    "a plan is proposed": (
        view(),
        Proposal(why=DriftReaction.PROPOSED, message="2 node(s) differ from revision r2: a plan is proposed", create=1),
    ),
    "and approved within limits": (
        view(OnDrift.APPROVE, limits=True),
        Proposal(
            why=DriftReaction.APPROVED,
            message="2 node(s) differ from revision r2: a plan is created and approved",
            create=1,
            approved=True,
        ),
    ),
    "without limits it is proposed": (
        view(OnDrift.APPROVE),
        Proposal(
            why=DriftReaction.NO_LIMITS,
            message="2 node(s) differ from revision r2: a plan is proposed; spec.driftPlan has no limits, so it "
            "waits for approval",
            create=1,
            done=False,
        ),
    ),
    "after one that completed comes the next": (
        view(plans=(plan(P.COMPLETED, number=4), plan(P.COMPLETED, name="q", revision="r1", number=9))),
        Proposal(why=DriftReaction.PROPOSED, message="2 node(s) differ from revision r2: a plan is proposed", create=5),
    ),
    "after one that was superseded too": (
        view(plans=(plan(P.SUPERSEDED, number=1),)),
        Proposal(why=DriftReaction.PROPOSED, message="2 node(s) differ from revision r2: a plan is proposed", create=2),
    ),
    "one that is there is approved when limits come": (
        view(OnDrift.APPROVE, limits=True, plans=(plan(P.PROPOSED, number=1),)),
        Proposal(why=DriftReaction.APPROVED, message="plan p is approved by the stack", approve="p"),
    ),
}


@pytest.mark.parametrize(("seen", "expected"), AHEAD.values(), ids=AHEAD.keys())
def test_what_is_done(seen, expected):
    assert decide(seen) == expected


@pytest.mark.parametrize("seen", [one for one, _ in AHEAD.values()], ids=AHEAD.keys())
def test_nothing_is_done_nor_said_to_be_for_a_revision_that_the_status_does_not_name(seen):
    said = "revision r2 is not in the stack's status yet; no plan is created, approved or started until then"
    expected = Proposal(why=DriftReaction.REVISION_NOT_WRITTEN, message=said, done=False)
    assert decide(structs.replace(seen, written=False)) == expected
    approved = (plan(P.PROPOSED, number=1, approved=True),)
    assert decide(structs.replace(seen, written=False, plans=approved)) == expected


def test_a_plan_under_way_is_told_whatever_the_status_names():
    assert decide(view(written=False, plans=(plan(P.RUNNING),))).why is DriftReaction.PLAN_UNDER_WAY


NOTHING = {
    "drift is reported only": (view(OnDrift.REPORT), None),
    "nothing differs": (view(drifted=0, steady=0), DriftReaction.NO_DRIFT),
    "it has not stayed": (view(steady=0), DriftReaction.UNSTEADY),
    "a plan runs": (view(plans=(plan(P.RUNNING, revision="r1"),)), DriftReaction.PLAN_UNDER_WAY),
    "a plan is paused": (view(plans=(plan(P.PAUSED),)), DriftReaction.PLAN_UNDER_WAY),
    "a person's plan waits": (view(plans=(plan(P.PROPOSED),)), DriftReaction.ANOTHER_PLAN),
    "its own plan for another revision has not ended": (
        view(plans=(plan(P.PROPOSED, revision="r1", number=1),)),
        DriftReaction.ANOTHER_PLAN,
    ),
    "its own plan waits": (view(plans=(plan(P.PROPOSED, number=1),)), DriftReaction.PROPOSED),
    "its own plan was approved": (view(plans=(plan(P.PROPOSED, number=1, approved=True),)), DriftReaction.APPROVED),
    "its own plan has no limits": (view(OnDrift.APPROVE, plans=(plan(P.PROPOSED, number=1),)), DriftReaction.NO_LIMITS),
    "the revision was rolled back": (view(blocked=True), DriftReaction.BLOCKED_REVISION),
    "the last plan was aborted": (
        view(plans=(plan(P.ABORTED, ended_at="2"), plan(P.COMPLETED, ended_at="1"))),
        DriftReaction.PLAN_ENDED,
    ),
    "the last plan failed": (view(plans=(plan(P.FAILED, number=1),)), DriftReaction.PLAN_ENDED),
    "images are being made": (view(images=ImagesSeen(ready=1, building=("one",))), DriftReaction.WAITING_FOR_IMAGES),
    "there is no image": (view(images=ImagesSeen(missing=("none",))), DriftReaction.NO_DRIVER_IMAGE),
}


@pytest.mark.parametrize(("seen", "why"), NOTHING.values(), ids=NOTHING.keys())
def test_where_nothing_is_done_it_says_why(seen, why):
    found = decide(seen)
    assert (found.why if found is not None else None) == why
    assert found is None or (found.create, found.approve, bool(found.message)) == (0, "", True)


def build(phase, kernel=NEXT, **changes):
    facts = {"name": f"b-{kernel}", "vendor": "sim", "version": NEW, "kernel": kernel, "phase": phase, "made_at": START}
    return ImageBuild(**{**facts, **changes})


def seen(*builds, hours=1):
    nodes = [node("a", OLD), node("b", OLD, kernel=NEXT)]
    return images_seen(nodes, snapshot(nodes, builds=tuple(builds)), target(), START + timedelta(hours=hours))


def test_images_that_are_made_are_waited_for_and_not_for_ever():
    missing = f"There is no Ready DriverImage for sim {NEW} on kernel {NEXT}."
    for phase in (D.PENDING, D.BUILDING, D.VERIFYING, D.RETRYING):
        said = f"{missing} DriverImage b-{NEXT} is {phase}."
        assert seen(build(phase)) == ImagesSeen(ready=1, building=(said,))
        assert seen(build(phase), hours=3) == ImagesSeen(ready=1, missing=(said,))


def test_images_that_nobody_makes_are_named_with_what_there_is_instead():
    missing = f"There is no Ready DriverImage for sim {NEW} on kernel {NEXT}."
    assert seen() == ImagesSeen(ready=1, missing=(missing,))
    others = (build(D.READY, KERNEL), build(D.READY, version="580.1", recipe="sim-open"))
    said = (
        f"{missing} DriverImage b-{NEXT} is Unbuildable: compile: x. Alternatives: driver sim-open 580.1 for this "
        f"kernel; kernel {KERNEL}."
    )
    assert seen(build(D.UNBUILDABLE, message="compile: x."), *others) == ImagesSeen(ready=1, missing=(said,))
