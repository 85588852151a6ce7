"""Watches of the operator's objects, by kopf: an event wakes the loops that depend on the object.

Only low-level event handlers on the operator's own kinds are used, which patch nothing. Everything that kopf would
write (finalizers, progress annotations, Events) is switched off, since progress is in the status of the objects.

A refusal that kopf does not expect (for example HTTP 410 to a watch) ends all of its watches. Its own `run_tasks` would
then cancel every task of the event loop, including the controller's, and wait forever for a task that ignores the
cancellation: a controller that leads and does nothing. So its tasks are supervised, ended and restarted here.
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
"""Time after which watches count as working: each was opened twice, and kopf's own retries take less than a minute."""
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
END_SECONDS = 20.0
_CANCEL_SECONDS = 0.2
_CLEANS = "startup/cleanup activities"
"""Name of kopf's task that closes its connections."""
_KOPF = Path(kopf.__file__).parent


class Connection(Protocol):
    """The source of kopf's credentials."""

    async def access(self) -> Access:
        """Present credentials."""
        ...


WATCHED: tuple[ResourceKind[Any], ...] = (
    GPU_STACKS,
    UPGRADE_PLANS,
    NODE_UPGRADES,
    CHECKPOINT_REQUESTS,
    DRIVER_IMAGES,
)


def create_registry(loops: Waking, connection: Connection) -> kopf.OperatorRegistry:
    """All handlers, without registration at import."""
    registry = kopf.OperatorRegistry()

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

    kopf.on.login(registry=registry)(login)
    for kind in WATCHED:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.kind)(
            _event_handler(loops, kind)
        )
    return registry


def _event_handler(loops: Waking, kind: ResourceKind[Any]) -> Any:  # noqa: ANN401 - kopf's own protocol of keyword arguments
    async def handler(body: Any, **_: object) -> None:  # noqa: ANN401 - kopf's live view of the object
        passed_on(loops, kind.kind, dict(body))

    return handler


def create_settings() -> kopf.OperatorSettings:
    """Kopf's settings: it only watches, and writes nothing."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.client_timeout = WATCH_SECONDS + CONNECT_SECONDS
    settings.watching.connect_timeout = CONNECT_SECONDS
    settings.networking.connect_timeout = CONNECT_SECONDS
    settings.process.ultimate_exiting_timeout = None
    return settings


def restart_pause(failures: int) -> float:
    """Seconds before the restart of watches after a number of failures in a row: doubled each time, up to a limit."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failures - 1, 16))


async def run_watches(
    loops: Waking,
    connection: Connection,
    begun: Callable[[], None],
    *,
    pause: Callable[[int], float] = restart_pause,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Watch until cancelled; `begun` is called after kopf has installed its own signal handlers.

    A permanent refusal (a missing right or token) ends them each time, so the pause grows.

    Raises:
        ClusterError: watches that failed do not end.
    """
    asyncio.get_running_loop().set_exception_handler(_report_lost_exception)
    failures = 0
    while True:
        since = clock()
        tasks = await kopf.spawn_tasks(
            registry=create_registry(loops, connection), settings=create_settings(), standalone=True, clusterwide=True
        )
        begun()
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            failures = 1 if clock() - since >= STEADY_SECONDS else failures + 1
            seconds = pause(failures)
            metrics.WATCH_RESTARTS.inc()
            log.warning(
                "restarting the watches of the custom resources", because=_ended_reasons(ended), retry_seconds=seconds
            )
        finally:
            await _end_tasks()
        await asyncio.sleep(seconds)


def _report_lost_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handler of exceptions that no code retrieved, for the event loop.

    kopf drops the tasks of single watches that failed. The restart that follows has the reason in its warning, so these
    are one line each, without a traceback for every kind and attempt.
    """
    task = context.get("future")
    if isinstance(task, asyncio.Task) and _is_of_kopf(task):
        log.debug("a watch ended", task=task.get_name(), error=str(context.get("exception")))
    else:
        loop.default_exception_handler(context)


def _ended_reasons(ended: Iterable[asyncio.Task[Any]]) -> str:
    return "; ".join(f"{task.get_name()}: {_task_error(task) or 'ended'}" for task in ended)


def _task_error(ended: asyncio.Task[Any]) -> BaseException | None:
    return None if ended.cancelled() else ended.exception()


async def _end_tasks() -> None:
    """End kopf's tasks; some of them treat a cancellation as the end of a pause, and continue."""
    last = asyncio.get_running_loop().time() + END_SECONDS
    cleaning: set[asyncio.Task[Any]] = set()
    while remaining := {task for task in asyncio.all_tasks() if _is_of_kopf(task)}:
        if asyncio.get_running_loop().time() > last:
            alive = ", ".join(sorted(task.get_name() for task in remaining))
            raise ClusterError("failed watches cannot be stopped", details=alive)
        for task in remaining - cleaning:
            task.cancel()
        # Cancelled only once: this task waits for the others, then cleans up.
        cleaning = {task for task in remaining if task.get_name() == _CLEANS}
        ended, _ = await asyncio.wait(remaining, timeout=_CANCEL_SECONDS)
        for task in ended:
            _task_error(task)  # retrieved, so that asyncio does not log it again


def _is_of_kopf(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and Path(code.co_filename).is_relative_to(_KOPF)
