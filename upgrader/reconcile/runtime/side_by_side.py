"""Many of the same at once, with a limit: one that waits for an answer keeps no other waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def each(items: Iterable[T], act: Callable[[T], Awaitable[None]], limit: int) -> None:
    """Do it for each item, as many as `limit` at the same time; they are begun in order.

    The first error ends it: what is under way is cancelled, nothing further is begun, and it is raised as itself.
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
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
