"""Which cluster a command speaks to, and how it gets there."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from upgrader.reconcile.runtime.context import Context
    from upgrader.wiring.settings import Settings

T = TypeVar("T")


class Session:
    """The options that stand before the command; tests put another one in its place."""

    def __init__(
        self, *, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None
    ) -> None:
        self.kubeconfig = kubeconfig
        self.context = context
        self.namespace = namespace

    def of_context(self, name: str) -> "Session":
        """The same for another cluster of the kubeconfig."""
        return Session(kubeconfig=self.kubeconfig, context=name, namespace=self.namespace)

    def settings(self) -> "Settings":
        """Settings from the environment, and from our options where those say otherwise."""
        import os  # noqa: PLC0415 - as all imports of commands: only what is needed

        import msgspec  # noqa: PLC0415

        from upgrader.wiring.settings import read  # noqa: PLC0415

        found = read(os.environ)
        return msgspec.structs.replace(found, namespace=self.namespace) if self.namespace else found

    def open(self) -> "AbstractAsyncContextManager[Context]":
        """A connection, for as long as the command lasts."""
        from upgrader.telemetry.logs import LogFormat, LogLevel, configure  # noqa: PLC0415
        from upgrader.wiring.compose import reader  # noqa: PLC0415

        configure(LogFormat.TEXT, LogLevel.WARNING)  # standard output is the result's
        return reader(self.settings(), self.kubeconfig, self.context)

    async def sleep(self, seconds: float) -> None:
        """What commands that wait do between two looks."""
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(seconds)

    def run(self, work: "Callable[[Context], Awaitable[T]]") -> T:
        """Connect, do the work, and give what it gives."""
        import asyncio  # noqa: PLC0415

        async def connected() -> T:
            async with self.open() as context:
                return await work(context)

        return asyncio.run(connected())


pass_session = click.make_pass_decorator(Session)
