"""A folder over HTTP on loopback, for programs that fetch: it knows ranges, as archives do, and can be wrong."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


async def _nothing(_request: web.Request) -> None:
    return None


async def _stop(runner: web.AppRunner) -> None:
    await runner.cleanup()
    left = asyncio.all_tasks() - {asyncio.current_task()}  # a handler that stalls on purpose
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@contextlib.contextmanager
def serving(folder: Path, *, answer: Answer = _nothing, seen: list[web.Request] | None = None) -> Iterator[str]:
    """The address of a server in a thread of its own. `answer` takes over the requests that it gives a response for."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if seen is not None:
            seen.append(request)
        if (taken := await answer(request)) is not None:
            return taken
        path = folder / request.path.lstrip("/")
        return web.FileResponse(path) if path.is_file() else web.Response(status=404)

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/{path:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(_stop(runner), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
