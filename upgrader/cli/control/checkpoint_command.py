"""`upgrader checkpoint JOB`: ask one job now, show what its members say, let it go on."""

from typing import TYPE_CHECKING

import click

from upgrader.cli.base import exit_codes
from upgrader.cli.base.session import Session, pass_session

if TYPE_CHECKING:
    from upgrader.api.v1alpha1 import CheckpointRequest
    from upgrader.core.model.fleet import Gang
    from upgrader.reconcile.runtime.context import Context


@click.command()
@click.argument("job")
@click.option("--stack", help="Stack whose nodes the job runs on; not needed where there is only one.")
@click.option("--timeout", type=click.IntRange(1, 86400), metavar="SECONDS",
              help="How long the checkpoint may take; what the job declares unless given, else 1800.")  # fmt: skip
@pass_session
def checkpoint(session: Session, *, job: str, stack: str | None, timeout: int | None) -> int:
    """Ask JOB for a checkpoint now: it parks, its acknowledgements are shown, it goes on. Nothing is stopped.

    JOB is a name, or namespace/name. The request is withdrawn at the end, on an interruption too; if this program is
    killed, the members go on by themselves when their park-seconds are over.
    """
    said: list[str] = []

    def show(request: "CheckpointRequest") -> None:
        line = f"{request.status.phase}: {request.status.message}"
        if request.status.message and said[-1:] != [line]:
            said.append(line)
            click.echo(line, err=True)

    async def work(context: "Context") -> "CheckpointRequest":
        from upgrader.reconcile.checkpoint_request import adhoc_request  # noqa: PLC0415

        gang, resource = await _gang(context, job, stack)
        seconds = timeout or gang.timeout_seconds or 1800
        return await adhoc_request.ask(context, gang, resource, timeout_seconds=seconds, show=show, sleep=session.sleep)

    return _tell(session.run(work))


async def _gang(context: "Context", job: str, stack: str | None) -> "tuple[Gang, str]":
    from upgrader.cli.shared import cluster_reading  # noqa: PLC0415
    from upgrader.core.errors import ConfigurationError  # noqa: PLC0415
    from upgrader.core.explain.gang_explanation import find_gangs  # noqa: PLC0415

    found = await cluster_reading.stack_named(context, stack)
    target = await cluster_reading.target_of(context, found)
    snapshot = await cluster_reading.look(context, found, target)
    names = find_gangs(snapshot, job)
    if len(names) != 1:
        there = ", ".join(names or sorted(gang.name for gang in snapshot.gangs)) or "none"
        brief = (
            f"{job} is more than one job" if names else f"there is no job {job} on the nodes of stack {target.stack}"
        )
        raise ConfigurationError(brief, details=f"there are: {there}", resolution="Name it as namespace/kind/name.")
    return next(gang for gang in snapshot.gangs if gang.name == names[0]), target.resource_name


def _tell(request: "CheckpointRequest") -> int:
    from upgrader.core.errors import BlockedError  # noqa: PLC0415
    from upgrader.core.model.phases import RequestPhase  # noqa: PLC0415
    from upgrader.reconcile.checkpoint_request import adhoc_request  # noqa: PLC0415

    if request.status.phase is not RequestPhase.PARKED:
        raise BlockedError(f"{request.spec.gang} did not acknowledge", details=request.status.message)
    for one in adhoc_request.lines(request):
        word = "parked" if one.parked else "trains on"
        click.echo(f"{one.pod}  step {one.step}  {word}  {one.uri}" if one.step is not None else f"{one.pod}  -")
    click.echo(f"{request.spec.gang} is safe at step {request.status.acknowledged_step}, and trains on")
    return exit_codes.DONE


COMMANDS = (checkpoint,)
