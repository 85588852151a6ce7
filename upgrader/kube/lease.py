"""Leader election by a Lease, with a check that also works for a process that was stopped and continued.

kubernetes.aio.leaderelection (37.0.2) was evaluated and does not do this: it measures deadlines with the wall clock,
which administrators and NTP change; a request that hangs (five minutes by default) hides the loss of the lease; it
reports the loss only by cancelling a task, so a process that continues after SIGSTOP writes before it notices the loss;
and it writes local time with the suffix Z.

The rule: a renewal is valid from *before* it was sent. For `act` seconds from then the holder may start writes, each
takes at most REQUEST_SECONDS, and `act + REQUEST_SECONDS <= duration`. A successor takes over only after the lease was
unchanged for `duration` by its own clock. So the last write of a leader has ended before the next leader starts.
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
    renew_time: str | None = None  # for users only


class Lease(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


LEASES: ResourceKind[Lease] = ResourceKind(
    group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", namespaced=True, type=Lease
)

CONTROLLER = "gpu-upgrader-controller"
"""Name of the Lease of the controller."""


class Timing(Struct, frozen=True, kw_only=True):
    """In seconds: duration of a lease, time in which the holder may write after a renewal, and interval of renewals."""

    duration: int = 30
    act: float = 20.0
    renew: float = 5.0

    def __post_init__(self) -> None:
        if self.act + REQUEST_SECONDS > self.duration or self.renew >= self.act:
            raise ValueError(f"renew < act <= duration - {REQUEST_SECONDS:.0f} s must hold: {self}")


class Objects(Protocol):
    """The methods of ports.Cluster that an election uses."""

    async def get(self, kind: ResourceKind[T], name: str, namespace: str = "") -> T | None: ...
    async def create(self, kind: ResourceKind[T], body: Mapping[str, Any]) -> T: ...
    async def merge(self, kind: ResourceKind[T], meta: ObjectMeta, patch: Mapping[str, Any]) -> T: ...


def since_boot() -> float:
    """Seconds since boot, including suspend; this clock cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def own_identity(name: str = "") -> str:
    """A unique identity of this process, with an optional prefix.

    Two processes with the same identity would both regard the lease as their own, and both would lead.
    """
    return f"{name or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


class Election:
    """A candidate. `identity` is unique to this process; `cluster` is not guarded by check()."""

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
        self._renewed: float | None = None  # send time of the last successful renewal; None: not the leader
        self._own_lease: Lease | None = None
        self._seen = ("", 0.0, self._timing.duration)  # lease of another holder: version, first seen, duration

    def check(self) -> None:
        """See ports.Leadership."""
        if self._renewed is None or self._clock() - self._renewed > self._timing.act:
            raise LostLeadershipError(
                "the lease may have passed to another controller",
                details=f"lease {self._namespace}/{self._name}, identity {self._identity}",
                resolution="No action is required: the new leader continues the work of this process.",
            )

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `work` to its end, and release the lease.

        Raises:
            LostLeadershipError: the lease was lost; the work was cancelled.
        """
        while not await self._attempt_or_log():  # noqa: ASYNC110 - the holder is another process
            await asyncio.sleep(self._timing.renew)
        log.info("leading", lease=self._name, identity=self._identity)
        metrics.LEADER.set(1)
        working, keeping = asyncio.ensure_future(work()), asyncio.ensure_future(self._keep_lease())
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
        """Try once to get or renew the lease; returns whether this process leads.

        Raises:
            UpgraderError: the request failed; this process leads until check() raises.
        """
        if self._own_lease is not None:
            try:
                return await self._write(self._own_lease, {})
            except (ConflictError, NotFoundError):
                self._own_lease = None
        lease = await self._cluster.get(LEASES, self._name, self._namespace)
        seen_at = self._clock()
        if lease is None:
            return await self._create()
        if lease.spec.holder_identity == self._identity:
            return await self._write_or_lose(lease, {})
        self._renewed = None
        if lease.spec.holder_identity and not self._is_expired(lease, seen_at):
            return False
        transitions = (lease.spec.lease_transitions or 0) + 1
        return await self._write_or_lose(lease, {"leaseTransitions": transitions, "acquireTime": _micro_time()})

    async def release(self) -> None:
        """Release the lease, so that a successor takes over immediately; after a failure it waits for the expiry."""
        lease, self._own_lease, self._renewed = self._own_lease, None, None
        if lease is None:
            return
        try:
            await self._cluster.merge(LEASES, lease.metadata, {"spec": {"holderIdentity": None}})
        except UpgraderError as error:
            log.warning("lease not released", lease=self._name, error=str(error))

    async def _keep_lease(self) -> None:
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

    def _is_expired(self, lease: Lease, seen_at: float) -> bool:
        version, first_seen, duration = self._seen
        if lease.metadata.resource_version != version:
            lasts = lease.spec.lease_duration_seconds or self._timing.duration
            self._seen = (lease.metadata.resource_version, seen_at, lasts)
            return False
        return seen_at - first_seen >= duration

    async def _create(self) -> bool:
        sent = self._clock()
        spec = self._spec() | {"leaseTransitions": 0, "acquireTime": _micro_time()}
        body = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": spec}
        try:
            self._own_lease = await self._cluster.create(LEASES, body)
        except ConflictError:
            return False
        self._renewed = sent
        return True

    async def _write_or_lose(self, lease: Lease, fields: Mapping[str, Any]) -> bool:
        try:
            return await self._write(lease, fields)
        except ConflictError:
            return False

    async def _write(self, lease: Lease, fields: Mapping[str, Any]) -> bool:
        sent = self._clock()
        self._own_lease = await self._cluster.merge(LEASES, lease.metadata, {"spec": {**self._spec(), **fields}})
        self._renewed = sent
        return True

    def _spec(self) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._timing.duration,
            "renewTime": _micro_time(),
        }


def _micro_time() -> str:
    """The current time as MicroTime of Kubernetes, for users only: it is never read."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
