"""Controller processes one after the other in virtual time; steps run when they are due or woken, as in controller/.

After a process is killed, another process gets the lease some seconds later and starts without memory.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import (
    CHECKPOINT_REQUESTS,
    DAEMONSETS,
    DRIVER_IMAGES,
    GPU_STACKS,
    NODE_UPGRADES,
    UPGRADE_PLANS,
)
from upgrader.core.errors import ConflictError, ThrottledError, UpgraderError
from upgrader.kube.informer import Informer, node_informer
from upgrader.kube.watched import WatchedReads
from upgrader.reconcile.driver_image import image_reconciler
from upgrader.reconcile.gpu_stack import stack_reconciler, stackless
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.waking import passed_on
from upgrader.reconcile.upgrade_plan import plan_reconciler
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.faults import Fault
from upgrader_dev.chaos.laws.cluster_state import NAMESPACE
from upgrader_dev.chaos.ports import FaultyCluster
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectChange, ObjectStore
from upgrader_dev.simulated.cluster.ports import FakeClock, ProcessKilled
from upgrader_dev.simulated.cluster.rig import Rig

FIRST_RETRY, LONGEST_RETRY = 0.5, 30.0
"""As in controller.loops.LoopPauses."""
LEASE_SECONDS = 30
SKEWS = (0, 0, 2, -2, 20, -20, 90, -90, 600, -600)
"""Seconds by which the clock of a controller process is ahead."""
_TURNS = 12
"""Turns of the event loop in which watches deliver changes."""
_WATCHED = (GPU_STACKS, UPGRADE_PLANS, NODE_UPGRADES, CHECKPOINT_REQUESTS, DRIVER_IMAGES)
_LOOPS = {DRIVER_IMAGES.kind, GPU_STACKS.kind, UPGRADE_PLANS.kind}

Key = tuple[str, str]


class LoopSchedule:
    """When the next step of each object is due. Implements the Waking protocol of reconcile."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._due: dict[Key, datetime] = {}
        self._failures: dict[Key, int] = {}
        self._woken: dict[Key, datetime] = {}
        """The latest time of the next step, for objects that were woken since their last step began."""

    def wake(self, kind: str, name: str, within: float = 0.0) -> None:
        """Make the next step due soon; after a failure the delay of the retry stays."""
        key, latest = (kind, name), self._clock.now() + timedelta(seconds=within)
        self._woken[key] = min(self._woken.get(key, latest), latest)
        if not self._failures.get(key):
            self._due[key] = min(self._due.get(key, latest), latest)

    def wake_all(self, kind: str, within: float = 0.0) -> None:
        """Wake all existing loops of a kind."""
        for key in self._due:
            if key[0] == kind:
                self.wake(*key, within)

    def take_due(self) -> list[Key]:
        """The objects whose step is due, sorted by key."""
        now = self._clock.now()
        keys = sorted(key for key, at in self._due.items() if at <= now)
        for key in keys:
            self._woken.pop(key, None)
        return keys

    def record_success(self, key: Key, seconds: float | None) -> None:
        """A step succeeded; a loop that would end continues if it was woken during the step."""
        self._failures.pop(key, None)
        now, requested = self._clock.now(), self._woken.get(key)
        ends = [requested] if requested is not None else []
        ends += [now + timedelta(seconds=seconds)] if seconds is not None else []
        if ends:
            self._due[key] = max(min(ends), now + timedelta(seconds=1))
        else:
            self._due.pop(key, None)

    def record_failure(self, key: Key, error: Exception) -> None:
        """A step failed: it is tried again, with a longer delay each time."""
        if isinstance(error, ConflictError):
            self._due[key] = self._clock.now() + timedelta(seconds=1)
            return
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(FIRST_RETRY * 2.0 ** min(count - 1, 16), LONGEST_RETRY)
        if isinstance(error, ThrottledError) and error.retry_after is not None:
            delay = max(delay, error.retry_after)
        self._due[key] = self._clock.now() + timedelta(seconds=delay)


class Process:
    """The controller process that leads."""

    def __init__(self, rig: Rig, cluster: FaultyCluster, draws: Draws) -> None:
        self._rig, self._cluster, self._draws = rig, cluster, draws
        self.crashes = 0
        self.unexpected_errors: list[str] = []
        """Unexpected errors that ended a whole step."""
        self._starts_at = cluster.clock.now()
        self._context: Context | None = None
        self._loops = LoopSchedule(cluster.clock)
        self._watching: asyncio.Future[Any] | None = None
        self._cache: Informer[Node] | None = None
        cluster.store.listeners.append(self._wake_for_change)

    async def run_due_steps(self) -> None:
        """Run every step that is due; a fault may kill the process."""
        if self._context is None:
            if self._cluster.clock.now() < self._starts_at:
                return
            self._start_process()
        await self._catch_up()
        keys = self._loops.take_due()
        tasks = [asyncio.ensure_future(self._run_step(key)) for key in keys]
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if self._cluster.killed:
            await self._end_process(tasks)

    def staleness(self) -> str:
        """Why the leading process cannot read the current state; empty if it can."""
        return "the cache of nodes is out of sync" if self._cache is not None and self._cache.snapshot() is None else ""

    async def stop(self) -> None:
        """End the process without a successor."""
        await self._end_process([])

    def restart(self) -> None:
        """Let another process lead from the next turn on."""
        self._cluster.killed = True

    # ---- inside

    def _start_process(self) -> None:
        clock = self._cluster.clock
        self._rig.restart()
        self._rig.skew = timedelta(seconds=self._draws.draw_choice(SKEWS) if self._has_skew() else 0)
        seconds, pause = (lambda: clock.now().timestamp()), (lambda _failures: 0.0)
        cache = node_informer(self._cluster, clock=seconds, pause=pause)
        watched = WatchedReads(self._cluster, cache, NAMESPACE, clock=seconds, pause=pause)
        self._rig.node_cache, self._rig.watched = cache, watched
        self._cache = cache
        self._watching = asyncio.gather(cache.run(), watched.run())
        self._context = self._rig.context
        self._loops = LoopSchedule(clock)
        for kind in _WATCHED:
            for stored in self._cluster.store.list_stored(kind):
                passed_on(self._loops, kind.kind, stored.value)
        self._loops.wake(stackless.KIND, stackless.NAME)
        for name in _stacks_with_operands(self._cluster.store):
            self._loops.wake(GPU_STACKS.kind, name)

    def _has_skew(self) -> bool:
        return self._cluster.rates.rate_of(Fault.CLOCK_SKEW) > 0

    async def _end_process(self, tasks: list[asyncio.Task[None]]) -> None:
        ending = [*tasks, *([self._watching] if self._watching is not None else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._watching = self._context = None
        self.crashes += 1
        self._cluster.killed = False
        self._starts_at = self._cluster.clock.now() + timedelta(seconds=self._draws.draw_number(0, LEASE_SECONDS))

    async def _catch_up(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def _run_step(self, key: Key) -> None:
        kind, name = key
        try:
            seconds = await self._dispatch_step(kind, name)
        except UpgraderError as error:
            self._loops.record_failure(key, error)
        except Exception as error:  # noqa: BLE001 - as in controller.loops: an error of one loop does not end the others
            self.unexpected_errors.append(f"{kind} {name}: {type(error).__name__}: {error}")
            self._loops.record_failure(key, error)
        else:
            self._loops.record_success(key, seconds)

    def _dispatch_step(self, kind: str, name: str) -> Awaitable[float | None]:
        context = self._context
        if context is None:
            raise ProcessKilled("no process leads")
        steps: dict[str, Callable[[], Awaitable[float | None]]] = {
            DRIVER_IMAGES.kind: lambda: image_reconciler.reconcile_image(context, name),
            GPU_STACKS.kind: lambda: stack_reconciler.reconcile_stack(context, name, self._rig.sightings),
            UPGRADE_PLANS.kind: lambda: plan_reconciler.reconcile_plan(context, name),
            stackless.KIND: lambda: self._rig.stackless.run_pass(context, name),
        }
        return steps[kind]()

    def _wake_for_change(self, change: ObjectChange) -> None:
        if self._context is None or change.kind.kind not in {kind.kind for kind in _WATCHED}:
            return
        value: Object | None = change.after or change.before
        if value is not None:
            passed_on(self._loops, change.kind.kind, value)


def _stacks_with_operands(store: ObjectStore) -> list[str]:
    """Stacks with DaemonSets, including deleted stacks."""
    stacks = {
        daemonset["metadata"].get("labels", {}).get(names.LABEL_STACK, "")
        for daemonset in store.list_values(DAEMONSETS)
    }
    return sorted(stacks - {""})
