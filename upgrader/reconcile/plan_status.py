"""Between a plan's objects and the values of core.rollout: what is read from them, and the status that is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from upgrader.api import names
from upgrader.api.explicit import explicit
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.api.v1alpha1 import (
    CheckpointRequest,
    Failure,
    ForecastSummary,
    Hold,
    NodeUpgrade,
    PlanCounts,
    UpgradePlan,
)
from upgrader.core import timing
from upgrader.core.catalogue import Catalogue
from upgrader.core.errors import ConflictError
from upgrader.core.naming import object_name
from upgrader.core.phases import NodePhase, PlanPhase, RequestPhase, ends
from upgrader.core.rollout import PlanDecision, PlanView, Rival, TalkFacts, VisitFacts, goes_first
from upgrader.reconcile.context import Context, record
from upgrader.reconcile.orders import LABEL_BATCH
from upgrader.telemetry import metrics

if TYPE_CHECKING:
    from upgrader.reconcile.plans import Read

WORST = 10
"""Holds that the status shows; `upgrader plan` shows all."""


def view(read: Read) -> PlanView:
    """The values that `core.rollout.decide` works on."""
    plan, made, batch = read.plan, read.forecast, read.open_batch
    stack_revision = read.stack.status.update_revision if read.stack is not None else None
    others = [
        _rival(one, startable=one.spec.target_revision in {*read.kept, stack_revision})
        for one in read.others
        if one.spec.stack == plan.spec.stack
    ]
    return PlanView(
        name=plan.metadata.name,
        phase=plan.status.phase,
        run=plan.spec.run,
        deleted=plan.metadata.deletion_timestamp is not None,
        approved=plan.spec.approval is not None,
        target_revision=plan.spec.target_revision,
        stack_present=read.stack is not None and read.stack.metadata.deletion_timestamp is None,
        stack_revision=stack_revision,
        started_stack_revision=plan.status.stack_revision,
        first=goes_first(_rival(plan), others),
        tolerated_failures=plan.spec.tolerated_failures,
        max_interruptions=plan.spec.approval.envelope.max_interruptions if plan.spec.approval else 0,
        batches=len(plan.status.batches),
        open_batch=batch.number if batch is not None else None,
        created=_created(read),
        visits=visit_facts(read.visits),
        talks=tuple(
            TalkFacts(
                name=one.metadata.name,
                gang=one.spec.gang,
                batch=int(one.metadata.labels.get(LABEL_BATCH, "0")),
                phase=one.status.phase,
                reason=one.status.reason,
                message=one.status.message,
                stopped=one.status.stopped_at is not None,
                late=_late(one),
            )
            for one in read.requests
        ),
        next_interruptions=sum(len(one.gangs) for one in made.batches[0].closures) if made and made.batches else 0,
        waiting=(made.summary.held if made else 0) + len(read.cooling),
        installs=made.summary.installs if made else 0,
        next_batch=bool(made and made.batches),
        synced=batch is not None or made is not None,
        revision_known=read.target is not None,
    )


def _rival(plan: UpgradePlan, *, startable: bool = True) -> Rival:
    return Rival(
        name=plan.metadata.name,
        made_at=plan.metadata.creation_timestamp,
        phase=plan.status.phase,
        approved=plan.spec.approval is not None,
        startable=startable,
        run=plan.spec.run,
        busy=any(one.ended_at is None for one in plan.status.batches),
    )


def _late(request: CheckpointRequest) -> bool:
    restarted, latest = request.status.restarted_at, request.status.restart_by
    return bool(restarted and latest) and timing.parse(restarted or "") >= timing.parse(latest or "")


def visit_facts(visits: Sequence[NodeUpgrade]) -> tuple[VisitFacts, ...]:
    """The plan's visits."""
    return tuple(
        VisitFacts(
            name=one.metadata.name,
            node=one.spec.node.name,
            batch=int(one.metadata.labels.get(LABEL_BATCH, "0")),
            phase=one.status.phase,
            failure=one.status.reason,
            message=_why(one) if one.status.phase is NodePhase.FAILED else one.status.message,
            ended_at=timing.parse(one.status.steps[-1].ended_at)
            if one.status.steps and one.status.steps[-1].ended_at
            else None,
        )
        for one in visits
    )


def _why(upgrade: NodeUpgrade) -> str:
    """What was said where the walk turned: what follows it is only the way back."""
    steps = upgrade.status.steps
    offs = [at for at, one in enumerate(steps) if one.name is NodePhase.OFF]
    if upgrade.status.reason == "RevertFailed" or not steps:
        return upgrade.status.message
    if upgrade.status.reverting and len(offs) > 1:
        return steps[offs[1] - 1].result
    if steps[-1].name is NodePhase.RELEASING and len(steps) > 1:
        return steps[-2].result
    return upgrade.status.message


def _created(read: Read) -> bool:
    """Whether every visit of the open batch was made that can be made: nodes may have left, images may have gone."""
    batch = read.open_batch
    if batch is None:
        return True
    there = {one.spec.node.name for one in read.visits if one.metadata.labels.get(LABEL_BATCH) == str(batch.number)}
    missing = [node for closure in batch.closures for node in closure.nodes if node not in there]
    if not missing or read.snapshot is None or read.target is None:
        return not missing
    facts = {node.name: node for node in read.snapshot.nodes}
    catalogue = Catalogue(read.snapshot.images)
    return all(name not in facts or catalogue.wanted(facts[name], read.target) is None for name in missing)


def render(context: Context, read: Read, decision: PlanDecision) -> dict[str, Any]:
    """The status that follows from a decision; stored batches are the caller's."""
    plan, now = read.plan, timing.show(context.clock.now())
    status: dict[str, Any] = {
        "observedGeneration": plan.metadata.generation,
        "phase": decision.phase.value,
        "message": decision.message,
        "counts": explicit(_counts(read)),
        "failures": [
            msgspec.to_builtins(Failure(subject=one.subject, reason=one.reason, message=one.message))
            for one in decision.failures
        ],
    }
    if read.forecast is not None:
        made = read.forecast.summary
        status["forecast"] = explicit(
            ForecastSummary(batches=made.batches, nodes=made.nodes, interruptions=made.interruptions, held=made.held)
        )
        status["holds"] = _holds(read)
    if plan.status.phase is PlanPhase.PROPOSED and decision.phase is PlanPhase.RUNNING:
        status["startedAt"] = now
        status["stackRevision"] = read.stack.status.update_revision if read.stack is not None else None
    elif read.stack is not None and read.stack.status.update_revision == plan.spec.target_revision:
        status["stackRevision"] = plan.spec.target_revision  # from here on, leaving it is another wish
    if ends(decision.phase) and not ends(plan.status.phase):
        status["endedAt"] = now
    if decision.end_batch:
        status["batches"] = [
            msgspec.to_builtins(one) | ({} if one.ended_at else {"endedAt": now}) for one in plan.status.batches
        ]
    return status


def _holds(read: Read) -> list[dict[str, Any]]:
    if read.forecast is None:
        return []
    metrics.show_holds(read.plan.metadata.name, Counter(hold.reason.value for hold in read.forecast.holds))
    cooling = [
        Hold(subject=node, reason="RetriedLater", message="its closure was let go and is left alone for a while")
        for node in sorted(read.cooling)
    ]
    worst = sorted(read.forecast.holds, key=lambda hold: -len(hold.nodes))
    shown = [Hold(subject=one.subject, reason=one.reason.value, message=one.message) for one in worst]
    return [msgspec.to_builtins(one) for one in (*shown, *cooling)[:WORST]]


def _counts(read: Read) -> PlanCounts:
    latest = {one.node: one for one in sorted(visit_facts(read.visits), key=lambda one: one.batch)}
    still = {one.node for one in read.forecast.drift if one.drifted} if read.forecast is not None else set()
    done = sum(one.phase is NodePhase.SUCCEEDED for one in latest.values())
    return PlanCounts(
        nodes=max(read.plan.status.counts.nodes, len(latest.keys() | still)),
        succeeded=done,
        failed=sum(one.phase is NodePhase.FAILED for one in latest.values()),
        interruptions=sum(one.status.stopped_at is not None for one in read.requests),
        restored=sum(one.status.phase is RequestPhase.RESTORED for one in read.requests),
    )


async def write(context: Context, read: Read, decision: PlanDecision) -> UpgradePlan:
    """Write the plan's status where it says something new; the plan as it is afterwards."""
    plan = read.plan
    status = render(context, read, decision)
    present = explicit(plan.status)
    if all(_same(present.get(key), value) for key, value in status.items()):
        return plan
    written: UpgradePlan = await record(
        context, UPGRADE_PLANS, plan.metadata, status, left=plan.status.phase, entered=decision.phase
    )
    if decision.phase is not plan.status.phase:
        await _tell(context, plan, decision)
    return written


def _same(before: object, after: object) -> bool:
    # Unset fields are left out on the wire: an empty list, an empty object and nothing are the same.
    return before == after or (not before and not after)


async def _tell(context: Context, plan: UpgradePlan, decision: PlanDecision) -> None:
    meta = ObjectMeta(name=plan.metadata.name, uid=plan.metadata.uid)
    await context.cluster.event(
        meta,
        UPGRADE_PLANS.kind,
        UPGRADE_PLANS.api_version,
        reason=f"Plan{decision.phase.value}",
        message=decision.message,
        warning=decision.phase in {PlanPhase.FAILED, PlanPhase.PAUSED},
    )


async def ensure_undo(context: Context, read: Read, plan: UpgradePlan) -> None:
    """The rollback plan of AbortAndUndo: an ordinary plan to the revision that the upgraded nodes had before."""
    upgraded = [one for one in read.visits if one.status.phase is NodePhase.SUCCEEDED]
    left = sorted({one.spec.source.revision for one in upgraded if one.spec.source.revision})
    if plan.status.rollback_plan is not None or not left:
        return
    if len(left) > 1:
        message = f"aborted; its nodes had revisions {', '.join(left)}: choose one and use upgrader rollback"
        if plan.status.message != message:
            await record(context, UPGRADE_PLANS, plan.metadata, {"message": message})
        return
    name = object_name(f"{plan.metadata.name}-undo", plan.metadata.uid, "undo")
    spec = explicit(plan.spec) | {"targetRevision": left[0], "run": "Go"}
    body = {
        "apiVersion": UPGRADE_PLANS.api_version,
        "kind": UPGRADE_PLANS.kind,
        "metadata": {"name": name, "labels": {names.LABEL_STACK: plan.spec.stack}},
        "spec": spec,
    }
    context.leadership.check()
    with suppress(ConflictError):  # made before a restart; its name follows from the plan
        await context.cluster.create(UPGRADE_PLANS, body)
    await record(context, UPGRADE_PLANS, plan.metadata, {"rollbackPlan": name})
