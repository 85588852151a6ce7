"""`upgrader doctor`: check whether a cluster and its jobs are ready for rollouts."""

import click

from upgrader.cli.base import exit_codes
from upgrader.cli.base.output_format import output_option, show
from upgrader.cli.base.session import Session, pass_session
from upgrader.core.errors import UpgraderError


@click.command()
@click.option(
    "--jobs", is_flag=True, help="Check the jobs on GPU nodes for settings that lose progress or delay upgrades."
)
@click.option("--stack", help="With --jobs: check only jobs on the nodes of this stack.")
@output_option
@pass_session
def doctor(session: Session, *, jobs: bool, stack: str | None, output: str) -> int:
    """Check whether the cluster is ready for rollouts. The exit code is 1 if there is a problem."""
    if stack is not None and not jobs:
        raise click.UsageError("--stack requires --jobs")
    from upgrader.cli.base import render  # noqa: PLC0415
    from upgrader.cli.doctor import advice_screen, doctor_checks, job_lints  # noqa: PLC0415
    from upgrader.core.doctor.advice import problems  # noqa: PLC0415

    if jobs:
        report = session.run(lambda context: job_lints.lint_jobs(context, stack))
        if output == "table":
            render.show(advice_screen.jobs(report))
        else:
            show(report, output)
        found = report.found
    else:
        found = session.run(doctor_checks.diagnose)
        if output == "table":
            render.show(advice_screen.advice(found))
        else:
            show(found, output)
    return UpgraderError.exit_code if problems(found) else exit_codes.DONE


COMMANDS = (doctor,)
