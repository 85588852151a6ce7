"""`upgrader approve | pause | resume | abort | rollback | force`: what people say to a plan and to a node upgrade."""

from typing import TYPE_CHECKING

import click

from upgrader.cli.base import exit_codes
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.plan.pace_options import unguaranteed_option
from upgrader.cli.plan.plan_commands import agreement

if TYPE_CHECKING:
    from upgrader.reconcile.runtime.context import Context

by_option = click.option("--by", help="Who approves; this user at this machine unless given.")
auto_option = click.option("--auto-approve", is_flag=True, help="Do not ask.")
expendable_option = click.option(
    "--expendable", multiple=True, metavar="JOB",
    help="Gang that may be ended without a checkpoint, beside those agreed to already. Repeatable.",
)  # fmt: skip
lost_option = click.option(
    "--max-lost-gpu-hours", type=click.FloatRange(min=0), metavar="HOURS",
    help="Most GPU-hours that the whole plan may lose; half as much again as is expected unless given.",
)  # fmt: skip


@click.command()
@click.argument("plan", required=False)
@by_option
@auto_option
@unguaranteed_option
@expendable_option
@lost_option
@pass_session
def approve(
    session: Session,
    *,
    plan: str | None,
    by: str | None,
    auto_approve: bool,
    allow_unguaranteed_placement: bool,
    expendable: tuple[str, ...],
    max_lost_gpu_hours: float | None,
) -> int:
    """Agree to what PLAN has still to do, as it is foreseen now, and to more where that is said."""
    from upgrader.cli.control import plan_control  # noqa: PLC0415

    more = plan_control.More(
        unguaranteed=allow_unguaranteed_placement, expendable=expendable, max_lost_gpu_hours=max_lost_gpu_hours
    )

    async def work(context: "Context") -> str:
        return await plan_control.approve(context, plan, by=by, more=more, agree=agreement(auto_approve=auto_approve))

    click.echo(session.run(work))
    return exit_codes.DONE


@click.command()
@click.argument("plan", required=False)
@pass_session
def pause(session: Session, *, plan: str | None) -> int:
    """Let the started batch of PLAN end, and start no other."""
    from upgrader.cli.control import plan_control  # noqa: PLC0415

    click.echo(session.run(lambda context: plan_control.pause(context, plan)))
    return exit_codes.DONE


@click.command()
@click.argument("plan", required=False)
@pass_session
def resume(session: Session, *, plan: str | None) -> int:
    """Let PLAN go on; the failures that it has had so far are tolerated."""
    from upgrader.cli.control import plan_control  # noqa: PLC0415

    click.echo(session.run(lambda context: plan_control.resume(context, plan)))
    return exit_codes.DONE


@click.command()
@click.argument("plan", required=False)
@click.option("--undo", is_flag=True, help="Then bring the nodes back to the revision they had.")
@pass_session
def abort(session: Session, *, plan: str | None, undo: bool) -> int:
    """Take back what PLAN has started and not switched off yet; end the rest forward. Cannot be taken back."""
    from upgrader.cli.control import plan_control  # noqa: PLC0415

    click.echo(session.run(lambda context: plan_control.abort(context, plan, undo=undo)))
    return exit_codes.DONE


@click.command()
@click.option("--stack", help="Stack to bring back; not needed where there is only one.")
@click.option("--to", "revision", help="Revision to go back to; the one before unless given.")
@by_option
@auto_option
@click.option(
    "--max-unavailable", metavar="GPUS|PERCENT", help="As for `plan`; that of the stack's last plan unless given."
)
@unguaranteed_option
@pass_session
def rollback(
    session: Session,
    *,
    stack: str | None,
    revision: str | None,
    by: str | None,
    auto_approve: bool,
    max_unavailable: str | None,
    allow_unguaranteed_placement: bool,
) -> int:
    """Bring the nodes back to an older revision, with a plan as any other; a plan under way is aborted first."""
    from upgrader.cli.control import plan_control  # noqa: PLC0415
    from upgrader.cli.plan import pace_parser  # noqa: PLC0415

    budget = None if max_unavailable is None else pace_parser.budget(max_unavailable)

    async def work(context: "Context") -> str:
        return await plan_control.rollback(
            context,
            plan_control.Back(stack=stack, revision=revision, budget=budget, unguaranteed=allow_unguaranteed_placement),
            by=by,
            agree=agreement(auto_approve=auto_approve),
        )

    click.echo(session.run(work))
    return exit_codes.DONE


@click.command()
@click.argument("node")
@click.option("--step", required=True, help="Step that the node's upgrade waits in: Draining, Releasing or Failed.")
@click.option("--reason", required=True, help="Why; it is kept in the NodeUpgrade.")
@click.option("--by", help="Who orders it; this user at this machine unless given.")
@pass_session
def force(session: Session, *, node: str, step: str, reason: str, by: str | None) -> int:
    """Order a node upgrade that waits at NODE to go on.

    Draining: pods that declare nothing, or that a budget keeps, are deleted. Releasing: the node is given back without
    waiting for its gang. Failed: a node that is kept after its upgrade failed is given back and installed anew. No
    order ends a job that declares how it is asked.
    """
    from upgrader.cli.control import force_order  # noqa: PLC0415

    wish = force_order.ForcedStep(node=node, step=force_order.step_named(step), reason=reason, by=by)
    click.echo(session.run(lambda context: force_order.force(context, wish)))
    return exit_codes.DONE


COMMANDS = (approve, pause, resume, abort, rollback, force)
