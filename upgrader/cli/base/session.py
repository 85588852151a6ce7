"""The connection of a command to its cluster."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from upgrader.reconcile.runtime.context import Context
    from upgrader.wiring.settings import Settings

T = TypeVar("T")


class Session:
    """The global options; tests use another session."""

    def __init__(
        self, *, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None
    ) -> None:
        self.kubeconfig = kubeconfig
        self.context = context
        self.namespace = namespace

    def for_context(self, name: str) -> "Session":
        """A session for another context of the kubeconfig."""
        return Session(kubeconfig=self.kubeconfig, context=name, namespace=self.namespace)

    def settings(self) -> "Settings":
        """Settings from the environment; options of the command line take precedence."""
        import os  # noqa: PLC0415 - a command imports only what it needs

        import msgspec  # noqa: PLC0415

        from upgrader.wiring.settings import read_settings  # noqa: PLC0415

        settings = read_settings(os.environ)
        return msgspec.structs.replace(settings, namespace=self.namespace) if self.namespace else settings

    def open(self) -> "AbstractAsyncContextManager[Context]":
        """A connection for the duration of the command."""
        from upgrader.telemetry.logs import LogFormat, LogLevel, configure_logging  # noqa: PLC0415
        from upgrader.wiring.compose import reader_context  # noqa: PLC0415

        configure_logging(LogFormat.TEXT, LogLevel.WARNING)  # standard output is for the result
        return reader_context(self.settings(), self.kubeconfig, self.context)

    async def sleep(self, seconds: float) -> None:
        """Wait between two polls."""
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(seconds)

    def run(self, work: "Callable[[Context], Awaitable[T]]") -> T:
        """Connect, run `work`, and return its result."""
        import asyncio  # noqa: PLC0415

        async def connected() -> T:
            async with self.open() as context:
                return await work(context)

        return asyncio.run(connected())


pass_session = click.make_pass_decorator(Session)
