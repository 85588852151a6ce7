"""One leader: a Lease, and a check that also holds for a process that was frozen and woken.

kubernetes.aio.leaderelection was evaluated (37.0.2) and cannot do this: it measures its deadlines with the wall clock,
which people and NTP move; a request that hangs (five minutes by default) hides the loss of the lease from the leader;
it tells the work of the loss only by cancelling a task, so that a process woken from SIGSTOP writes before it learns
anything; and it writes local time with a Z behind it.

The rule here: a renewal counts from *before* it was sent. The holder may start writes for `act` seconds from then, each
lasts at most REQUEST_SECONDS, and `act + REQUEST_SECONDS <= duration`; a successor takes over only after it has seen
the lease unchanged for `duration` on its own clock. So the last write of a leader has ended before the next one leads.
"""

import asyncio
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import structlog
from msgspec import Struct

from upgrader.api.kubernetes import ObjectMeta, Wire
from upgrader.api.resources import ResourceKind
from upgrader.core.errors import ConflictError, LostLeadershipError, NotFoundError, UpgraderError
from upgrader.kube.transport import REQUEST_SECONDS
from upgrader.telemetry import metrics

T = TypeVar("T")

log = structlog.get_logger(__name__)


class LeaseSpec(Wire, frozen=True, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    renew_time: str | None = None  # for people only


class Lease(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


LEASES: ResourceKind[Lease] = ResourceKind(
    group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", namespaced=True, type=Lease
)

CONTROLLER = "gpu-upgrader-controller"
"""Name of the Lease that the leading controller holds."""


class Timing(Struct, frozen=True, kw_only=True):
    """In seconds: how long a lease lasts, how long its holder may act on one renewal, how often it is renewed."""

    duration: int = 30
    act: float = 20.0
    renew: float = 5.0

    def __post_init__(self) -> None:
        if self.act + REQUEST_SECONDS > self.duration or self.renew >= self.act:
            raise ValueError(f"renew < act <= duration - {REQUEST_SECONDS:.0f} s must hold: {self}")


class Objects(Protocol):
    """What is needed of ports.Cluster."""

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None: ...
    async def create(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T: ...
    async def merge(self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any]) -> T: ...


def since_boot() -> float:
    """Seconds that nobody can set, counted on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def own_identity(name: str = "") -> str:
    """A name that no other process has, nor this one after a restart, whatever name both were given.

    Of two processes with the same identity each would take the lease for its own, and both would lead.
    """
    return f"{name or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


class Election:
    """One candidate; `identity` is this process's alone, and `cluster` is not guarded by our own check()."""

    def __init__(
        self,
        cluster: Objects,
        *,
        name: str,
        namespace: str,
        identity: str,
        timing: Timing | None = None,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._timing = timing or Timing()
        self._clock = clock
        self._renewed: float | None = None  # when our last successful renewal was sent; None: we do not lead
        self._mine: Lease | None = None
        self._seen = ("", 0.0, self._timing.duration)  # another's lease: version, first seen, its duration

    def check(self) -> None:
        """See ports.Leadership."""
        if self._renewed is None or self._clock() - self._renewed > self._timing.act:
            raise LostLeadershipError(
                "the lease may have passed to another controller",
                details=f"lease {self._namespace}/{self._name}, identity {self._identity}",
                resolution="Nothing to do: the leader goes on where this process stopped.",
            )

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait until we lead, then work until that ends; give the lease back.

        Raises:
            LostLeadershipError: the lease was lost; the work was cancelled.
        """
        while not await self._attempt_or_log():  # noqa: ASYNC110 - the holder is another process
            await asyncio.sleep(self._timing.renew)
        log.info("leading", lease=self._name, identity=self._identity)
        metrics.LEADER.set(1)
        working, keeping = asyncio.ensure_future(work()), asyncio.ensure_future(self._keep())
        try:
            await asyncio.wait((working, keeping), return_when=asyncio.FIRST_COMPLETED)
            if keeping.done():
                keeping.result()
            await working
        finally:
            metrics.LEADER.set(0)
            working.cancel()
            keeping.cancel()
            await asyncio.gather(working, keeping, return_exceptions=True)
            await self.release()

    async def attempt(self) -> bool:
        """Try once to get or to renew the lease; whether we lead now.

        Raises:
            UpgraderError: the API server could not say; we lead for as long as check() says so.
        """
        if self._mine is not None:
            try:
                return await self._write(self._mine, {})
            except (ConflictError, NotFoundError):
                self._mine = None
        found = await self._cluster.get(LEASES, self._name, self._namespace)
        seen_at = self._clock()
        if found is None:
            return await self._create()
        if found.spec.holder_identity == self._identity:
            return await self._write_or_lose(found, {})
        self._renewed = None
        if found.spec.holder_identity and not self._expired(found, seen_at):
            return False
        transitions = (found.spec.lease_transitions or 0) + 1
        return await self._write_or_lose(found, {"leaseTransitions": transitions, "acquireTime": _micro_time()})

    async def release(self) -> None:
        """Let a successor take over at once; a failure only makes it wait."""
        mine, self._mine, self._renewed = self._mine, None, None
        if mine is None:
            return
        try:
            await self._cluster.merge(LEASES, mine.metadata, {"spec": {"holderIdentity": None}})
        except UpgraderError as error:
            log.warning("lease not given back", lease=self._name, error=str(error))

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._timing.renew)
            await self._attempt_or_log()
            self.check()

    async def _attempt_or_log(self) -> bool:
        try:
            return await self.attempt()
        except UpgraderError as error:
            log.warning("lease not renewed", lease=self._name, error=str(error))
            return False

    def _expired(self, found: Lease, seen_at: float) -> bool:
        version, first_seen, duration = self._seen
        if found.metadata.resource_version != version:
            lasts = found.spec.lease_duration_seconds or self._timing.duration
            self._seen = (found.metadata.resource_version, seen_at, lasts)
            return False
        return seen_at - first_seen >= duration

    async def _create(self) -> bool:
        sent = self._clock()
        spec = self._spec() | {"leaseTransitions": 0, "acquireTime": _micro_time()}
        body = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": spec}
        try:
            self._mine = await self._cluster.create(LEASES, body)
        except ConflictError:
            return False
        self._renewed = sent
        return True

    async def _write_or_lose(self, lease: Lease, more: Mapping[str, Any]) -> bool:
        try:
            return await self._write(lease, more)
        except ConflictError:
            return False

    async def _write(self, lease: Lease, more: Mapping[str, Any]) -> bool:
        sent = self._clock()
        self._mine = await self._cluster.merge(LEASES, lease.metadata, {"spec": {**self._spec(), **more}})
        self._renewed = sent
        return True

    def _spec(self) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._timing.duration,
            "renewTime": _micro_time(),
        }


def _micro_time() -> str:
    """As Kubernetes' MicroTime wants it; for people only, nothing here reads it back."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
