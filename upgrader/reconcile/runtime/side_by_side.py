"""Concurrent processing of items with a limit."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def for_each(items: Iterable[T], act: Callable[[T], Awaitable[None]], limit: int) -> None:
    """Call `act` for each item, up to `limit` concurrently; calls are begun in order.

    After the first error running calls are cancelled, no further call is begun, and the error is raised unchanged.
    """
    wanted = list(items)
    left = iter(wanted)
    failed: list[BaseException] = []

    async def work() -> None:
        for item in left:
            if failed:
                return
            try:
                await act(item)
            except BaseException as error:
                failed.append(error)
                raise

    workers = [asyncio.ensure_future(work()) for _ in range(min(limit, len(wanted)))]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
