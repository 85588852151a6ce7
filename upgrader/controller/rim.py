"""kopf, and nothing else of it than its watches: an event on one of our objects wakes the loop that it matters to.

Only low-level event handlers, on our own kinds: they patch nothing. Everything that kopf would write (finalizers,
progress annotations, Events) is switched off, since progress lives in our own status.
"""

import asyncio
from typing import Any, Protocol

import kopf

from upgrader.api.resources import (
    CHECKPOINT_REQUESTS,
    DRIVER_IMAGES,
    GPU_STACKS,
    NODE_UPGRADES,
    UPGRADE_PLANS,
    ResourceKind,
)
from upgrader.kube.connect import Access
from upgrader.reconcile.waking import Waking, passed_on

WATCH_SECONDS = 300
CONNECT_SECONDS = 10


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


async def watch(loops: Waking, connection: Connection, ready: asyncio.Event) -> None:
    """Watch until cancelled; `ready` is set when kopf has started."""
    await kopf.operator(
        registry=registry(loops, connection),
        settings=settings(),
        standalone=True,
        clusterwide=True,
        ready_flag=ready,
    )
