"""The command line on the fake cluster: while a command waits, the controller and the world go on in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from click.testing import CliRunner, Result

from upgrader.cli.base.session import Session
from upgrader.cli.main import program
from upgrader.reconcile.runtime.context import Context
from upgrader_dev.simulated.cluster.rig import Rig


class RigSession(Session):
    """A session with the fake cluster; `controller` says whether one runs."""

    def __init__(self, rig: Rig, *, controller: bool = True) -> None:
        super().__init__()
        self.rig = rig
        self.controller = controller

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Context]:
        yield self.rig.context

    async def sleep(self, seconds: float) -> None:
        if self.controller:
            await self.rig.run_second()
        else:
            self.rig.cluster.clock.advance(seconds)


def upgrader(rig: Rig, *words: str, controller: bool = True, answer: str | None = None) -> Result:
    """Run `upgrader` with these words."""
    session = RigSession(rig, controller=controller)
    return CliRunner().invoke(program, list(words), obj=session, input=answer, prog_name="upgrader")
