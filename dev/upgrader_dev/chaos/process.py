"""Controller processes one after the other in virtual time: steps when they are due or woken, as controller/ has them.

A process that is killed is followed by another, which has the lease a while later and remembers nothing.
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
from upgrader.kube.watched import Watched
from upgrader.reconcile.driver_image import image_reconciler
from upgrader.reconcile.gpu_stack import stack_reconciler, stackless
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.waking import passed_on
from upgrader.reconcile.upgrade_plan import plan_reconciler
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.faults import Fault
from upgrader_dev.chaos.laws.known import NAMESPACE
from upgrader_dev.chaos.ports import FaultyCluster
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import Change, ObjectStore
from upgrader_dev.simulated.cluster.ports import FakeClock, Killed
from upgrader_dev.simulated.cluster.rig import Rig

FIRST_RETRY, LONGEST_RETRY = 0.5, 30.0
"""As controller.loops.Pace has them."""
LEASE_SECONDS = 30
SKEWS = (0, 0, 2, -2, 20, -20, 90, -90, 600, -600)
"""By how many seconds the clock of a controller's machine is ahead."""
_TURNS = 12
"""Turns of the event loop in which a watch brings what has changed."""
_WATCHED = (GPU_STACKS, UPGRADE_PLANS, NODE_UPGRADES, CHECKPOINT_REQUESTS, DRIVER_IMAGES)
_LOOPS = {DRIVER_IMAGES.kind, GPU_STACKS.kind, UPGRADE_PLANS.kind}

Key = tuple[str, str]


class Loops:
    """When each object's next step is due: `due`, then `went` or `failed` of each. Fits the Waking of reconcile."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._due: dict[Key, datetime] = {}
        self._failures: dict[Key, int] = {}
        self._woken: dict[Key, datetime] = {}
        """By when what has woken it since its last step began wants the next one."""

    def wake(self, kind: str, name: str, within: float = 0.0) -> None:
        """Its next step is due soon, unless it has failed: then nothing shortens the wait."""
        key, latest = (kind, name), self._clock.now() + timedelta(seconds=within)
        self._woken[key] = min(self._woken.get(key, latest), latest)
        if not self._failures.get(key):
            self._due[key] = min(self._due.get(key, latest), latest)

    def wake_all(self, kind: str, within: float = 0.0) -> None:
        """Wake all loops of a kind that are there."""
        for key in self._due:
            if key[0] == kind:
                self.wake(*key, within)

    def due(self) -> list[Key]:
        """Whose step is due, in one order whatever woke them."""
        now = self._clock.now()
        found = sorted(key for key, at in self._due.items() if at <= now)
        for key in found:
            self._woken.pop(key, None)
        return found

    def went(self, key: Key, seconds: float | None) -> None:
        """A step went well; a loop that would end does not where it was woken meanwhile."""
        self._failures.pop(key, None)
        now, wanted = self._clock.now(), self._woken.get(key)
        ends = [wanted] if wanted is not None else []
        ends += [now + timedelta(seconds=seconds)] if seconds is not None else []
        if ends:
            self._due[key] = max(min(ends), now + timedelta(seconds=1))
        else:
            self._due.pop(key, None)

    def failed(self, key: Key, error: Exception) -> None:
        """A step failed: it is made again, later each time."""
        if isinstance(error, ConflictError):
            self._due[key] = self._clock.now() + timedelta(seconds=1)
            return
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(FIRST_RETRY * 2.0 ** min(count - 1, 16), LONGEST_RETRY)
        if isinstance(error, ThrottledError) and error.retry_after is not None:
            delay = max(delay, error.retry_after)
        self._due[key] = self._clock.now() + timedelta(seconds=delay)


class Process:
    """The controller process that leads now."""

    def __init__(self, rig: Rig, cluster: FaultyCluster, draws: Draws) -> None:
        self._rig, self._cluster, self._draws = rig, cluster, draws
        self.crashes = 0
        self.unknown: list[str] = []
        """Errors that ended a whole step and are none of ours."""
        self._starts_at = cluster.clock.now()
        self._context: Context | None = None
        self._loops = Loops(cluster.clock)
        self._watching: asyncio.Future[Any] | None = None
        self._cache: Informer[Node] | None = None
        cluster.store.listeners.append(self._changed)

    async def turn(self) -> None:
        """Take every step that is due; die in it, perhaps."""
        if self._context is None:
            if self._cluster.clock.now() < self._starts_at:
                return
            self._start()
        await self._catch_up()
        keys = self._loops.due()
        tasks = [asyncio.ensure_future(self._step(key)) for key in keys]
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if self._cluster.killed:
            await self._end(tasks)

    def in_doubt(self) -> str:
        """Why the process that leads cannot know how things stand; empty where it can."""
        return "the nodes are out of step" if self._cache is not None and self._cache.snapshot() is None else ""

    async def stop(self) -> None:
        """End for good."""
        await self._end([])

    def restart(self) -> None:
        """Another process leads from the next turn on."""
        self._cluster.killed = True

    # ---- inside

    def _start(self) -> None:
        clock = self._cluster.clock
        self._rig.restart()
        self._rig.skew = timedelta(seconds=self._draws.among(SKEWS) if self._skewed() else 0)
        seconds, pause = (lambda: clock.now().timestamp()), (lambda _failures: 0.0)
        cache = node_informer(self._cluster, clock=seconds, pause=pause)
        watched = Watched(self._cluster, cache, NAMESPACE, clock=seconds, pause=pause)
        self._rig.node_cache, self._rig.watched = cache, watched
        self._cache = cache
        self._watching = asyncio.gather(cache.run(), watched.run())
        self._context = self._rig.context
        self._loops = Loops(clock)
        for kind in _WATCHED:
            for stored in self._cluster.store.all_stored(kind):
                passed_on(self._loops, kind.kind, stored.value)
        self._loops.wake(stackless.KIND, stackless.NAME)
        for name in _with_operands(self._cluster.store):
            self._loops.wake(GPU_STACKS.kind, name)

    def _skewed(self) -> bool:
        return self._cluster.rates.at(Fault.CLOCK_SKEW) > 0

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        ending = [*tasks, *([self._watching] if self._watching is not None else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._watching = self._context = None
        self.crashes += 1
        self._cluster.killed = False
        self._starts_at = self._cluster.clock.now() + timedelta(seconds=self._draws.number(0, LEASE_SECONDS))

    async def _catch_up(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def _step(self, key: Key) -> None:
        kind, name = key
        try:
            seconds = await self._taken(kind, name)
        except UpgraderError as error:
            self._loops.failed(key, error)
        except Exception as error:  # noqa: BLE001 - as controller.loops: nobody else's loop ends for it
            self.unknown.append(f"{kind} {name}: {type(error).__name__}: {error}")
            self._loops.failed(key, error)
        else:
            self._loops.went(key, seconds)

    def _taken(self, kind: str, name: str) -> Awaitable[float | None]:
        context = self._context
        if context is None:
            raise Killed("no process leads")
        steps: dict[str, Callable[[], Awaitable[float | None]]] = {
            DRIVER_IMAGES.kind: lambda: image_reconciler.reconcile_image(context, name),
            GPU_STACKS.kind: lambda: stack_reconciler.reconcile_stack(context, name, self._rig.sightings),
            UPGRADE_PLANS.kind: lambda: plan_reconciler.reconcile_plan(context, name),
            stackless.KIND: lambda: self._rig.stackless.run_pass(context, name),
        }
        return steps[kind]()

    def _changed(self, change: Change) -> None:
        if self._context is None or change.kind.kind not in {kind.kind for kind in _WATCHED}:
            return
        found: Object | None = change.after or change.before
        if found is not None:
            passed_on(self._loops, change.kind.kind, found)


def _with_operands(store: ObjectStore) -> list[str]:
    """Stacks that have DaemonSets, among them those that are gone."""
    found = {each["metadata"].get("labels", {}).get(names.LABEL_STACK, "") for each in store.seen(DAEMONSETS)}
    return sorted(found - {""})
