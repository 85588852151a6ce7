"""`upgrader plan | apply | drift | why`: show a forecast, apply it, explain it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upgrader.cli.base import exit_codes, render
from upgrader.cli.base.output_format import FORMATS, output_option, print_value
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.plan import forecast_screen, plan_actions
from upgrader.cli.plan.pace_options import pace_options
from upgrader.cli.shared.progress import Patience
from upgrader.cli.status import watch_display
from upgrader.core.errors import UpgraderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from upgrader.core.explain.plan_file import SavedForecast
    from upgrader.reconcile.runtime.context import Context

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "-f",
    "--file",
    type=FILE,
    help="Manifest of the GpuStack with its desired state. Defaults to the stack in the cluster.",
)
@click.option("--stack", help="Name of the stack. Required if the cluster has several stacks.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a field of the spec of the stack, for example driver.version=570.20. Repeatable.",
)
@pace_options
@click.option(
    "-o",
    "out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the forecast to this file, for `upgrader apply`.",
)
@click.option("--output", type=click.Choice(FORMATS), default="table", show_default=True, help="Output format.")
@click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit with code 0 if no node differs from the stack, and 2 if nodes differ.",
)
@pass_session
def plan(
    session: Session,
    *,
    file: Path | None,
    stack: str | None,
    changes: tuple[str, ...],
    pace: dict[str, Any],
    out: Path | None,
    output: str,
    detailed_exitcode: bool,
) -> int:
    """Show the forecast of a rollout: batches, times, interrupted gangs, blockers. Nothing is changed.

    A DURATION is for example 90s, 30m, 1h30m or 2d.
    """

    async def work(context: "Context") -> tuple["SavedForecast", str]:
        made = await plan_actions.make_forecast(context, file=file, stack=stack, changes=changes, pace=pace)
        return made, await plan_actions.under_way(context, made.stack)

    saved, waits = session.run(work)
    if out is not None:
        plan_actions.save_forecast(saved, out)
    if output == "table":
        render.print_renderable(forecast_screen.forecast_tables(saved))
    else:
        print_value(saved, output)
    if waits:
        click.echo(waits, err=True)
    if out is not None:
        click.echo(f"Forecast written to {out}. To apply it: upgrader apply {out}", err=True)
    return exit_codes.CHANGES if detailed_exitcode and saved.forecast.summary.drifted else exit_codes.DONE


@click.command()
@click.argument("file", type=FILE)
@click.option("--auto-approve", is_flag=True, help="Do not prompt for confirmation.")
@click.option("--approved-by", "by", metavar="NAME", help="Name of the approver. Defaults to USER@HOST.")
@click.option("--watch", is_flag=True, help="Follow the rollout until it ends.")
@click.option(
    "--patience",
    type=float,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: stop following the rollout when all remaining nodes were blocked for this time (exit code 4).",
)
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    help="With --watch: maximum time to follow the rollout (exit code 5). Defaults to no limit.",
)
@click.option(
    "--retry",
    type=click.IntRange(1, 604800),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="Time before a job that refused or did not acknowledge a request gets another one. It "
    "doubles each time, up to 2 hours.",
)
@pass_session
def apply(
    session: Session,
    *,
    file: Path,
    auto_approve: bool,
    by: str | None,
    watch: bool,
    patience: float,
    timeout: float | None,
    retry: int,
) -> int:
    """Approve the forecast that `upgrader plan -o FILE` wrote, and start its plan.

    A forecast that is stale, or was created for another cluster, is rejected (exit code 3).
    """

    async def work(context: "Context") -> None:
        name = await plan_actions.apply_forecast(
            context, file, by=by, retry=retry, agree=make_prompt(auto_approve=auto_approve)
        )
        click.echo(
            f"plan {name} is started" if name else "no plan is required: no pod with GPUs runs on these nodes", err=True
        )
        if watch and name is not None:
            await watch_display.follow_plan(
                context, name, Patience(blocked=patience, whole=timeout), sleep=session.sleep
            )

    session.run(work)
    return exit_codes.DONE


@click.command()
@click.option("--stack", help="Name of the stack. Required if the cluster has several stacks.")
@output_option
@pass_session
def drift(session: Session, *, stack: str | None, output: str) -> int:
    """Show how nodes differ from their stack."""
    drift = session.run(lambda context: plan_actions.read_drift(context, stack))
    if output == "table":
        render.print_renderable(render.drift_table(drift.stack, drift.revision, drift.nodes, drift.drift))
    else:
        print_value(drift, output)
    return exit_codes.DONE


@click.command()
@click.argument("subject", metavar="NODE|JOB")
@output_option
@pass_session
def why(session: Session, *, subject: str, output: str) -> int:
    """Explain why or when a node is upgraded, or why a job is stopped or not.

    JOB is NAME, NAMESPACE/NAME or NAMESPACE/KIND/NAME.
    """
    explanations = session.run(lambda context: plan_actions.explain_subject(context, subject))
    for explanation in explanations:
        if output == "table":
            render.print_renderable(render.explanation_text(explanation))
        else:
            print_value(explanation, output)
    return exit_codes.DONE


def make_prompt(*, auto_approve: bool) -> "Callable[[SavedForecast], None]":
    """A function that shows the forecast and, without --auto-approve, prompts for confirmation."""

    def confirm_forecast(saved: "SavedForecast") -> None:

        render.print_renderable(forecast_screen.forecast_tables(saved), sys.stderr)
        if auto_approve:
            return
        if not sys.stdin.isatty():
            raise click.UsageError("standard input is not a terminal; pass --auto-approve")
        if not click.confirm("Apply this plan?", err=True):
            raise UpgraderError("not confirmed; nothing was changed")

    return confirm_forecast
