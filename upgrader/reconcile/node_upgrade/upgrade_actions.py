"""Acts and record of a decision for one node: first idempotent acts, then one status write."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.kubernetes import Node, ObjectMeta
from upgrader.api.resources import NODE_UPGRADES, NODES, PODS, ResourceKind
from upgrader.api.v1alpha1 import NodeUpgrade, StepStatus
from upgrader.core import timing
from upgrader.core.errors import ConflictError, NameTakenError, NotFoundError, UpgraderError
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.phases import NodePhase, UpgradeReason, is_final
from upgrader.core.node_upgrade import clearing
from upgrader.core.node_upgrade.upgrade_state import NO_ANSWER, REFUSAL, Act, Decision, NodeView
from upgrader.reconcile.node_upgrade import evictions, upgrade_jobs
from upgrader.reconcile.node_upgrade.evictions import EvictionRefusal
from upgrader.reconcile.node_upgrade.rehearsals import rehearse_upgrade
from upgrader.reconcile.node_upgrade.upgrade_reading import blocked_condition, effective_state, list_others
from upgrader.reconcile.render import node_patches
from upgrader.reconcile.runtime import finalizers
from upgrader.reconcile.runtime.context import Context, check_in_step, record_status
from upgrader.stack import manifests
from upgrader.stack.node_pods import pod_results
from upgrader.telemetry import metrics

log = structlog.get_logger()

ADMITTED_AGAIN_SECONDS = 10.0
"""Pause after a validation pod that the kubelet did not admit; a plugin registers within a second or two."""


async def perform_decision(
    context: Context, upgrade: NodeUpgrade, view: NodeView, decision: Decision, ask_until: str | None
) -> NodeUpgrade:
    """Perform the acts of a decision and record it; returns the upgrade after the write.

    Raises:
        ConflictError: an object changed since it was read; nothing is recorded and the next step decides again.
    """
    refusal: EvictionRefusal | None = None
    for act in decision.acts:
        context.leadership.check()
        context.crash.reached(("NodeUpgrade", view.phase.value, "before-act"))
        refusal = await _perform_act(context, upgrade, view, decision, act) or refusal
        context.crash.reached(("NodeUpgrade", view.phase.value, "after-act"))
    if refusal is not None:
        blocked = decision.blocked or clearing.EVICTION_REFUSED
        decision = msgspec.structs.replace(decision, blocked=blocked, message=refusal.message)
    status = _status_patch(context, upgrade, view, decision, ask_until)
    if refusal is not None:
        status |= {"message": refusal.message, "eviction": evictions.eviction_status(context, refusal)}
    if not status:
        return upgrade
    written = await record_status(
        context, NODE_UPGRADES, upgrade.metadata, status, left=view.phase, entered=decision.phase
    )
    if decision.phase is not view.phase:
        await _emit_event(context, upgrade, view, decision)
    return written


def changes_nothing(context: Context, upgrade: NodeUpgrade, view: NodeView, decision: Decision) -> bool:
    """Whether a decision does nothing and writes nothing."""
    if decision.acts or decision.phase is not view.phase or decision.reverting != view.reverting:
        return False
    return not _waiting_patch(context, upgrade, view, decision)


async def record_refusal(context: Context, upgrade: NodeUpgrade, error: UpgraderError) -> None:
    """Record an error of the API server in the upgrade; the next step retries, and the deadline stays."""
    condition, reason = blocked_condition(upgrade.status), REFUSAL if error.refused else NO_ANSWER
    if condition is None or (condition.reason, condition.message) != (reason, str(error)):
        status = {"message": error.brief, "conditions": [_blocked_condition(context, reason, str(error))]}
        await record_status(context, NODE_UPGRADES, upgrade.metadata, status)


async def drop_finalizers(context: Context, upgrades: Iterable[NodeUpgrade]) -> None:
    """Remove the finalizer of ended upgrades that are being deleted."""
    for upgrade in upgrades:
        if (
            is_final(upgrade.status.phase)
            and upgrade.metadata.deletion_timestamp
            and names.FINALIZER in upgrade.metadata.finalizers
        ):
            await finalizers.remove_finalizer(context, NODE_UPGRADES, upgrade.metadata)


async def _perform_act(
    context: Context, upgrade: NodeUpgrade, view: NodeView, decision: Decision, act: Act
) -> EvictionRefusal | None:
    """Perform one act; returns a temporary refusal."""
    match act:
        case Act.PREPARE:
            await rehearse_upgrade(context, upgrade, _present_node(upgrade, view))
            await _create_named(context, PODS, manifests.prepare_pod(upgrade, context.stack, adopted=_is_adopted(view)))
        case Act.CLOSE:
            await _patch_node(context, upgrade, partial(_closing_patch, context, upgrade))
        case Act.EVICT:
            return await evictions.evict_pods(context, decision.evict)
        case Act.OPERANDS_OFF:
            await _patch_node(context, upgrade, node_patches.operands_off)
        case Act.REMOVE_DRIVER:
            await _patch_node(
                context, upgrade, lambda node: node_patches.driver_away(node, upgrade, effective_state(upgrade))
            )
        case Act.UPGRADE:
            body = manifests.upgrade_job(
                upgrade, reverting=view.reverting, settings=context.stack, adopted=_is_adopted(view)
            )
            job = await upgrade_jobs.make_job(context, body)
            await _look_again(context, upgrade, view)
            await upgrade_jobs.start_job(context, job)
        case Act.CANCEL | Act.CANCEL_FIRST:
            back = view.reverting and act is Act.CANCEL
            await upgrade_jobs.cancel_job(context, manifests.upgrade_name(upgrade, reverting=back))
        case Act.DRIVER_ON:
            await _patch_node(context, upgrade, lambda node: node_patches.driver_on(node, effective_state(upgrade)))
        case Act.OPERANDS_ON:
            await _look_again(context, upgrade, view)
            await _patch_node(context, upgrade, node_patches.operands_on)
        case Act.VALIDATE:
            await _ensure_validation_pod(context, _validation_pod(context, upgrade, view))
        case Act.RELEASE:
            await _patch_node(
                context,
                upgrade,
                lambda node: node_patches.release_node(node, upgrade.metadata.uid, _reached_revision(upgrade)),
            )
    return None


async def _look_again(context: Context, upgrade: NodeUpgrade, view: NodeView) -> None:
    """List the node's pods right before an act that would end some, since the last read may be old.

    Raises:
        ConflictError: a new pod is there; the next step decides about it.
    """
    fresh = msgspec.structs.replace(view, others=await list_others(context, upgrade, view))
    if there := clearing.find_arrivals(fresh):
        raise ConflictError(f"pod {there[0].namespace}/{there[0].name} appeared on node {upgrade.spec.node.name}")


async def _ensure_validation_pod(context: Context, body: dict[str, Any]) -> None:
    """Create the validation pod; a pod that the kubelet did not admit is deleted first, after a pause."""
    meta = body["metadata"]
    there = await context.cluster.get(PODS, meta["name"], meta["namespace"])
    if there is None or not pod_results.is_not_admitted(there):
        await _create_named(context, PODS, body)
        return
    made = timing.parse_time(there.metadata.creation_timestamp)
    if (context.clock.now() - made).total_seconds() >= ADMITTED_AGAIN_SECONDS:
        await context.cluster.delete(PODS, there.metadata)


def _validation_pod(context: Context, upgrade: NodeUpgrade, view: NodeView) -> dict[str, Any]:
    node = _present_node(upgrade, view)
    return manifests.validation_pod(upgrade, reverting=view.reverting, node=node, settings=context.stack)


def _present_node(upgrade: NodeUpgrade, view: NodeView) -> NodeFacts:
    if view.node is None:
        raise NotFoundError(f"node {upgrade.spec.node.name} does not exist")
    return view.node


def _reached_revision(upgrade: NodeUpgrade) -> str:
    """The revision that the node has now; empty if the upgrade never switched a driver on."""
    walked = any(step.name is NodePhase.LOADING for step in upgrade.status.steps)
    return effective_state(upgrade).revision if walked else ""


async def _create_named(context: Context, kind: ResourceKind[Any], body: dict[str, Any]) -> None:
    try:
        await context.cluster.create(kind, body)
    except NameTakenError:
        # The name follows from the NodeUpgrade, so this act was performed before a restart.
        log.info("already created", kind=kind.kind, name=body["metadata"]["name"])


async def _patch_node(context: Context, upgrade: NodeUpgrade, patch: Callable[[Node], dict[str, Any] | None]) -> None:
    """Patch the Node after a fresh read; another node of the same name is never changed."""
    node = await context.cluster.get(NODES, upgrade.spec.node.name)
    if node is None or node.metadata.uid != upgrade.spec.node.uid:
        raise NotFoundError(f"node {upgrade.spec.node.name} does not exist")
    may_stand = {None, upgrade.metadata.uid, upgrade.spec.takes_over}
    if node.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY) not in may_stand:
        raise ConflictError(f"node {node.metadata.name} is claimed by another upgrade")
    body = patch(node)
    if body is not None:
        await context.cluster.merge(NODES, node.metadata, body)


def _closing_patch(context: Context, upgrade: NodeUpgrade, node: Node) -> dict[str, Any] | None:
    """The patch that closes a node; None if it is closed."""
    body = node_patches.close_node(node, upgrade, timing.format_time(context.clock.now()))
    if body is not None:
        check_in_step(context)
    return body


def _status_patch(
    context: Context, upgrade: NodeUpgrade, view: NodeView, decision: Decision, ask_until: str | None
) -> dict[str, Any]:
    """The status patch; empty if no relevant field changed."""
    now = context.clock.now()
    if decision.phase is view.phase and decision.reverting == view.reverting:
        return _waiting_patch(context, upgrade, view, decision)
    steps = [_step_entry(step) for step in upgrade.status.steps]
    if steps:
        steps[-1] |= {"endedAt": timing.format_time(now), "result": decision.message or decision.failure}
    status: dict[str, Any] = {
        "phase": decision.phase.value,
        "reverting": decision.reverting,
        "reason": decision.failure,
        "message": decision.message,
        "deadline": None,
        "eviction": None,
        "conditions": [],
    }
    seconds = upgrade.spec.limits.phase_seconds(decision.phase)
    if not is_final(decision.phase) and seconds is not None:
        deadline = timing.format_time(timing.add_seconds(now, seconds))
        if decision.phase is NodePhase.PREPARED and ask_until is not None:
            deadline = ask_until
        status["deadline"] = deadline
        steps.append({"name": decision.phase.value, "startedAt": timing.format_time(now), "deadline": deadline})
    status["steps"] = steps
    if decision.phase is NodePhase.TAINTING and view.node is not None:
        status["found"] = {
            "unschedulable": view.node.unschedulable,
            "gpus": view.node.gpus,
            "kubeletVersion": view.node.kubelet_version,
            **({"allocatable": view.resources.allocatable} if view.resources.allocatable else {}),
        }
    metrics.PHASE_SECONDS.labels("NodeUpgrade", view.phase.value).observe((now - view.phase_since).total_seconds())
    return status


def _step_entry(step: StepStatus) -> dict[str, Any]:
    whole: dict[str, Any] = {"name": step.name.value, "startedAt": step.started_at, "deadline": step.deadline}
    return whole | ({"endedAt": step.ended_at, "result": step.result} if step.ended_at else {})


def _waiting_patch(context: Context, upgrade: NodeUpgrade, view: NodeView, decision: Decision) -> dict[str, Any]:
    """The status patch of a phase that waits: only for a blocker, a new deadline, or a long wait."""
    condition = blocked_condition(upgrade.status)
    if decision.blocked != (condition.reason if condition is not None else ""):
        return {
            "message": decision.message,
            "conditions": [_blocked_condition(context, decision.blocked, decision.message)],
        }
    if decision.deadline is not None and decision.deadline != view.deadline:
        shown = timing.format_time(decision.deadline)
        steps = [_step_entry(step) for step in upgrade.status.steps]
        for step in steps[-1:]:
            step["deadline"] = shown
        return {"message": decision.message, "deadline": shown, "steps": steps}
    waited = (context.clock.now() - view.phase_since).total_seconds()
    if waited > context.notice_seconds and decision.message and decision.message != upgrade.status.message:
        return {"message": decision.message}
    return {}


def _blocked_condition(context: Context, reason: str, message: str) -> dict[str, Any]:
    return {
        "type": "Blocked",
        "status": "True" if reason else "False",
        "reason": reason or "NothingHolds",
        "message": message,
        "lastTransitionTime": timing.format_time(context.clock.now()),
    }


async def _emit_event(context: Context, upgrade: NodeUpgrade, view: NodeView, decision: Decision) -> None:
    """Emit one Event on the Node with the result of its upgrade. (Its phases are in the NodeUpgrade.)"""
    if not is_final(decision.phase) or view.node is None:
        return
    worth = decision.phase is NodePhase.SUCCEEDED or upgrade.spec.reason is UpgradeReason.REPAIR
    if not worth and view.phase in {NodePhase.PENDING, NodePhase.PREPARED}:
        return
    plan = f" for plan {upgrade.spec.plan}" if upgrade.spec.plan else ""
    goal = effective_state(upgrade)
    text = f"{upgrade.spec.reason.value}{plan} {decision.phase.value}: driver {goal.driver_version}, {decision.message}"
    meta = ObjectMeta(name=view.node.name, uid=view.node.uid)
    await context.cluster.event(
        meta,
        "Node",
        "v1",
        reason=f"Upgrade{decision.phase.value}",
        message=text,
        warning=decision.phase is NodePhase.FAILED,
    )


def _is_adopted(view: NodeView) -> bool:
    return view.node is not None and view.node.adopted
