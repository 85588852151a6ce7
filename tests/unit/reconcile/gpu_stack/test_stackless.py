"""Gangs that we stopped and pods that we asked, where no GpuStack is left whose step would look for them."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.torn import LONG, asked, silent, stopped, strip_plan, strip_request, strip_stack, suspended
from upgrader.api.resources import CHECKPOINT_REQUESTS, GPU_STACKS, JOBS, NODE_UPGRADES, ResourceKind
from upgrader.core.errors import ConfigurationError, UnreachableError
from upgrader.core.model.phases import is_final
from upgrader.reconcile.gpu_stack import stackless
from upgrader_dev.simulated.cluster.rig import STACK, Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


def delete_stack(rig: Rig) -> None:
    """Somebody's finalizer keeps it there: the look of its step is over all the same."""
    rig.cluster.store.change(GPU_STACKS, STACK, {"metadata": {"finalizers": ["example.com/kept"]}})
    rig.cluster.store.mark_deleted(GPU_STACKS, STACK)


def strip_all(rig: Rig) -> None:
    """All objects of the operator are deleted, upgrades too."""
    strip_request(rig)
    strip_plan(rig)
    for upgrade in rig.upgrades("up"):
        rig.cluster.store.remove(NODE_UPGRADES, upgrade.metadata.name)


def unsuspended(rig: Rig) -> Callable[[], bool]:
    return lambda: not suspended(rig)


@pytest.mark.parametrize("delete", [strip_stack, delete_stack])
@pytest.mark.parametrize("restarted", [False, True], ids=["led", "while nobody led"])
async def test_a_gang_is_restarted_that_nothing_is_left_of_but_the_record_of_its_stop(
    rig: Rig, delete: Callable[[Rig], None], *, restarted: bool
) -> None:
    await stopped(rig)
    strip_all(rig)
    delete(rig)
    if restarted:
        rig.restart()
    await rig.run_until(lambda: not suspended(rig), 180)
    reasons = [one.reason for one in rig.cluster.events if one.name == "gang"]
    assert reasons[-1] == "RestartedAfterUpgrade"


@pytest.mark.parametrize("delete", [strip_stack, delete_stack])
async def test_pods_are_asked_no_more_that_nothing_is_left_of_but_their_marks(
    rig: Rig, delete: Callable[[Rig], None]
) -> None:
    await silent(rig)
    strip_all(rig)
    delete(rig)
    rig.restart()
    await rig.run_until(lambda: not asked(rig), 120)
    assert suspended(rig) is False


async def test_a_gang_waits_for_upgrades_that_are_still_to_end(rig: Rig) -> None:
    await stopped(rig)
    strip_request(rig)
    strip_plan(rig)
    strip_stack(rig)
    going: list[tuple[bool, bool]] = []
    rig.others.append(
        lambda: going.append((suspended(rig), all(is_final(one.status.phase) for one in rig.upgrades("up"))))
    )
    await rig.run_until(unsuspended(rig), LONG, stride=5)
    assert set(going) <= {(True, False), (True, True), (False, True)}
    rig.assert_nothing_left()


async def test_a_gang_whose_request_is_under_way_is_left_to_it(rig: Rig) -> None:
    await stopped(rig)
    with capture_logs() as logs:
        strip_stack(rig)
        await rig.run_until(lambda: rig.is_over("up"), LONG, stride=5)
    assert not [one for one in logs if one["event"] == "restarted without its checkpoint request"]
    rig.assert_nothing_left()


async def test_while_there_is_a_stack_nothing_else_is_read(rig: Rig) -> None:
    await stopped(rig)
    strip_request(rig)
    listed, before = [], rig.cluster.list

    async def noted(kind, namespace="", **selectors):
        listed.append(kind.kind)
        return await before(kind, namespace, **selectors)

    rig.cluster.list = noted  # type: ignore[method-assign]
    pause = await stackless.StacklessPass().run_pass(rig.context)
    assert (pause, listed, suspended(rig)) == (stackless.PAUSE_SECONDS, ["GpuStack"], True)


async def test_the_first_look_restarts_nobody_and_one_without_a_find_pauses_longer(rig: Rig) -> None:
    await stopped(rig)
    strip_all(rig)
    strip_stack(rig)
    loop, context = stackless.StacklessPass(), rig.context
    with capture_logs() as logs:
        looks = [(await loop.run_pass(context), suspended(rig)) for _ in range(3)]
    assert looks == [(5.0, True), (stackless.PAUSE_SECONDS, False), (stackless.PAUSE_SECONDS, False)]
    said = [one["owners"] for one in logs if one["event"] == "owners stay stopped, and no GpuStack exists"]
    assert said == ["Job default/gang (plan up): it is read again in the next step"]


def answer_no_list(rig: Rig, unlisted: ResourceKind[Any]) -> None:
    before = rig.cluster.list

    async def failing(kind, namespace="", **selectors):
        if kind == unlisted:
            raise UnreachableError("no answer")
        return await before(kind, namespace, **selectors)

    rig.cluster.list = failing  # type: ignore[method-assign]


async def test_owners_that_cannot_be_looked_for_keep_no_pod_asked(rig: Rig) -> None:
    await silent(rig)
    strip_all(rig)
    strip_stack(rig)
    answer_no_list(rig, NODE_UPGRADES)
    pause = await stackless.StacklessPass().run_pass(rig.context)
    assert (pause, asked(rig)) == (15.0, [])


async def test_requests_that_cannot_be_listed_are_not_taken_for_gone(rig: Rig) -> None:
    await stopped(rig)
    strip_all(rig)
    strip_stack(rig)
    answer_no_list(rig, CHECKPOINT_REQUESTS)
    loop, context = stackless.StacklessPass(), rig.context
    assert [(await loop.run_pass(context), suspended(rig)) for _ in range(3)] == [(15.0, True)] * 3


async def test_an_owner_that_may_not_be_written_is_tried_again(rig: Rig) -> None:
    await stopped(rig)
    strip_all(rig)
    strip_stack(rig)

    def refuse(write) -> None:
        if write.kind == JOBS.kind:
            raise ConfigurationError("forbidden")

    rig.cluster.before_write = refuse
    loop, context = stackless.StacklessPass(), rig.context
    with capture_logs() as logs:
        looks = [(await loop.run_pass(context), suspended(rig)) for _ in range(4)]
    assert looks == [(5.0, True)] * 4
    said = [one["owners"] for one in logs if one["event"] == "owners stay stopped, and no GpuStack exists"]
    assert said == [f"Job default/gang (plan up): {why}" for why in ("it is read again in the next step", "forbidden")]
