"""The next step of a plan, case by case; tests/property/test_plans.py has what must hold for all."""

from datetime import timedelta

import msgspec
import pytest

from upgrader.core.model.phases import DesiredState, NodePhase, OnFailure, PlanPhase, RequestPhase
from upgrader.core.upgrade_plan.plan_machine import decide
from upgrader.core.upgrade_plan.plan_state import (
    Canaries,
    NextBatch,
    PlanLosses,
    PlanView,
    RequestSummary,
    Trouble,
    UpgradeFacts,
)
from upgrader_dev.simulated.cluster.ports import START

RAISE = "(raise it with `upgrader approve`)"
LATER = START + timedelta(hours=1)
PLAN = PlanView(
    name="up",
    now=START,
    phase=PlanPhase.RUNNING,
    state=DesiredState.RUNNING,
    deleted=False,
    approved=True,
    target_revision="new",
    stack_present=True,
    stack_revision="new",
    started_stack_revision="new",
    first=None,
    tolerated_failures=0,
    max_interruptions=1,
    batches=1,
    open_batch=None,
    created=True,
)
GOOD = UpgradeFacts(name="v", node="a", batch=1, phase=NodePhase.SUCCEEDED)
BAD = UpgradeFacts(name="v", node="a", batch=1, phase=NodePhase.FAILED, failure="NotValid", message="no device")
CANARY = Canaries(enabled=True, batches=frozenset({1}), soak_seconds=600)
NEXT = NextBatch()


def after(**facts):
    decision = decide(msgspec.structs.replace(PLAN, **facts))
    return decision.phase.value, decision.reason, decision.message


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"next_batch": NEXT}, ("Running", "BatchStarted", "starting batch 2")),
        (
            {"next_batch": NextBatch(starts_at=LATER, waits_for="the window opens")},
            ("Running", "Waiting", "batch 2 starts at 2026-11-21T10:00:00Z: the window opens"),
        ),
        ({"next_batch": NextBatch(starts_at=START)}, ("Running", "BatchStarted", "starting batch 2")),
        (
            {"canaries": msgspec.structs.replace(CANARY, soak_until=LATER), "next_batch": NEXT},
            ("Running", "Soaking", "canaries are upgraded and watched until 2026-11-21T10:00:00Z"),
        ),
        (
            {"next_batch": NextBatch(interruptions=2)},
            (
                "Paused",
                "LimitsExceeded",
                "the next batch would stop 2 gang(s), 0 were stopped before, and the approval allows 1 " + RAISE,
            ),
        ),
        (
            {"next_batch": NEXT, "losses": PlanLosses(actual=3.0, expected=2.5, approved=5.0)},
            (
                "Paused",
                "LimitsExceeded",
                "3.0 GPU-hours were lost, the rest is expected to lose 2.5, and the approval allows 5.0 " + RAISE,
            ),
        ),
        (
            {"next_batch": NEXT, "deadline": START},
            (
                "Failed",
                "DeadlinePassed",
                "the deadline passed at 2026-11-21T09:00:00Z; the remaining nodes are not upgraded",
            ),
        ),
        ({"deadline": START}, ("Completed", "Done", "every node is on the target revision")),
        (
            {"waiting": 1, "waiting_for_completion": 2},
            (
                "Running",
                "Blocked",
                "1 node(s) are blocked, see status.blockers; 2 node(s) are upgraded when their jobs have ended",
            ),
        ),
        ({"problem": "no such zone", "synced": False}, ("Running", "NoForecast", "no such zone")),
        (
            {"state": DesiredState.PAUSED, "next_batch": NEXT},
            ("Paused", "PausedByPerson", "paused by a user (upgrader resume)"),
        ),
    ],
)
def test_what_comes_next(facts, said):
    assert after(**facts) == said


def test_canaries_that_ended_well_are_watched_from_then_on():
    decision = decide(msgspec.structs.replace(PLAN, open_batch=1, canaries=CANARY, upgrades=(GOOD,)))
    assert (decision.end_batch, decision.soak_until) == (True, START + timedelta(seconds=600))


def test_each_batch_of_canaries_is_watched_as_long():
    first = msgspec.structs.replace(CANARY, soak_until=START + timedelta(minutes=1), batches=frozenset({1, 2}))
    second = msgspec.structs.replace(GOOD, name="w", node="b", batch=2)
    decision = decide(msgspec.structs.replace(PLAN, open_batch=2, canaries=first, upgrades=(GOOD, second)))
    assert (decision.end_batch, decision.soak_until) == (True, START + timedelta(seconds=600))


def test_while_one_class_is_watched_the_canary_of_another_may_go():
    soaking = msgspec.structs.replace(CANARY, soak_until=LATER)
    assert after(canaries=soaking, upgrades=(GOOD,), next_batch=NextBatch(canary=True))[1] == "BatchStarted"
    assert after(canaries=soaking, upgrades=(GOOD,), next_batch=NEXT)[1] == "Soaking"


def test_canaries_that_were_released_have_proved_nothing_and_are_not_watched():
    released = msgspec.structs.replace(BAD, failure="NewGpuPod")
    decision = decide(msgspec.structs.replace(PLAN, open_batch=1, canaries=CANARY, upgrades=(released,)))
    assert (decision.end_batch, decision.soak_until) == (True, None)


def test_a_canary_that_failed_is_not_watched_but_pauses_the_plan_whatever_is_tolerated():
    failed = msgspec.structs.replace(PLAN, canaries=CANARY, upgrades=(BAD,), tolerated_failures=9, next_batch=NEXT)
    assert decide(msgspec.structs.replace(failed, open_batch=1)).soak_until is None
    said = "paused: a canary failed: a: no device (upgrader resume continues, upgrader rollback rolls back)"
    assert after(canaries=CANARY, upgrades=(BAD,), tolerated_failures=9, next_batch=NEXT) == (
        "Paused",
        "CanaryFailed",
        said,
    )
    gang = RequestSummary(name="t", gang="g", batch=1, phase=RequestPhase.ENDED, reason="NotRestored", message="lost")
    assert after(canaries=CANARY, requests=(gang,), tolerated_failures=9, next_batch=NEXT)[1] == "CanaryFailed"


def test_a_canary_that_goes_bad_in_the_soak_fails_it_and_stays_failed_until_a_person_goes_on():
    unwell = (Trouble(subject="a", reason="CanaryUnwell", message="is no longer Ready"),)
    soaking = msgspec.structs.replace(CANARY, soak_until=LATER, unwell=unwell)
    assert after(canaries=soaking, upgrades=(GOOD,), next_batch=NEXT)[:2] == ("Paused", "CanaryFailed")
    well = msgspec.structs.replace(soaking, unwell=())
    paused = {"phase": PlanPhase.PAUSED, "reason": "CanaryFailed", "canaries": well, "upgrades": (GOOD,)}
    assert after(**paused, next_batch=NEXT)[:2] == ("Paused", "CanaryFailed")
    accepted = msgspec.structs.replace(soaking, enabled=False)
    assert after(**paused | {"canaries": accepted}, next_batch=NEXT)[1] == "BatchStarted"


def test_after_its_soak_a_canary_is_a_node_like_any_other():
    unwell = (Trouble(subject="a", reason="CanaryUnwell", message="is no longer Ready"),)
    soaked = msgspec.structs.replace(CANARY, soak_until=START, unwell=unwell)
    assert after(canaries=soaked, upgrades=(GOOD,), next_batch=NEXT)[1] == "BatchStarted"


@pytest.mark.parametrize("facts", [{"upgrades": (BAD,)}, {"upgrades": (BAD,), "deadline": START, "next_batch": NEXT}])
def test_a_plan_may_go_back_by_itself(facts):
    assert after(on_failure=OnFailure.ROLLBACK, **facts) == (
        "Aborting",
        "RolledBack",
        "a: no device; rolling back to the previous revision",
    )
    aborting = {"phase": PlanPhase.ABORTING, "reason": "RolledBack", "on_failure": OnFailure.ROLLBACK, **facts}
    assert after(**aborting) == (
        "Aborted",
        "RolledBack",
        (
            "aborted; no gang is stopped, no node is claimed; a rollback plan leads upgraded nodes back to their "
            "former revision"
        ),
    )


def test_a_person_who_paused_is_not_overruled_by_a_failure():
    assert after(on_failure=OnFailure.ROLLBACK, upgrades=(BAD,), state=DesiredState.PAUSED)[1] == "PausedByPerson"


def test_at_the_deadline_what_is_under_way_ends_first():
    running = msgspec.structs.replace(GOOD, phase=NodePhase.UPGRADING)
    assert after(deadline=START, open_batch=1, upgrades=(running,), next_batch=NEXT)[1] == "BatchUnderWay"
    assert after(deadline=START, open_batch=1, upgrades=(GOOD,), next_batch=NEXT)[1] == "BatchEnded"
