"""`upgrader plan | apply | drift | why`: look at what would happen, agree to it, understand it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upgrader.cli.base import exit_codes
from upgrader.cli.base.output_format import FORMATS, output_option, show
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.plan.pace_options import pace_options
from upgrader.core.errors import UpgraderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from upgrader.core.explain.plan_file import SavedForecast
    from upgrader.reconcile.runtime.context import Context

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("-f", "--file", type=FILE, help="Manifest of the GpuStack as it should be.")
@click.option("--stack", help="Stack to look at; not needed where there is only one.")
@click.option(
    "--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change the stack, as driver.version=570.20."
)
@pace_options
@click.option(
    "-o", "out", type=click.Path(dir_okay=False, path_type=Path), help="Keep the forecast for `upgrader apply`."
)
@click.option("--output", type=click.Choice(FORMATS), default="table", show_default=True, help="How it is printed.")
@click.option("--detailed-exitcode", is_flag=True, help="0: nothing to do, 1: error, 2: there are changes.")
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
    """Show what a rollout would do: what, when, who is interrupted and why, what blocks. Touches nothing."""
    from upgrader.cli.base import render  # noqa: PLC0415
    from upgrader.cli.plan import forecast_screen, plan_actions  # noqa: PLC0415

    async def work(context: "Context") -> tuple["SavedForecast", str]:
        made = await plan_actions.plan(context, file=file, stack=stack, changes=changes, pace=pace)
        return made, await plan_actions.under_way(context, made.stack)

    saved, waits = session.run(work)
    if out is not None:
        plan_actions.keep(saved, out)
    if output == "table":
        render.show(forecast_screen.forecast(saved))
    else:
        show(saved, output)
    if waits:
        click.echo(waits, err=True)
    if out is not None:
        click.echo(f"Kept in {out}. To do this: upgrader apply {out}", err=True)
    return exit_codes.CHANGES if detailed_exitcode and saved.forecast.summary.drifted else exit_codes.DONE


@click.command()
@click.argument("file", type=FILE)
@click.option("--auto-approve", is_flag=True, help="Do not ask.")
@click.option("--by", help="Who approves; this user at this machine unless given.")
@click.option("--watch", is_flag=True, help="Follow the rollout until it ends.")
@click.option("--patience", type=float, default=60.0, show_default=True, metavar="SECONDS",
              help="With --watch: how long everything left may be blocked before giving up (exit code 4).")  # fmt: skip
@click.option("--timeout", type=float, metavar="SECONDS", help="With --watch: how long at most (exit code 5).")
@click.option("--retry", type=click.IntRange(1, 604800), default=600, show_default=True, metavar="SECONDS",
              help="How long a job that refused or did not answer is left alone.")  # fmt: skip
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
    """Agree to a forecast that `upgrader plan -o FILE` kept, and start it.

    Refuses (exit code 3) what was made for another cluster or no longer holds.
    """
    from upgrader.cli.plan import plan_actions  # noqa: PLC0415
    from upgrader.cli.shared.progress import Patience  # noqa: PLC0415
    from upgrader.cli.status import watch_display  # noqa: PLC0415

    async def work(context: "Context") -> None:
        name = await plan_actions.apply(context, file, by=by, retry=retry, agree=agreement(auto_approve=auto_approve))
        click.echo(f"plan {name} is started" if name else "no plan is needed: nothing runs on these nodes", err=True)
        if watch and name is not None:
            await watch_display.follow(context, name, Patience(blocked=patience, whole=timeout), sleep=session.sleep)

    session.run(work)
    return exit_codes.DONE


@click.command()
@click.option("--stack", help="Stack to look at; not needed where there is only one.")
@output_option
@pass_session
def drift(session: Session, *, stack: str | None, output: str) -> int:
    """Show every reason why a node is not what its stack asks for."""
    from upgrader.cli.base import render  # noqa: PLC0415
    from upgrader.cli.plan import plan_actions  # noqa: PLC0415

    found = session.run(lambda context: plan_actions.drift(context, stack))
    if output == "table":
        render.show(render.drift(found.stack, found.revision, found.nodes, found.drift))
    else:
        show(found, output)
    return exit_codes.DONE


@click.command()
@click.argument("subject", metavar="NODE|JOB")
@output_option
@pass_session
def why(session: Session, *, subject: str, output: str) -> int:
    """Say why a node is not upgraded (or when it is), or why a job will be stopped (or will not)."""
    from upgrader.cli.base import render  # noqa: PLC0415
    from upgrader.cli.plan import plan_actions  # noqa: PLC0415

    found = session.run(lambda context: plan_actions.why(context, subject))
    for one in found:
        if output == "table":
            render.show(render.explanation(one))
        else:
            show(one, output)
    return exit_codes.DONE


def agreement(*, auto_approve: bool) -> "Callable[[SavedForecast], None]":
    """Show the forecast, and ask unless told not to."""

    def agree(saved: "SavedForecast") -> None:
        import sys  # noqa: PLC0415

        from upgrader.cli.base import render  # noqa: PLC0415
        from upgrader.cli.plan import forecast_screen  # noqa: PLC0415

        render.show(forecast_screen.forecast(saved), sys.stderr)
        if auto_approve:
            return
        if not sys.stdin.isatty():
            raise click.UsageError("there is nobody to ask: say --auto-approve")
        if not click.confirm("Do this?", err=True):
            raise UpgraderError("not agreed; nothing was changed")

    return agree


COMMANDS = (plan, apply, drift, why)
