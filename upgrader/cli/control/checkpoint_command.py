"""`upgrader checkpoint JOB`: request a checkpoint of one job, print its acknowledgements, release it."""

from typing import TYPE_CHECKING

import click

from upgrader.cli.base import exit_codes
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.shared import cluster_reading
from upgrader.core.errors import BlockedError, ConfigurationError
from upgrader.core.explain.gang_explanation import find_gangs
from upgrader.core.model.phases import RequestPhase
from upgrader.reconcile.checkpoint_request import adhoc_request

if TYPE_CHECKING:
    from upgrader.api.v1alpha1 import CheckpointRequest
    from upgrader.core.model.fleet import Gang
    from upgrader.reconcile.runtime.context import Context


@click.command()
@click.argument("job")
@click.option("--stack", help="Stack of the nodes that the job runs on. Required if the cluster has several stacks.")
@click.option("--timeout", type=click.IntRange(1, 86400), metavar="SECONDS",
              help="Maximum duration of the checkpoint. Defaults to the job's value, then 1800.")  # fmt: skip
@pass_session
def checkpoint(session: Session, *, job: str, stack: str | None, timeout: int | None) -> int:
    """Request a checkpoint of JOB, print its acknowledgements and release it.

    The job parks after the checkpoint and continues when it is released. It is not stopped. JOB is NAME, NAMESPACE/NAME
    or NAMESPACE/KIND/NAME.

    The request is withdrawn at the end, and also on Ctrl-C. If this program is killed, a parked pod continues by
    itself after the maximum duration of the checkpoint plus two minutes.
    """
    messages: list[str] = []

    def show(request: "CheckpointRequest") -> None:
        line = f"{request.status.phase}: {request.status.message}"
        if request.status.message and messages[-1:] != [line]:
            messages.append(line)
            click.echo(line, err=True)

    async def work(context: "Context") -> "CheckpointRequest":

        gang, resource = await _find_gang(context, job, stack)
        seconds = timeout or gang.timeout_seconds or 1800
        return await adhoc_request.request_checkpoint(
            context, gang, resource, timeout_seconds=seconds, show=show, sleep=session.sleep
        )

    return _print_acknowledgements(session.run(work))


async def _find_gang(context: "Context", job: str, stack: str | None) -> "tuple[Gang, str]":

    stack_object = await cluster_reading.stack_named(context, stack)
    target = await cluster_reading.target_of(context, stack_object)
    snapshot = await cluster_reading.read_snapshot(context, stack_object, target)
    names = find_gangs(snapshot, job)
    if len(names) != 1:
        there = ", ".join(names or sorted(gang.name for gang in snapshot.gangs)) or "none"
        brief = f"job name {job} is ambiguous" if names else f"job {job} not found on the nodes of stack {target.stack}"
        raise ConfigurationError(brief, details=f"jobs: {there}", resolution="Specify the job as NAMESPACE/KIND/NAME.")
    return next(gang for gang in snapshot.gangs if gang.name == names[0]), target.resource_name


def _print_acknowledgements(request: "CheckpointRequest") -> int:

    if request.status.phase is not RequestPhase.PARKED:
        raise BlockedError(
            f"gang {request.spec.gang} did not acknowledge the checkpoint request", details=request.status.message
        )
    for answer in adhoc_request.answer_lines(request):
        word = "parked" if answer.parked else "training"
        click.echo(
            f"{answer.pod}  step {answer.step}  {word}  {answer.uri}" if answer.step is not None else f"{answer.pod}  -"
        )
    click.echo(f"gang {request.spec.gang} has a checkpoint of step {request.status.acknowledged_step} and continues")
    return exit_codes.DONE
