"""Reconciliation loops, one task per object: a step, then a sleep of the returned length, or until it is woken.

Why no kopf daemons: each would add a finalizer of kopf to its object, an unneeded write that blocks the object's
deletion while no controller runs. The operator's own finalizer (reconcile/runtime/finalizers.py) is only on objects
that need cleanup.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import structlog

from upgrader.core.errors import ConflictError, LostLeadershipError, ThrottledError, UpgraderError
from upgrader.telemetry import metrics

Step = Callable[[str], Awaitable[float | None]]
"""One step of the object of that name: seconds until the next, None when nothing is left to do."""

log = structlog.get_logger()


class Key(NamedTuple):
    """An object of one of the operator's kinds (all kinds with a loop are cluster-scoped)."""

    kind: str
    name: str


class LoopPauses(NamedTuple):
    """Pauses, in seconds."""

    between: float = 0.1  # minimum between two steps of an object, however often it is woken
    first_retry: float = 0.5
    longest_retry: float = 30.0


class Loop:
    """The state of one object's task."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.requested_at: float | None = None  # latest begin of the next step after a wake-up
        self.due = time.monotonic()  # begin of the next step; during a step, begin of that step
        self.failures = 0

    def begin(self) -> None:
        """Begin a step: a wake-up from now on requests another step."""
        self.requested_at = None


class Loops:
    """The tasks of all objects. `steps`: the step of each kind; `serve()` must run while `wake` is called."""

    def __init__(self, steps: Mapping[str, Step], pace: LoopPauses | None = None) -> None:
        self._steps = steps
        self._pace = pace or LoopPauses()
        self._loops: dict[Key, Loop] = {}
        self._group: asyncio.TaskGroup | None = None

    async def serve(self) -> None:
        """Run all loops until cancelled.

        Raises:
            ExceptionGroup: with the LostLeadershipError of a step; after any other error the step is retried.
        """
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None

    def wake(self, kind: str, name: str, within: float = 0.0) -> None:
        """Begin the object's next step after the present one; start its loop if it has none.

        `within`: seconds that the step may be delayed, to coalesce wake-ups.
        """
        key = Key(kind, name)
        loop = self._loops.get(key)
        if loop is None:
            if self._group is None:
                return  # before the begin or at the end: the next leader lists every object again
            loop = self._loops[key] = Loop()
            self._group.create_task(self._run(key, loop), name=f"{kind}/{name}")
        latest = time.monotonic() + within
        loop.requested_at = latest if loop.requested_at is None else min(loop.requested_at, latest)
        loop.woken.set()

    def wake_all(self, kind: str, within: float = 0.0) -> None:
        """Wake every loop of a kind."""
        for key in list(self._loops):
            if key.kind == kind:
                self.wake(*key, within)

    @property
    def serving(self) -> bool:
        """Whether loops run, that is, while this process leads."""
        return self._group is not None

    def overdue(self) -> tuple[Key, float] | None:
        """The object whose step is overdue longest, with the seconds since it was due; None if there is none.

        Failed steps count as made: a restart of this process would not help.
        """
        now = time.monotonic()
        late = ((key, now - loop.due) for key, loop in self._loops.items())
        return max(late, key=lambda entry: entry[1], default=None)

    async def _run(self, key: Key, loop: Loop) -> None:
        structlog.contextvars.bind_contextvars(kind=key.kind, object=key.name)
        while True:
            loop.begin()
            delay = await self._step(key, loop)
            if delay is None and loop.requested_at is None:
                # No await since the check: a later event starts another loop.
                del self._loops[key]
                return
            now = time.monotonic()
            until = now + delay if delay is not None else loop.requested_at or now
            loop.due = max(now + self._pace.between, until)
            await asyncio.sleep(self._pace.between)
            await self._sleep_until(loop, until)
            loop.due = min(loop.due, time.monotonic())

    async def _step(self, key: Key, loop: Loop) -> float | None:
        try:
            delay = await self._steps[key.kind](key.name)
        except LostLeadershipError:
            raise
        except Exception as error:  # noqa: BLE001 - an error of one object must not end the loops of others
            return self._record_failure(key, loop, error)
        loop.failures = 0
        metrics.LAST_RECONCILE.labels(kind=key.kind).set_to_current_time()
        return delay

    def _record_failure(self, key: Key, loop: Loop, error: Exception) -> float:
        loop.failures += 1
        metrics.RECONCILE_ERRORS.labels(kind=key.kind, error=type(error).__name__).inc()
        delay = min(self._pace.first_retry * 2.0 ** min(loop.failures - 1, 16), self._pace.longest_retry)
        match error:
            case ConflictError():
                log.info("conflict, requeued", because=error.brief)
                return self._pace.first_retry
            case ThrottledError() if error.retry_after is not None:
                delay = max(delay, error.retry_after)
                log.warning("step failed", error=error.brief, details=error.details, retry_seconds=delay)
            case UpgraderError():
                log.warning("step failed", error=error.brief, details=error.details, retry_seconds=delay)
            case _:
                log.error("step failed for an unknown reason", retry_seconds=delay, exc_info=error)
        return delay

    async def _sleep_until(self, loop: Loop, until: float) -> None:
        """Sleep until `until`, or until a wake-up requests the next step; after a failure wake-ups are ignored."""
        while (seconds := self._end_of_sleep(loop, until) - time.monotonic()) > 0.0:
            loop.woken.clear()
            try:
                async with asyncio.timeout(seconds):
                    await loop.woken.wait()
            except TimeoutError:
                return

    def _end_of_sleep(self, loop: Loop, until: float) -> float:
        return until if loop.failures or loop.requested_at is None else min(until, loop.requested_at)
