"""`upgrader doctor`: is this cluster fit for rollouts, and are its jobs."""

import click

from upgrader.cli import exits
from upgrader.cli.session import Session, pass_session
from upgrader.cli.wire import output_option, show
from upgrader.core.errors import UpgraderError


@click.command()
@click.option(
    "--jobs", is_flag=True, help="Look at the jobs on GPU nodes: what would lose work, or keep nodes waiting."
)
@click.option("--stack", help="With --jobs: only jobs on the nodes of this stack.")
@output_option
@pass_session
def doctor(session: Session, *, jobs: bool, stack: str | None, output: str) -> int:
    """Say what keeps rollouts from working here, and what to do about it. Ends with 1 where there is a problem."""
    if stack is not None and not jobs:
        raise click.UsageError("--stack goes with --jobs")
    from upgrader.cli import advice_screen, doctoring, linting, render  # noqa: PLC0415
    from upgrader.core.doctor.advice import problems  # noqa: PLC0415

    if jobs:
        report = session.run(lambda context: linting.lint_jobs(context, stack))
        if output == "table":
            render.show(advice_screen.jobs(report))
        else:
            show(report, output)
        found = report.found
    else:
        found = session.run(doctoring.diagnose)
        if output == "table":
            render.show(advice_screen.advice(found))
        else:
            show(found, output)
    return UpgraderError.exit_code if problems(found) else exits.DONE


COMMANDS = (doctor,)
