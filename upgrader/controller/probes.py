"""HTTP endpoints for the kubelet and Prometheus: /healthz, /readyz, /metrics."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog
from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from upgrader.core.errors import ConfigurationError
from upgrader.telemetry import metrics

log = structlog.get_logger()

SERVING = "serving probes and metrics"
"""Event in the log, with host and port."""

FaultCheck = Callable[[], str]
"""A fault as a sentence; empty if there is none."""


def create_application(*, alive: FaultCheck, ready: FaultCheck) -> web.Application:
    """The three endpoints: 200 `ok`, or 503 and the fault."""

    def page(complaint: FaultCheck) -> Callable[[web.Request], object]:
        async def answer(_: web.Request) -> web.Response:
            fault = complaint()
            return web.Response(status=503 if fault else 200, text=f"{fault or 'ok'}\n")

        return answer

    application = web.Application()
    application.add_routes(
        [
            web.get("/healthz", page(alive)),  # type: ignore[arg-type]
            web.get("/readyz", page(ready)),  # type: ignore[arg-type]
            web.get("/metrics", make_aiohttp_handler(metrics.REGISTRY)),
        ]
    )
    return application


@asynccontextmanager
async def serve_endpoints(pages: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serve the endpoints; yields the port, which is a free one for port 0.

    Raises:
        ConfigurationError: the address is in use or not local.
    """
    runner = web.AppRunner(pages, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {host}:{port}",
                details=str(error),
                resolution="Set UPGRADER_LISTEN to a free address.",
            ) from error
        bound = int(runner.addresses[0][1])
        log.info(SERVING, host=host, port=bound)
        yield bound
    finally:
        await runner.cleanup()
