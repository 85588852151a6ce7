"""Logs: a constant message with fields. Records of kopf and aiohttp have the same format."""

import logging
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import structlog


class LogFormat(StrEnum):
    """Format of a line."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """Minimum level of logged lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


WARNING_ONLY = ("kopf", "aiohttp.access", "asyncio")
"""Libraries of which only warnings and errors are logged."""


def configure_logging(form: LogFormat, level: LogLevel, *, quiet: Sequence[str] = WARNING_ONLY) -> None:
    """Write the logs of this process to stderr, in the given format and from the given level."""
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
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_log_renderers(form)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.value.upper())
    for name in quiet:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _log_renderers(form: LogFormat) -> list[Any]:
    match form:
        case LogFormat.JSON:
            return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        case LogFormat.TEXT:
            colours = sys.stderr.isatty()
            plain = structlog.dev.plain_traceback
            return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain)]
