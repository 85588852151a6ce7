"""`upgrader status`: the state of stacks and plans."""

import click

from upgrader.cli.base import exit_codes, render
from upgrader.cli.base.output_format import output_option, print_value
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.status import status_reader, status_screen


@click.command()
@click.argument("plan", required=False)
@click.option("--watch", is_flag=True, help="Follow the plan until it ends.")
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    help="With --watch: maximum time to follow the plan (exit code 5). Defaults to no limit.",
)
@output_option
@pass_session
def status(session: Session, *, plan: str | None, watch: bool, timeout: float | None, output: str) -> int:
    """Show all stacks and plans, or PLAN with its node upgrades and checkpoint requests.

    With --watch, PLAN may be omitted if exactly one plan has not ended.
    """
    if watch:
        session.run(lambda context: status_reader.watch_plan(context, plan, timeout, session.sleep))
        return exit_codes.DONE

    if plan is None:
        overview = session.run(status_reader.read_overview)
        if output == "table":
            render.print_renderable(status_screen.overview_tables(overview.stacks, overview.plans))
        else:
            print_value(overview, output)
        return exit_codes.DONE
    seen = session.run(lambda context: status_reader.read_plan_status(context, plan))
    if output == "table":
        render.print_renderable(status_screen.plan_tables(seen))
    else:
        print_value(seen, output)
    return exit_codes.DONE
