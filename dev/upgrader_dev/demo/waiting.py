"""Waiting for a condition: every wait has a timeout and names its condition."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import tenacity

from upgrader.api.resources import ResourceKind
from upgrader.core.errors import DevClusterError
from upgrader.kube.client import KubeCluster

T = TypeVar("T")

POLL_SECONDS = 0.2


async def poll_until(condition: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
    """Poll until the condition holds.

    Raises:
        DevClusterError: not within `seconds`.
    """
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_result(lambda result: not result),
        wait=tenacity.wait_fixed(POLL_SECONDS),
        stop=tenacity.stop_after_delay(seconds),
    )

    async def check_condition() -> bool:
        # tenacity recognizes only functions written with `async def` as asynchronous, and not lambdas
        return await condition()

    try:
        await retrying(check_condition)
    except tenacity.RetryError:
        raise DevClusterError(f"{what}: not within {seconds:.0f} s") from None


async def wait_until(holds: Callable[[], bool], *, seconds: float, what: str) -> None:
    """`poll_until` for conditions without requests."""

    async def condition() -> bool:
        return holds()

    await poll_until(condition, seconds, what)


async def wait_for_object(
    kube: KubeCluster,
    kind: ResourceKind[Any],
    name: str,
    holds: Callable[[Any], bool],
    *,
    seconds: float,
    what: str,
    namespace: str = "",
) -> Any:  # noqa: ANN401 - of the requested kind
    """An object, as soon as the condition holds.

    Raises:
        DevClusterError: not within `seconds`; with its last state in the details.
    """
    last_state: list[Any] = [None]

    async def condition() -> bool:
        last_state[0] = await kube.get(kind, name, namespace)
        return last_state[0] is not None and holds(last_state[0])

    try:
        await poll_until(condition, seconds, what)
    except DevClusterError as error:
        raise DevClusterError(error.brief, details=f"{kind.kind} {name}: {last_state[0]}") from None
    return last_state[0]


async def in_thread(act: Callable[..., T], *args: Any, **options: Any) -> T:  # noqa: ANN401 - the arguments of `act`
    """Run a blocking function outside the event loop."""
    return await asyncio.to_thread(act, *args, **options)
