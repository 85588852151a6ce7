"""Gangs that we stopped, after somebody removed by force what would have restarted them."""

from collections.abc import Callable

import pytest

from tests.support.torn import LONG, asked, silent, stopped, strip_plan, strip_request, suspended
from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, JOBS, PODS, UPGRADE_PLANS
from upgrader.core.errors import ConfigurationError, UnreachableError
from upgrader.core.model.phases import PlanPhase, is_final
from upgrader_dev.simulated.cluster.rig import STACK, Rig, start_training


@pytest.fixture
def rig() -> Rig:
    return Rig()


def condition(rig: Rig) -> tuple[str, str] | None:
    found = (one for one in rig.stack_now().status.conditions if one.type == "StoppedOwners")
    return next(((one.status, one.reason) for one in found), None)


def drivers(rig: Rig) -> set[str]:
    """Drivers that members of gangs run on."""
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in rig.nodes()}
    pods = [one for one in rig.cluster.store.copy_all(PODS, "default") if one["spec"].get("nodeName")]
    return {labels[one["spec"]["nodeName"]].get(names.LABEL_DRIVER, "") for one in pods}


async def test_a_gang_whose_request_was_removed_is_restarted_on_upgraded_nodes(rig: Rig) -> None:
    revision = await stopped(rig)
    strip_request(rig)
    shown = set()
    rig.others.append(lambda: shown.add((suspended(rig), condition(rig), rig.plan_now("up").status.phase)))
    await rig.run_until(lambda: rig.is_over("up"), LONG, stride=5)
    assert (suspended(rig), condition(rig)) == (False, ("False", "NoneStopped"))
    assert (rig.plan_now("up").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2)
    assert (True, ("True", "RequestGone"), PlanPhase.RUNNING) in shown
    assert not [one for one in shown if one[0] and one[2] is PlanPhase.COMPLETED]
    assert [one.reason for one in rig.cluster.events if one.name == "gang"][-1] == "RestartedAfterUpgrade"
    step = rig.fleet.trainers["gang"].step
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > step + 5)
    assert len(drivers(rig)) == 1
    rig.assert_nothing_left()


@pytest.mark.parametrize("torn", ["request", "everything"])
async def test_members_that_were_asked_by_a_request_that_was_removed_are_asked_no_more(rig: Rig, torn: str) -> None:
    await silent(rig)
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Paused"}})
    strip_request(rig)
    if torn == "everything":
        strip_plan(rig)
    await rig.run_until(lambda: not asked(rig), 60)
    assert suspended(rig) is False


def spoil_rules(rig: Rig) -> None:
    """A rule about who belongs together that cannot be used."""
    rig.cluster.store.change(GPU_STACKS, STACK, {"spec": {"gangs": [{"regex": "("}]}})


def lose_registry(rig: Rig) -> None:
    """The digest of an image that was never read cannot be had."""
    rig.cluster.store.change(GPU_STACKS, STACK, {"spec": {"devicePlugin": {"image": "registry/plugin:9"}}})
    rig.registry.reachable = False


NO_REVISION = pytest.mark.parametrize("spoil", [spoil_rules, lose_registry])


@NO_REVISION
async def test_a_stack_of_which_no_revision_can_be_made_keeps_no_gang_stopped(
    rig: Rig, spoil: Callable[[Rig], None]
) -> None:
    await stopped(rig)
    strip_request(rig)
    strip_plan(rig)
    spoil(rig)
    await rig.run_until(lambda: not suspended(rig) and condition(rig) == ("False", "NoneStopped"), LONG, stride=5)
    assert [one.status for one in rig.stack_now().status.conditions if one.type == "Valid"] == ["False"]
    rig.assert_nothing_left()


@NO_REVISION
async def test_a_stack_of_which_no_revision_can_be_made_keeps_no_pod_asked(
    rig: Rig, spoil: Callable[[Rig], None]
) -> None:
    await silent(rig)
    strip_request(rig)
    strip_plan(rig)
    spoil(rig)
    await rig.run_until(lambda: not asked(rig), 120)


async def test_members_that_a_request_asks_stay_asked(rig: Rig) -> None:
    await silent(rig)
    for _ in range(60):
        await rig.run_second()
        assert len(asked(rig)) == 2


async def test_what_a_plan_that_was_torn_away_has_begun_is_taken_back(rig: Rig) -> None:
    await stopped(rig)
    strip_plan(rig)
    await rig.run_until(lambda: not rig.upgrades("up") and not rig.requests(), LONG, stride=5)
    assert suspended(rig) is False
    step = rig.fleet.trainers["gang"].step
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > step + 5)
    assert len(drivers(rig)) == 1
    rig.assert_nothing_left()


async def test_upgrades_and_request_of_a_plan_that_was_restored_without_its_status_are_taken_back(rig: Rig) -> None:
    await stopped(rig)
    body = rig.cluster.store.find(UPGRADE_PLANS, "up")
    rig.cluster.store.remove(UPGRADE_PLANS, "up")
    rig.cluster.store.put(UPGRADE_PLANS, {"metadata": {"name": "up"}, "spec": body["spec"]})
    await rig.run_until(lambda: rig.is_over("up") and not suspended(rig), LONG, stride=5)
    assert all(is_final(one.status.phase) for one in (*rig.upgrades("up"), *rig.requests()))
    rig.assert_nothing_left()


async def test_everything_of_a_plan_removed_at_once_leaves_no_gang_stopped(rig: Rig) -> None:
    await stopped(rig)
    strip_request(rig)
    strip_plan(rig)
    await rig.run_until(lambda: not suspended(rig) and not rig.upgrades("up"), LONG, stride=5)
    rig.assert_nothing_left()


@pytest.mark.parametrize("state", ["Aborted", "RolledBack"])
async def test_an_abort_ends_and_leaves_no_gang_stopped(rig: Rig, state: str) -> None:
    await stopped(rig)
    strip_request(rig)
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": state}})
    await rig.run_until(lambda: rig.is_over("up"), LONG, stride=5)
    assert (rig.plan_now("up").status.phase, suspended(rig)) == (PlanPhase.ABORTED, False)
    rig.assert_nothing_left()


async def test_a_request_that_cannot_be_listed_is_not_taken_for_gone(rig: Rig) -> None:
    await stopped(rig)
    before = rig.cluster.list

    async def failing(kind, namespace="", **selectors):
        if kind == CHECKPOINT_REQUESTS and not selectors.get("labels"):
            raise UnreachableError("no answer")
        return await before(kind, namespace, **selectors)

    rig.cluster.list = failing  # type: ignore[method-assign]
    for _ in range(60):
        try:
            await rig.run_second()
        except UnreachableError:
            rig.cluster.clock.advance(1)
    assert suspended(rig) is True


async def test_a_request_under_way_is_left_to_its_plan(rig: Rig) -> None:
    await stopped(rig)
    said = []
    rig.others.append(lambda: said.append(condition(rig)))
    await rig.run_until(lambda: rig.is_over("up"), LONG, stride=5)
    assert set(said) == {None}


async def test_a_record_that_a_tenant_forged_keeps_no_plan_from_ending(rig: Rig) -> None:
    revision = await start_training(rig)
    record = '{"plan": "up", "request": "none-such", "previous": false}'
    rig.cluster.store.put(
        JOBS,
        {
            "metadata": {"name": "forged", "namespace": "mallory", "annotations": {names.ANNOTATION_STOPPED: record}},
            "spec": {"suspend": True, "template": {"spec": {"containers": []}}},
        },
    )
    rig.apply_plan("up", revision)
    rig.cluster.before_write = refusing("mallory")
    await rig.run_until(lambda: rig.is_over("up"), LONG, stride=10)
    status = rig.plan_now("up").status
    assert (status.phase, [(one.subject, one.reason) for one in status.failures]) == (
        PlanPhase.FAILED,
        [("Job mallory/forged", "StillStopped")],
    )
    assert condition(rig) == ("True", "RequestGone")


def refusing(namespace: str) -> Callable[..., None]:
    """Rights that were never given, or were taken away."""

    def refuse(write) -> None:
        if write.namespace == namespace and write.kind == "Job":
            raise ConfigurationError("forbidden")

    return refuse
