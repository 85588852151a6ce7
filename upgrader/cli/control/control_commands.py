"""`upgrader approve | pause | resume | abort | rollback | force`: control of plans and node upgrades."""

from typing import TYPE_CHECKING

import click

from upgrader.cli.base import exit_codes
from upgrader.cli.base.session import Session, pass_session
from upgrader.cli.control import force_order, plan_control
from upgrader.cli.plan import pace_parser
from upgrader.cli.plan.pace_options import unguaranteed_option
from upgrader.cli.plan.plan_commands import make_prompt

if TYPE_CHECKING:
    from upgrader.reconcile.runtime.context import Context

approved_by_option = click.option(
    "--approved-by", "by", metavar="NAME", help="Name of the approver. Defaults to USER@HOST."
)
auto_option = click.option("--auto-approve", is_flag=True, help="Do not prompt for confirmation.")
expendable_option = click.option(
    "--expendable",
    multiple=True,
    metavar="JOB",
    help="Gang that may be ended without a checkpoint, in addition to the gangs that were approved before. Repeatable.",
)
lost_option = click.option(
    "--max-lost-gpu-hours",
    type=click.FloatRange(min=0),
    metavar="HOURS",
    help="Maximum number of GPU-hours that the whole plan may lose. Defaults to the loss so far, plus "
    "1.5 times the expected loss of the rest, plus 1.",
)


@click.command()
@click.argument("plan", required=False)
@approved_by_option
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
    """Approve the rest of PLAN within the limits of the current forecast and of the options.

    PLAN may be omitted if exactly one plan has not ended.
    """
    more = plan_control.AdditionalLimits(
        unguaranteed=allow_unguaranteed_placement, expendable=expendable, max_lost_gpu_hours=max_lost_gpu_hours
    )

    async def work(context: "Context") -> str:
        return await plan_control.approve_plan(
            context, plan, by=by, more=more, agree=make_prompt(auto_approve=auto_approve)
        )

    click.echo(session.run(work))
    return exit_codes.DONE


@click.command()
@click.argument("plan", required=False)
@pass_session
def pause(session: Session, *, plan: str | None) -> int:
    """Pause PLAN. The current batch is completed; no further batch starts.

    PLAN may be omitted if exactly one plan has not ended.
    """
    click.echo(session.run(lambda context: plan_control.pause_plan(context, plan)))
    return exit_codes.DONE


@click.command()
@click.argument("plan", required=False)
@pass_session
def resume(session: Session, *, plan: str | None) -> int:
    """Resume PLAN. Its failures so far are tolerated. After a failed canary it continues without canaries.

    PLAN may be omitted if exactly one plan has not ended.
    """
    click.echo(session.run(lambda context: plan_control.resume_plan(context, plan)))
    return exit_codes.DONE


@click.command()
@click.argument("plan", required=False)
@click.option(
    "--undo", is_flag=True, help="After the abort, create a plan that rolls the nodes back to their previous revision."
)
@pass_session
def abort(session: Session, *, plan: str | None, undo: bool) -> int:
    """Abort PLAN. Node upgrades that have not stopped anything are withdrawn; all others are completed.

    An aborted plan cannot be resumed. PLAN may be omitted if exactly one plan has not ended.
    """
    click.echo(session.run(lambda context: plan_control.abort_plan(context, plan, undo=undo)))
    return exit_codes.DONE


@click.command()
@click.option("--stack", help="Stack to roll back. Required if the cluster has several stacks.")
@click.option("--to", "revision", help="Revision to roll back to. Defaults to the previous revision.")
@approved_by_option
@auto_option
@click.option(
    "--max-unavailable",
    metavar="GPUS|PERCENT",
    help="Maximum number of GPUs that may be out of service at the same time, as for `plan`. Defaults "
    "to the value of the last plan of the stack.",
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
    """Create a plan that rolls the nodes back to an earlier revision. A running plan is aborted first."""
    budget = None if max_unavailable is None else pace_parser.parse_budget(max_unavailable)

    async def work(context: "Context") -> str:
        return await plan_control.roll_back(
            context,
            plan_control.RollbackOptions(
                stack=stack, revision=revision, budget=budget, unguaranteed=allow_unguaranteed_placement
            ),
            by=by,
            agree=make_prompt(auto_approve=auto_approve),
        )

    click.echo(session.run(work))
    return exit_codes.DONE


@click.command()
@click.argument("node")
@click.option("--step", required=True, help="Step in which the upgrade waits: Draining, Releasing or Failed.")
@click.option("--reason", required=True, help="Reason for this command. It is stored in the NodeUpgrade.")
@click.option("--by", metavar="NAME", help="Name of the user who forces the step. Defaults to USER@HOST.")
@pass_session
def force(session: Session, *, node: str, step: str, reason: str, by: str | None) -> int:
    """Force the waiting upgrade of NODE to continue.

    Draining: deletes pods that declare no checkpoint method or that a PodDisruptionBudget protects. Releasing:
    releases the node without waiting for the placement of its gang. Failed: releases a node that is held after a failed
    upgrade, and installs it again.

    This command never ends a job that declares a checkpoint method (exit code 4); see `approve --expendable`.
    """
    wish = force_order.ForcedStep(node=node, step=force_order.step_named(step), reason=reason, by=by)
    click.echo(session.run(lambda context: force_order.force_step(context, wish)))
    return exit_codes.DONE
