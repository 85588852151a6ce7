"""What plays a part of the world beside a test."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """`async with` runs it until the end of the block, and fails where it fails."""

    _running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._running is not None
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    @abstractmethod
    async def _run(self) -> None: ...
