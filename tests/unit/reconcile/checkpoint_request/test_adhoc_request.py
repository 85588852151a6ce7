"""`upgrader checkpoint`: a job is asked without a plan, and is released whatever happens."""

import asyncio

import msgspec
import pytest

from upgrader.api import names
from upgrader.api.resources import PODS
from upgrader.core.errors import BlockedError, UnreachableError
from upgrader.core.model.fleet import Gang
from upgrader.core.model.phases import RequestPhase
from upgrader.reconcile.checkpoint_request import adhoc_request
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.observe.cluster_snapshot import target_of
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import RESOURCE, Rig, start_training


@pytest.fixture
async def rig() -> Rig:
    made = Rig()
    await start_training(made)
    return made


async def gang(rig: Rig) -> Gang:
    stack = rig.stack_now()
    target = target_of(stack.spec, stack.metadata.name)
    snapshot = await cluster_snapshot.read_snapshot(rig.context, stack, target)
    assert snapshot is not None
    return next(one for one in snapshot.gangs if one.name == "default/Job/gang")


async def ask(rig: Rig, *, patience: int = 60, show=lambda _: None, sleep=None):
    async def second(_: float) -> None:
        await rig.run_second()

    return await adhoc_request.request_checkpoint(
        rig.context, await gang(rig), RESOURCE, timeout_seconds=patience, show=show, sleep=sleep or second
    )


def marks(rig: Rig) -> set[str]:
    found = (pod["metadata"].get("annotations", {}) for pod in rig.cluster.store.copy_all(PODS))
    return {one[names.ANNOTATION_REQUEST] for one in found if names.ANNOTATION_REQUEST in one}


async def trains_on(rig: Rig) -> None:
    step = rig.fleet.trainers["gang"].step
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > step + 1, 10)


async def test_a_job_parks_shows_its_step_and_goes_on(rig: Rig) -> None:
    seen = []
    request = await ask(rig, show=lambda one: seen.append(one.status.phase))
    assert request.status.phase is RequestPhase.PARKED
    assert seen[-1] is RequestPhase.PARKED
    step = request.status.acknowledged_step
    assert step == rig.fleet.trainers["gang"].saved
    assert {(one.step, one.uri, one.parked) for one in adhoc_request.answer_lines(request)} == {
        (step, "/data/ckpt", True)
    }
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.WITHDRAWN]
    assert marks(rig) == set()
    await trains_on(rig)
    assert rig.fleet.trainers["gang"].stops == 0


async def test_a_refusal_is_shown_and_nothing_is_left(rig: Rig) -> None:
    rig.fleet.trainers["gang"].answers = lambda pod, request, _: {
        "requestId": request,
        "podUid": pod["metadata"]["uid"],
        "step": 0,
        "refused": "evaluating",
    }
    request = await ask(rig)
    assert (request.status.phase, request.status.reason) == (RequestPhase.WITHDRAWN, "Refused")
    assert request.status.message.endswith("refuses: evaluating")
    assert marks(rig) == set()


async def test_a_job_that_says_nothing_is_released_after_its_time(rig: Rig) -> None:
    rig.fleet.trainers["gang"].answers = lambda *_: None
    begun = rig.cluster.clock.now()
    request = await ask(rig, patience=20)
    assert (request.status.phase, request.status.reason) == (RequestPhase.WITHDRAWN, "WaitingForAnswers")
    assert 20 <= (rig.cluster.clock.now() - begun).total_seconds() < 25
    assert marks(rig) == set()


async def test_an_interruption_withdraws_the_request(rig: Rig) -> None:
    rig.fleet.trainers["gang"].answers = lambda *_: None
    asked = asyncio.Event()

    async def second(_: float) -> None:
        await rig.run_second()
        if marks(rig):
            asked.set()
        await asyncio.sleep(0)

    task = asyncio.create_task(ask(rig, patience=3600, sleep=second))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.WITHDRAWN]
    assert marks(rig) == set()
    await trains_on(rig)


async def test_what_a_killed_program_left_ends_by_itself_and_is_taken_back_by_the_next(rig: Rig) -> None:
    async def cut_off(_: float) -> None:
        await rig.run_second()
        if marks(rig):
            rig.cluster.reachable = False

    with pytest.raises(UnreachableError):
        await ask(rig, sleep=cut_off)
    rig.cluster.reachable = True
    left = marks(rig)
    assert len(left) == 1
    with pytest.raises(BlockedError, match="already has a checkpoint request"):
        await ask(rig)
    await rig.run_until(lambda: _past(rig), 400, stride=10)
    await trains_on(rig)  # with our marks still there: its park-seconds are over
    request = await ask(rig)
    assert request.status.phase is RequestPhase.PARKED
    assert [one.status.phase for one in rig.requests()] == [RequestPhase.WITHDRAWN] * 2
    assert marks(rig) == set()


def _past(rig: Rig) -> bool:
    request = rig.requests()[0]
    age = rig.cluster.clock.now().timestamp() - request.spec.request_id
    return age > request.spec.park_seconds + 5


async def test_a_job_in_request_with_a_plan_is_not_disturbed(rig: Rig) -> None:
    await rig.run_second()  # the stack's new revision is kept
    rig.apply_plan("up", rig.stack_now().status.update_revision or "")
    await rig.run_until(lambda: bool(marks(rig)))
    with pytest.raises(BlockedError, match="plan up has an open checkpoint request for"):
        await ask(rig)


UNASKABLE: dict[str, tuple[Object, str]] = {
    "undeclared": ({"method": ""}, "It declares no checkpoint method."),
    "unusable": (
        {"method": "", "undeclared_because": "Its checkpoint-method 'ftp' is not one of us."},
        "'ftp' is not one",
    ),
    "cannot": ({"method": "none"}, "It declares that it cannot checkpoint."),
    "nobody's": ({"owner": None}, "Its pods have no controller that would create them again."),
    "in part": ({"wanted": 3}, "2 of 3 members run; only complete gangs get a request."),
}


@pytest.mark.parametrize(("changes", "why"), UNASKABLE.values(), ids=UNASKABLE)
async def test_who_cannot_be_asked_is_told_why(rig: Rig, changes: Object, why: str) -> None:
    with pytest.raises(BlockedError) as told:
        adhoc_request.check_askable(msgspec.structs.replace(await gang(rig), **changes))
    assert why in str(told.value)
