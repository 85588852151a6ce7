"""The API server with faults: what the controller's client gets from the simulated store."""

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
from upgrader_dev.chaos.laws.cluster_state import NAMESPACE
from upgrader_dev.chaos.laws.journal import Journal
from upgrader_dev.simulated.apiserver.cluster import FakeCluster, Write
from upgrader_dev.simulated.cluster.ports import ProcessKilled

T = TypeVar("T")

CALM = Rates({})
LONGEST_READ_SECONDS = 30
"""The duration of a paged list whose pages take nearly as long as the client's timeout."""
_TURNS = 12
"""Turns of the event loop in a second of a slow read, in which watches and other steps continue."""
_READS = frozenset({"get", "list", "exec", "rehearse", "GET"})


class FaultyCluster(FakeCluster):
    """An API server behind a network: responses are delayed or lost."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self.journal = Journal(self.store)
        self.rates = CALM
        self.killed = False
        """Whether the process that uses this client is dead: its calls raise ProcessKilled."""
        self.pass_second: Callable[[], None] = lambda: self.clock.advance(1)
        """Simulates one second while a response is delayed."""
        self._draws, self._delay_draws = draws, draws.stream_for("slow reads")

    # ---- other steps run before each response

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None:
        """See ports.Cluster."""
        await self._yield_to_others()
        value = await super().get(kind, name, namespace)
        await self._delay_read()
        return value

    async def list(
        self, kind: ResourceKind[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> Sequence[T]:
        """See ports.Cluster."""
        await self._yield_to_others()
        objects = await super().list(kind, namespace, labels=labels, fields=fields)
        await self._delay_read()
        return objects

    async def create(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T:
        """See ports.Cluster."""
        await self._yield_to_others()
        return await super().create(kind, body)

    async def merge(
        self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any], subresource: str = ""
    ) -> T:
        """See ports.Cluster."""
        await self._yield_to_others()
        return await super().merge(kind, meta, patch, subresource)

    async def _yield_to_others(self) -> None:
        self._require_alive()
        if self._draws.is_hit(0.2):
            await asyncio.sleep(0)
            self._require_alive()

    async def _delay_read(self) -> None:
        """Delay the result of a read; slow reads that run at the same time wait in parallel."""
        if not self._delay_draws.is_hit(self.rates.rate_of(Fault.READ_SLOW)):
            return
        end = self.clock.now() + timedelta(seconds=self._delay_draws.draw_number(1, LONGEST_READ_SECONDS))
        while self.clock.now() < end:
            self.pass_second()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
                self._require_alive()

    # ---- faults

    def _require_reachable(self, verb: str, where: str) -> None:
        self._require_alive()
        super()._require_reachable(verb, where)
        if verb not in _READS:
            return
        if self._draw_fault(Fault.READ_FAILS):
            raise UnreachableError("no response from the API server", details=f"{verb} {where}")
        if self._draw_fault(Fault.READ_THROTTLED):
            raise ThrottledError("the API server limits the rate of requests", details=f"{verb} {where}")

    def _perform(self, write: Write, act: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON, or nothing
        self._require_alive()
        done = partial(self._perform_write, write, act, self.clock.now())
        self._refuse_write(write)
        if self._draw_fault(Fault.LATE_WRITE):
            self.clock.later(self._draws.draw_number(1, 15), partial(self._perform_late, done))
            raise UnreachableError("no response from the API server", details=str(write))
        if self._draw_fault(Fault.FROZEN_LEADER):
            self.clock.later(self._draws.draw_number(20, 90), partial(self._perform_late, done))
            self._kill_process(write)
        if self._draw_fault(Fault.CRASH_BEFORE):
            self._kill_process(write)
        result = super()._perform(write, done)
        if self._draw_fault(Fault.ANSWER_LOST):
            raise UnreachableError("no response from the API server", details=str(write))
        if self._draw_fault(Fault.CRASH_AFTER):
            self._kill_process(write)
        return result

    def _refuse_write(self, write: Write) -> None:
        if self._draw_fault(Fault.THROTTLED):
            raise ThrottledError("the API server limits the rate of requests", details=str(write))
        if self._draw_fault(Fault.THROTTLED_FOR):
            seconds = float(self._draws.draw_number(1, 20))
            raise ThrottledError("the API server limits the rate of requests", retry_after=seconds, details=str(write))
        if write.verb != "create" and self._draw_fault(Fault.CONFLICT):
            raise ConflictError("the object changed since it was read", details=str(write))
        if write.namespace not in {"", NAMESPACE} and self._draw_fault(Fault.FORBIDDEN):
            raise ClusterError("the API server does not allow this request", details=str(write))
        if self._draw_fault(Fault.UNAVAILABLE):
            raise UnreachableError("the API server returned 500", details=str(write))

    def _perform_write(self, write: Write, act: Callable[[], Any], sent: Any) -> Any:  # noqa: ANN401 - the result of the call
        with self.journal.attribute_changes(write, sent):
            return act()

    def _perform_late(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except UpgraderError:
            return  # the client of this response no longer exists

    def _draw_fault(self, fault: Fault) -> bool:
        return self._draws.is_hit(self.rates.rate_of(fault))

    def _require_alive(self) -> None:
        if self.killed:
            raise ProcessKilled("this process is dead")

    def _kill_process(self, write: Write) -> None:
        self.killed = True
        raise ProcessKilled(str(write))
