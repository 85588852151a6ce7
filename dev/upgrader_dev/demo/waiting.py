"""Waiting for what is seen, never for a time: every wait has an end and says what it waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import tenacity

from upgrader.api.resources import ResourceKind
from upgrader.core.errors import DevClusterError
from upgrader.kube.client import KubeCluster

T = TypeVar("T")

LOOK_SECONDS = 0.2


async def poll_until(look: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
    """Look until it is so.

    Raises:
        DevClusterError: it was not within `seconds`.
    """
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_result(lambda seen: not seen),
        wait=tenacity.wait_fixed(LOOK_SECONDS),
        stop=tenacity.stop_after_delay(seconds),
    )

    async def looked() -> bool:
        # tenacity takes only functions written with `async def` for asynchronous ones, and a lambda is none
        return await look()

    try:
        await retrying(looked)
    except tenacity.RetryError:
        raise DevClusterError(f"{what}: not within {seconds:.0f} s") from None


async def wait_until(holds: Callable[[], bool], *, seconds: float, what: str) -> None:
    """`poll` for what needs no request."""

    async def look() -> bool:
        return holds()

    await poll_until(look, seconds, what)


async def wait_for_object(
    kube: KubeCluster,
    kind: ResourceKind[Any],
    name: str,
    holds: Callable[[Any], bool],
    *,
    seconds: float,
    what: str,
    namespace: str = "",
) -> Any:  # noqa: ANN401 - of the kind that was asked for
    """An object, once it is as wanted.

    Raises:
        DevClusterError: it was not within `seconds`; how it was last is in the details.
    """
    last: list[Any] = [None]

    async def look() -> bool:
        last[0] = await kube.get(kind, name, namespace)
        return last[0] is not None and holds(last[0])

    try:
        await poll_until(look, seconds, what)
    except DevClusterError as error:
        raise DevClusterError(error.brief, details=f"{kind.kind} {name}: {last[0]}") from None
    return last[0]


async def in_thread(act: Callable[..., T], *args: Any, **options: Any) -> T:  # noqa: ANN401 - as `act` has them
    """What blocks, beside the event loop."""
    return await asyncio.to_thread(act, *args, **options)
