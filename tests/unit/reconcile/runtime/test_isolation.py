"""An error while one gang, node or list is looked at keeps nothing else from being driven, and is told."""

import asyncio
from collections.abc import Callable

import pytest

from tests.support.pools import pool
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.core.errors import LONGEST, LostLeadershipError
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader.reconcile.runtime import side_by_side
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_plan import plan_reconciler
from upgrader.telemetry import metrics
from upgrader_dev.simulated.cluster.ports import ProcessKilled
from upgrader_dev.simulated.cluster.rig import Rig

WRONG = "what nobody thought of"


@pytest.fixture
async def rig() -> Rig:
    """Two nodes with a gang each, aa and bb, and a plan whose batch takes both: aa does not answer, bb is stopped."""
    rig = Rig()
    rig.tolerant = True
    await pool(rig, nodes=2, images=("1.0", "2.0"))
    for name in ("aa", "bb"):
        rig.fleet.add_job(name, members=1)
    await rig.run_until(lambda: min((one.step for one in rig.fleet.trainers.values()), default=0) > 5)
    rig.fleet.trainers["aa"].answers = lambda *_: None
    rig.apply_plan(
        "up",
        rig.apply_stack(rig.make_spec("2.0", plugin="2")),
        checkpoint={"timeoutSeconds": 30, "retrySeconds": 86400},
    )
    await rig.run_until(lambda: phase(rig, "bb") is RequestPhase.STOPPED)
    return rig


def phase(rig: Rig, job: str) -> RequestPhase | None:
    return next((one.status.phase for one in rig.requests() if one.spec.owner.name == job), None)


def told(rig: Rig) -> tuple[str, str]:
    """Status and message of the plan's condition StepFailed."""
    return next(((one.status, one.message) for one in rig.plan_now("up").status.conditions), ("", ""))


def fails(rig: Rig, port: str, where: Callable[..., bool]) -> Callable[[], None]:
    """Calls of a port for which `where` holds raise what no port should; gives what puts that right."""
    works = getattr(rig.cluster, port)

    async def wrong(kind, *names, **fields):
        if where(kind, *names, **fields):
            raise RuntimeError(WRONG)
        return await works(kind, *names, **fields)

    setattr(rig.cluster, port, wrong)
    return lambda: setattr(rig.cluster, port, works)


def owner_of_aa(rig: Rig) -> Callable[[], None]:
    return fails(rig, "get", lambda kind, name="", *_: (kind.kind, name) == ("Job", "aa"))


def node_of_aa(rig: Rig) -> Callable[[], None]:
    node = next(one.spec.members[0].node for one in rig.requests() if one.spec.owner.name == "aa")
    return fails(rig, "list", lambda _, *names, **fields: fields.get("fields") == f"spec.nodeName={node}")


def the_world(rig: Rig) -> Callable[[], None]:
    return fails(rig, "list", lambda kind, *names, **fields: kind.kind == "PodDisruptionBudget" and not names)


@pytest.mark.parametrize("what", [owner_of_aa, node_of_aa, the_world])
async def test_what_is_stopped_is_restarted_whatever_else_fails(rig: Rig, what: Callable[[Rig], Callable]) -> None:
    put_right = what(rig)
    await rig.run_until(lambda: phase(rig, "bb") is RequestPhase.RESTORED)
    assert rig.fleet.trainers["bb"].lost == 0
    if what is not the_world:  # it is read only while something needs it
        assert told(rig)[0] == "True"
        assert WRONG in told(rig)[1]
        assert metrics.STEP_FAULTS.labels(kind="UpgradePlan", object="up")._value.get() == 1
    put_right()
    await rig.run_until(lambda: rig.plan_now("up").status.batches[0].ended_at is not None, 6000, stride=20)
    assert told(rig)[0] in {"False", ""}
    assert phase(rig, "aa") is RequestPhase.WITHDRAWN
    rig.assert_nothing_left()


@pytest.mark.parametrize("what", [owner_of_aa, the_world])
async def test_an_abort_restarts_what_is_stopped_whatever_else_fails(rig: Rig, what: Callable[[Rig], Callable]) -> None:
    put_right = what(rig)
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: phase(rig, "bb") is RequestPhase.RESTORED)
    await rig.run_until(
        lambda: {one.status.phase for one in rig.upgrades("up")} <= {NodePhase.FAILED, NodePhase.SUCCEEDED}
    )
    put_right()
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.ABORTED
    rig.assert_nothing_left()


async def test_an_abort_between_two_batches_needs_no_look_at_the_world(rig: Rig) -> None:
    await rig.run_until(lambda: rig.plan_now("up").status.batches[0].ended_at is not None, 6000, stride=20)
    the_world(rig)
    for _ in range(3):
        await rig.run_second()
    plan = rig.plan_now("up")
    assert (plan.status.reason, told(rig)[0]) == ("NoForecast", "True")
    assert WRONG in plan.status.message
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: rig.is_over("up"))
    rig.assert_nothing_left()


async def test_a_gang_whose_answers_cannot_be_read_is_released_at_its_deadline(rig: Rig) -> None:
    read = rig.cluster.read_file

    async def wrong(pod, container, path):
        if pod.metadata.labels.get("job") == "aa":
            raise RecursionError(WRONG)
        return await read(pod, container, path)

    rig.cluster.read_file = wrong
    await rig.run_until(
        lambda: WRONG in next(one.status.message for one in rig.requests() if one.spec.owner.name == "aa")
    )
    await rig.run_until(lambda: phase(rig, "aa") is RequestPhase.WITHDRAWN, 6000, stride=20)
    await rig.run_until(lambda: phase(rig, "bb") is RequestPhase.RESTORED)
    assert rig.fleet.trainers["aa"].stops == 0


async def test_what_is_stopped_goes_on_before_anything_that_others_write_is_read(rig: Rig) -> None:
    """In the order of one step: the stopped gang's own request, then lists of the whole cluster."""
    list_, merge = rig.cluster.list, rig.cluster.merge
    steps: list[str] = []

    async def listed(kind, *names, **fields):
        steps.append(f"list {kind.kind}")
        return await list_(kind, *names, **fields)

    async def merged(kind, meta, patch, subresource=""):
        steps.append(f"merge {kind.kind} {meta.name}")
        return await merge(kind, meta, patch, subresource)

    rig.cluster.list, rig.cluster.merge = listed, merged
    while "merge Job bb" not in steps:
        steps.clear()
        await plan_reconciler.reconcile_plan(rig.context, "up")
        rig.fleet.tick()
    assert "list PodDisruptionBudget" in steps, "the other upgrade group needs a look at the cluster in this step"
    assert steps.index("merge Job bb") < steps.index("list PodDisruptionBudget")


async def test_a_gang_whose_answers_take_long_to_read_costs_the_other_no_upgrade(rig: Rig) -> None:
    """Every look at the members of aa takes longer than closing a node may: neither its upgrade nor the plan fails."""
    read = rig.cluster.read_file

    async def slow(pod, container, path):
        if pod.metadata.labels.get("job") == "aa":
            rig.cluster.clock.advance(70)
            return None
        return await read(pod, container, path)

    rig.cluster.read_file = slow
    await rig.run_until(lambda: phase(rig, "bb") is RequestPhase.RESTORED)
    assert {one.status.reason for one in rig.upgrades("up")} <= {"", "NotAcknowledged"}
    assert rig.plan_now("up").status.phase is PlanPhase.RUNNING


async def test_groups_have_their_steps_beside_each_other_as_many_as_the_limit() -> None:
    free, begun = asyncio.Event(), []

    async def act(number: int) -> None:
        begun.append(number)
        if number == 0:
            await free.wait()  # until the last of the others has been begun
        elif number == 9:
            free.set()

    await side_by_side.for_each(range(10), act, 2)
    assert begun == list(range(10))


async def test_nothing_is_begun_after_the_process_was_killed() -> None:
    begun = []

    async def act(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise ProcessKilled

    with pytest.raises(ProcessKilled):
        await side_by_side.for_each(range(10), act, 4)
    assert begun == [0, 1]


def test_faults_are_short_and_name_what_they_are_about() -> None:
    faults = Faults(kind="UpgradePlan")
    with faults.contained("gang a"):
        raise ValueError("x" * 10_000)
    assert list(faults.errors) == ["gang a"]
    assert len(faults.errors["gang a"]) == LONGEST
    (one,) = faults.conditions([])
    assert (one.type, one.status) == ("StepFailed", "True")
    assert list(Faults(kind="UpgradePlan").conditions([])) == []


@pytest.mark.parametrize("error", [LostLeadershipError("lost"), ProcessKilled(), KeyboardInterrupt()])
def test_what_ends_the_process_passes(error: BaseException) -> None:
    with pytest.raises(type(error)), Faults(kind="UpgradePlan").contained("gang a"):
        raise error
