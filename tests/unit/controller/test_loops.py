"""One task per object: it converges, survives errors, is woken, ends; a lost lease ends all."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
import structlog

from tests.support.waiting import eventually
from upgrader.controller.loops import Key, LoopPauses, Loops
from upgrader.core.errors import (
    ClusterError,
    ConflictError,
    LostLeadershipError,
    ThrottledError,
    UnreachableError,
)
from upgrader.telemetry import metrics

QUICK = LoopPauses(between=0.001, first_retry=0.001, longest_retry=0.004)


class Script:
    """A step that does what a test says, one thing after the other; at the end it waits to be woken."""

    def __init__(self, *what):
        self.what = list(what)
        self.steps = 0

    async def __call__(self, name):
        self.steps += 1
        now = self.what.pop(0) if self.what else 3600.0
        if isinstance(now, Exception):
            raise now
        return now


@asynccontextmanager
async def serving(steps, pace=QUICK):
    loops = Loops(steps, pace)
    task = asyncio.ensure_future(loops.serve())
    await asyncio.sleep(0)
    yield loops
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def seen(script, count):
    async def look():
        return script.steps

    await eventually(look, lambda steps: steps == count)
    await asyncio.sleep(0.02)
    assert script.steps == count


async def test_a_woken_object_takes_steps_until_it_has_nothing_to_do():
    script = Script(0.0, 0.001, None)
    async with serving({"Plan": script}) as loops:
        loops.wake("Plan", "a")
        await seen(script, 3)
        assert loops.overdue() is None
        loops.wake("Plan", "a")
        await seen(script, 4)


async def test_waking_shortens_a_rest_and_is_never_lost():
    script = Script()
    async with serving({"Plan": script}) as loops:
        loops.wake("Plan", "a")
        await seen(script, 1)
        loops.wake("Plan", "a")
        loops.wake("Plan", "a")
        await seen(script, 2)
        loops.wake_all("Plan")
        await seen(script, 3)


async def test_what_may_wait_ends_a_rest_when_its_time_is_up_and_what_may_not_at_once():
    script = Script()
    async with serving({"Plan": script}) as loops:
        loops.wake("Plan", "a")
        await seen(script, 1)
        loops.wake("Plan", "a", within=3600)
        await seen(script, 1)
        loops.wake("Plan", "a", within=0.001)
        await seen(script, 2)
        loops.wake("Plan", "a", within=3600)
        loops.wake_all("Plan")
        await seen(script, 3)


async def test_an_object_with_nothing_to_do_has_another_step_for_what_may_wait():
    gate, steps = asyncio.Event(), []

    async def step(name):
        steps.append(name)
        await gate.wait()

    async def look():
        return len(steps)

    async with serving({"Plan": step}) as loops:
        loops.wake("Plan", "a")
        await eventually(look, lambda count: count == 1)
        loops.wake("Plan", "a", within=0.01)
        gate.set()
        await eventually(look, lambda count: count == 2)


async def test_what_wakes_during_a_step_is_not_forgotten():
    gate = asyncio.Event()
    steps = []

    async def step(name):
        steps.append(name)
        if len(steps) == 1:
            await gate.wait()

    async with serving({"Plan": step}) as loops:
        loops.wake("Plan", "a")
        await asyncio.sleep(0.01)
        loops.wake("Plan", "a")
        gate.set()

        async def look():
            return len(steps)

        await eventually(look, lambda count: count == 2)


@pytest.mark.parametrize(
    "error",
    [
        ConflictError("changed"),
        ClusterError("refused"),
        UnreachableError("no answer"),
        ThrottledError("wait", retry_after=0.002),
        KeyError("a fault of the program"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_after_an_error_the_step_is_tried_again(error):
    script = Script(error, error, None)
    name = type(error).__name__
    before = metrics.RECONCILE_ERRORS.labels(kind="Plan", error=name)._value.get()
    with structlog.testing.capture_logs() as lines:
        async with serving({"Plan": script}) as loops:
            loops.wake("Plan", "a")
            await seen(script, 3)
    assert metrics.RECONCILE_ERRORS.labels(kind="Plan", error=name)._value.get() == before + 2
    assert len(lines) == 2
    assert ("exc_info" in lines[0]) == isinstance(error, KeyError)


async def test_one_objects_trouble_is_not_the_others():
    broken, well = Script(*[ClusterError("no")] * 50), Script(0.0, None)
    async with serving({"Plan": broken, "Stack": well}) as loops:
        with structlog.testing.capture_logs():
            loops.wake("Plan", "a")
            loops.wake("Stack", "b")
            await seen(well, 2)


async def test_after_errors_the_pause_grows_up_to_a_limit_and_nothing_shortens_it():
    script = Script(*[ClusterError("no")] * 3)
    async with serving({"Plan": script}, LoopPauses(between=0.001, first_retry=3600, longest_retry=3600)) as loops:
        with structlog.testing.capture_logs() as lines:
            loops.wake("Plan", "a")
            await seen(script, 1)
            loops.wake("Plan", "a")
            await seen(script, 1)
    assert [line["retry_seconds"] for line in lines] == [3600]


async def test_a_lost_lease_ends_everything():
    loops = Loops({"Plan": Script(LostLeadershipError("lost")), "Stack": Script()}, QUICK)
    task = asyncio.ensure_future(loops.serve())
    await asyncio.sleep(0)
    loops.wake("Stack", "b")
    loops.wake("Plan", "a")
    with pytest.raises(ExceptionGroup) as caught:
        await task
    assert caught.group_contains(LostLeadershipError)
    assert not loops.serving


async def test_a_step_that_hangs_is_seen():
    async def step(name):
        await asyncio.Event().wait()

    async with serving({"Plan": step}) as loops:
        loops.wake("Plan", "a")

        async def look():
            return loops.overdue()

        key, _ = await eventually(look, lambda late: late is not None and late[1] > 0.02)
        assert key == Key("Plan", "a")


async def test_a_rest_is_not_overdue():
    script = Script(3600.0)
    async with serving({"Plan": script}) as loops:
        loops.wake("Plan", "a")
        await seen(script, 1)
        assert loops.overdue()[1] < 0


def test_nothing_is_woken_while_we_do_not_lead():
    loops = Loops({"Plan": Script()}, QUICK)
    loops.wake("Plan", "a")
    assert loops.overdue() is None
