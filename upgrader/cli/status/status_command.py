"""`upgrader status`: the state of stacks and plans."""

import click

from upgrader.cli.base import exit_codes
from upgrader.cli.base.output_format import output_option, show
from upgrader.cli.base.session import Session, pass_session


@click.command()
@click.argument("plan", required=False)
@click.option("--watch", is_flag=True, help="Follow the plan until it ends.")
@click.option(
    "--timeout", type=float, metavar="SECONDS", help="With --watch: maximum time to follow the plan (exit code 5)."
)
@output_option
@pass_session
def status(session: Session, *, plan: str | None, watch: bool, timeout: float | None, output: str) -> int:
    """Show all stacks and plans, or one PLAN with its upgrades and requests."""
    from upgrader.cli.status import status_reader  # noqa: PLC0415

    if watch:
        session.run(lambda context: status_reader.watch(context, plan, timeout, session.sleep))
        return exit_codes.DONE
    from upgrader.cli.base import render  # noqa: PLC0415
    from upgrader.cli.status import status_screen  # noqa: PLC0415

    if plan is None:
        every = session.run(status_reader.overview)
        if output == "table":
            render.show(status_screen.overview(every.stacks, every.plans))
        else:
            show(every, output)
        return exit_codes.DONE
    seen = session.run(lambda context: status_reader.one(context, plan))
    if output == "table":
        render.show(status_screen.status(seen))
    else:
        show(seen, output)
    return exit_codes.DONE


COMMANDS = (status,)
