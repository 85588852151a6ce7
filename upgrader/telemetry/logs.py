"""Logs: events are constant sentences with fields; kopf's and aiohttp's records come out of the same pipe."""

import logging
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import structlog


class LogFormat(StrEnum):
    """How a line looks."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """The least severe line that is shown."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


QUIET = ("kopf", "aiohttp.access", "asyncio")
"""Libraries that tell at `info` what is only of interest to their own developers."""


def configure(form: LogFormat, level: LogLevel, *, quiet: Sequence[str] = QUIET) -> None:
    """Send every log line of this process to stderr, one line each."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(form)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.value.upper())
    for name in quiet:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _rendering(form: LogFormat) -> list[Any]:
    match form:
        case LogFormat.JSON:
            return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        case LogFormat.TEXT:
            colours = sys.stderr.isatty()
            plain = structlog.dev.plain_traceback
            return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain)]
