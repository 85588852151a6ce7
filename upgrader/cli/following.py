"""`upgrader status`: where stacks and plans are."""

import click

from upgrader.cli import exits
from upgrader.cli.session import Session, pass_session
from upgrader.cli.wire import output_option, show


@click.command()
@click.argument("plan", required=False)
@click.option("--watch", is_flag=True, help="Follow the plan until it ends.")
@click.option("--timeout", type=float, metavar="SECONDS", help="With --watch: how long at most (exit code 5).")
@output_option
@pass_session
def status(session: Session, *, plan: str | None, watch: bool, timeout: float | None, output: str) -> int:
    """Show all stacks and plans, or one PLAN with everything that is under way."""
    from upgrader.cli import states  # noqa: PLC0415

    if watch:
        session.run(lambda context: states.watch(context, plan, timeout, session.sleep))
        return exits.DONE
    from upgrader.cli import render, status_screen  # noqa: PLC0415

    if plan is None:
        every = session.run(states.overview)
        if output == "table":
            render.show(status_screen.overview(every.stacks, every.plans))
        else:
            show(every, output)
        return exits.DONE
    seen = session.run(lambda context: states.one(context, plan))
    if output == "table":
        render.show(status_screen.status(seen))
    else:
        show(seen, output)
    return exits.DONE


COMMANDS = (status,)
