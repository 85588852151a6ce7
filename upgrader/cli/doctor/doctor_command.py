"""`upgrader doctor`: check whether a cluster and its jobs are ready for rollouts."""

import click

from upgrader.cli.base import exit_codes, render
from upgrader.cli.base.output_format import output_option, print_value
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.doctor import advice_screen, doctor_checks, job_lints
from upgrader.core.doctor.advice import has_problem
from upgrader.core.errors import UpgraderError


@click.command()
@click.option(
    "--jobs", is_flag=True, help="Check the jobs on GPU nodes for settings that lose progress or delay upgrades."
)
@click.option("--stack", help="With --jobs: check only jobs on the nodes of this stack. Defaults to all stacks.")
@output_option
@pass_session
def doctor(session: Session, *, jobs: bool, stack: str | None, output: str) -> int:
    """Check whether the cluster is ready for rollouts. The exit code is 1 if there is a problem."""
    if stack is not None and not jobs:
        raise click.UsageError("--stack requires --jobs")

    if jobs:
        report = session.run(lambda context: job_lints.lint_jobs(context, stack))
        if output == "table":
            render.print_renderable(advice_screen.job_tables(report))
        else:
            print_value(report, output)
        findings = report.found
    else:
        findings = session.run(doctor_checks.run_checks)
        if output == "table":
            render.print_renderable(advice_screen.advice_table(findings))
        else:
            print_value(findings, output)
    return UpgraderError.exit_code if has_problem(findings) else exit_codes.DONE
