"""The API server with faults: what the controller's client meets between it and the store."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import ResourceKind
from upgrader.core.errors import ClusterError, ConflictError, ThrottledError, UnreachableError, UpgraderError
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.faults import Fault, Rates
from upgrader_dev.chaos.laws.journal import Journal
from upgrader_dev.chaos.laws.known import NAMESPACE
from upgrader_dev.simulated.apiserver.cluster import FakeCluster, Write
from upgrader_dev.simulated.cluster.ports import Killed

T = TypeVar("T")

CALM = Rates({})
LONGEST_READ_SECONDS = 30
"""A list in pages, each of which takes nearly as long as a client waits."""
_TURNS = 12
"""Turns of the event loop in a second of a slow read: watches and other steps go on."""
_READS = frozenset({"get", "list", "exec", "rehearse", "GET"})


class FaultyCluster(FakeCluster):
    """As the real one behind a network: answers take a moment, get lost, come late or not at all."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self.journal = Journal(self.store)
        self.rates = CALM
        self.killed = False
        """The process that used this client is dead: nothing of it goes on."""
        self.second: Callable[[], None] = lambda: self.clock.advance(1)
        """What a second of the world is, while an answer is on its way."""
        self._draws, self._slow_draws = draws, draws.of("slow reads")

    # ---- a moment passes before each answer, in which other steps go on

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None:
        """See ports.Cluster."""
        await self._moment()
        found = await super().get(kind, name, namespace)
        await self._slowly()
        return found

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        """See ports.Cluster."""
        await self._moment()
        found = await super().list(kind, namespace, labels=labels, fields=fields)
        await self._slowly()
        return found

    async def create(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        """See ports.Cluster."""
        await self._moment()
        return await super().create(kind, body)

    async def merge(
        self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any], subresource: str = ""
    ) -> T:
        """See ports.Cluster."""
        await self._moment()
        return await super().merge(kind, meta, patch, subresource)

    async def _moment(self) -> None:
        self._alive()
        if self._draws.happens(0.2):
            await asyncio.sleep(0)
            self._alive()

    async def _slowly(self) -> None:
        """What was read is on its way for a while; reads that are slow at the same time wait beside each other."""
        if not self._slow_draws.happens(self.rates.at(Fault.READ_SLOW)):
            return
        end = self.clock.now() + timedelta(seconds=self._slow_draws.number(1, LONGEST_READ_SECONDS))
        while self.clock.now() < end:
            self.second()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
                self._alive()

    # ---- faults

    def _reach(self, verb: str, where: str) -> None:
        self._alive()
        super()._reach(verb, where)
        if verb not in _READS:
            return
        if self._happens(Fault.READ_FAILS):
            raise UnreachableError("no answer from the API server", details=f"{verb} {where}")
        if self._happens(Fault.READ_THROTTLED):
            raise ThrottledError("the API server asks to wait", details=f"{verb} {where}")

    def _do(self, write: Write, act: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON, or nothing
        self._alive()
        done = partial(self._done, write, act, self.clock.now())
        self._refuse(write)
        if self._happens(Fault.LATE_WRITE):
            self.clock.later(self._draws.number(1, 15), partial(self._late, done))
            raise UnreachableError("no answer from the API server", details=str(write))
        if self._happens(Fault.FROZEN_LEADER):
            self.clock.later(self._draws.number(20, 90), partial(self._late, done))
            self._die(write)
        if self._happens(Fault.CRASH_BEFORE):
            self._die(write)
        result = super()._do(write, done)
        if self._happens(Fault.ANSWER_LOST):
            raise UnreachableError("no answer from the API server", details=str(write))
        if self._happens(Fault.CRASH_AFTER):
            self._die(write)
        return result

    def _refuse(self, write: Write) -> None:
        if self._happens(Fault.THROTTLED):
            raise ThrottledError("the API server asks to wait", details=str(write))
        if self._happens(Fault.THROTTLED_FOR):
            seconds = float(self._draws.number(1, 20))
            raise ThrottledError("the API server asks to wait", retry_after=seconds, details=str(write))
        if write.verb != "create" and self._happens(Fault.CONFLICT):
            raise ConflictError("the object changed since it was read", details=str(write))
        if write.namespace not in {"", NAMESPACE} and self._happens(Fault.FORBIDDEN):
            raise ClusterError("the API server does not allow this", details=str(write))
        if self._happens(Fault.UNAVAILABLE):
            raise UnreachableError("the API server answered 500", details=str(write))

    def _done(self, write: Write, act: Callable[[], Any], sent: Any) -> Any:  # noqa: ANN401 - as the act
        with self.journal.written(write, sent):
            return act()

    def _late(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except UpgraderError:
            return  # the API server's answer to a client that is not there any more

    def _happens(self, fault: Fault) -> bool:
        return self._draws.happens(self.rates.at(fault))

    def _alive(self) -> None:
        if self.killed:
            raise Killed("this process is dead")

    def _die(self, write: Write) -> None:
        self.killed = True
        raise Killed(str(write))
