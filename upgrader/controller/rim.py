"""kopf, and nothing else of it than its watches: an event on one of our objects wakes the loop that it matters to.

Only low-level event handlers, on our own kinds: they patch nothing. Everything that kopf would write (finalizers,
progress annotations, Events) is switched off, since progress lives in our own status.

A refusal that kopf does not expect (HTTP 410 to a watch, say) ends all of its watches. Its own `run_tasks` would then
cancel every task of the event loop, the controller's too, and wait for ever for one of its own that does not notice:
a controller that leads and does nothing. So its tasks are watched, ended and begun anew here.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import kopf
import structlog

from upgrader.api.resources import (
    CHECKPOINT_REQUESTS,
    DRIVER_IMAGES,
    GPU_STACKS,
    NODE_UPGRADES,
    UPGRADE_PLANS,
    ResourceKind,
)
from upgrader.core.errors import ClusterError
from upgrader.kube.connect import Access
from upgrader.reconcile.runtime.waking import Waking, passed_on
from upgrader.telemetry import metrics

log = structlog.get_logger(__name__)

WATCH_SECONDS = 300
CONNECT_SECONDS = 10
STEADY_SECONDS = float(WATCH_SECONDS)
"""Watches that lasted so long worked: each was opened at least twice, and kopf's own tries take less than a minute."""
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
END_SECONDS = 20.0
_CANCEL_SECONDS = 0.2
_CLEANS = "startup/cleanup activities"
"""kopf's task that closes its connections in the end."""
_KOPF = Path(kopf.__file__).parent


class Connection(Protocol):
    """Where kopf learns how to reach the API server."""

    async def access(self) -> Access:
        """Credentials as they are now."""
        ...


WATCHED: tuple[ResourceKind[Any], ...] = (
    GPU_STACKS,
    UPGRADE_PLANS,
    NODE_UPGRADES,
    CHECKPOINT_REQUESTS,
    DRIVER_IMAGES,
)


def registry(loops: Waking, connection: Connection) -> kopf.OperatorRegistry:
    """All handlers, without any import-time registration."""
    made = kopf.OperatorRegistry()

    async def login(**_: object) -> kopf.ConnectionInfo:
        access = await connection.access()
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=access.ca_file,
            certificate_path=access.certificate_file,
            private_key_path=access.key_file,
            token=access.token,
            insecure=access.insecure,
        )

    kopf.on.login(registry=made)(login)
    for kind in WATCHED:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=made, id=kind.kind)(_handler(loops, kind))
    return made


def _handler(loops: Waking, kind: ResourceKind[Any]) -> Any:  # noqa: ANN401 - kopf's own protocol of keyword arguments
    async def handler(body: Any, **_: object) -> None:  # noqa: ANN401 - kopf's live view of the object
        passed_on(loops, kind.kind, dict(body))

    return handler


def settings() -> kopf.OperatorSettings:
    """Kopf's settings: it watches and writes nothing."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.scanning.disabled = True
    made.watching.server_timeout = WATCH_SECONDS
    made.watching.client_timeout = WATCH_SECONDS + CONNECT_SECONDS
    made.watching.connect_timeout = CONNECT_SECONDS
    made.networking.connect_timeout = CONNECT_SECONDS
    made.process.ultimate_exiting_timeout = None
    return made


def pause(failures: int) -> float:
    """Seconds before watches that ended so often in a row are begun anew: twice as long each time, up to a limit."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failures - 1, 16))


async def watch(
    loops: Waking,
    connection: Connection,
    begun: Callable[[], None],
    *,
    pause: Callable[[int], float] = pause,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Watch until cancelled; `begun` is called whenever kopf has put its own signal handlers in place.

    A refusal that stays (a right or a token that is gone) ends them each time: they pause longer and longer.

    Raises:
        ClusterError: watches that failed do not end.
    """
    failures = 0
    while True:
        since = clock()
        tasks = await kopf.spawn_tasks(
            registry=registry(loops, connection), settings=settings(), standalone=True, clusterwide=True
        )
        begun()
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            failures = 1 if clock() - since >= STEADY_SECONDS else failures + 1
            seconds = pause(failures)
            metrics.WATCH_RESTARTS.inc()
            log.warning("the watches of our kinds are begun anew", because=_why(ended), retry_seconds=seconds)
        finally:
            await _end()
        await asyncio.sleep(seconds)


def _why(ended: Iterable[asyncio.Task[Any]]) -> str:
    return "; ".join(f"{one.get_name()}: {_error(one) or 'ended'}" for one in ended)


def _error(ended: asyncio.Task[Any]) -> BaseException | None:
    return None if ended.cancelled() else ended.exception()


async def _end() -> None:
    """End kopf's tasks; some of them take a cancellation for the end of a pause, and go on."""
    last = asyncio.get_running_loop().time() + END_SECONDS
    cleaning: set[asyncio.Task[Any]] = set()
    while left := {one for one in asyncio.all_tasks() if _of_kopf(one)}:
        if asyncio.get_running_loop().time() > last:
            alive = ", ".join(sorted(one.get_name() for one in left))
            raise ClusterError("watches that failed do not end", details=alive)
        for one in left - cleaning:
            one.cancel()
        # Cancelled once: it waits for the others, then cleans up.
        cleaning = {one for one in left if one.get_name() == _CLEANS}
        ended, _ = await asyncio.wait(left, timeout=_CANCEL_SECONDS)
        for one in ended:
            _error(one)  # retrieved: it is told once, by the first of them


def _of_kopf(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and Path(code.co_filename).is_relative_to(_KOPF)
