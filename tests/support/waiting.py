"""Waiting for a condition with a deadline, never for a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.05


async def eventually(look: Callable[[], Awaitable[T]], wanted: Callable[[T], bool] = bool, seconds: float = 60) -> T:
    """What `look` gives as soon as `wanted` accepts it; an AssertionError that shows the last look otherwise."""
    last: T | str = "nothing was seen"
    try:
        async with asyncio.timeout(seconds):
            while True:
                last = await look()
                if wanted(last):
                    return last
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not seen within {seconds} s; the last look gave {last!r}") from None
