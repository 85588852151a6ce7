"""Pods on a node that its upgrade would end: evicted while it drains, listed again before each act that ends pods.

A taint does not keep a pod away that tolerates it. Such a pod may arrive after the drain, without a request to
checkpoint. The pods of an earlier upgrade Job are waited for as well, because a Job ends before its pods do.
"""

from datetime import datetime, timedelta

import msgspec

from upgrader.core.model.phases import NodePhase, UpgradeReason
from upgrader.core.node_upgrade.upgrade_state import (
    Act,
    Decision,
    GroupView,
    NodeView,
    OtherPod,
    PodOutcome,
    explain_silence,
    keep_phase,
    missing_gpus,
    to_evict,
)

UNSUPPORTED = "RunningOnUnsupportedKernel"
"""Why a repair is blocked: pods without an acknowledgement are on the node; the upgrade continues when they end."""

EVICTION_REFUSED = "EvictionRefused"
"""Why a node upgrade is blocked: a pod may not be evicted, now or in its present state."""

ARRIVED = "PodsArrived"
"""Why a node upgrade is blocked, and why it reverts: pods arrived after the node was drained."""

LAST_ACT = timedelta(seconds=60)
"""How long beyond its deadline an upgrade that ends still tries to delete its Job, or to switch the operands off."""

_ENDING = frozenset({NodePhase.UNLOADING, NodePhase.UPGRADING})
"""The phases before an upgrade Job, which ends every pod in `others`; later acts only take devices."""


def evict_pods(view: NodeView, group: GroupView, now: datetime) -> Decision | None:
    """Evict the pods that may be evicted, under their budgets; None if there is no such pod."""
    evict = to_evict(view, group)
    if not evict:
        return None
    work = view.reason is UpgradeReason.REPAIR and len(evict) < len(view.others)
    # An order covers the pods that are on the node while it drains, not pods that arrive later.
    order = view.forced.get(NodePhase.DRAINING, "") if view.phase is NodePhase.DRAINING else ""
    if view.evict_after is not None and now < view.evict_after and not order:
        return keep_phase(view, view.not_evicted, blocked=UNSUPPORTED if work else EVICTION_REFUSED)
    how = view.not_evicted or f"evicting {len(evict)} pod(s) as their PodDisruptionBudgets allow"
    waiting = keep_phase(view, f"deleting {len(evict)} pod(s) {order}" if order else how, Act.EVICT)
    return msgspec.structs.replace(waiting, evict=evict, blocked=UNSUPPORTED if work else "")


def find_arrivals(view: NodeView) -> tuple[OtherPod, ...]:
    """Pods that arrived after the drain and that the next act of the upgrade would end, or take devices from.

    Members of stopped gangs are not among them. An upgrade that reverts because of such pods takes nothing from them.
    """
    any_pod = view.phase in _ENDING
    if is_untouched(view) and not any_pod:
        return ()
    return tuple(pod for pod in view.others if not pod.member and (any_pod or pod.gpus))


def is_untouched(view: NodeView) -> bool:
    """Whether the upgrade reverts from before its upgrade Job was created: nothing on the node is to be undone."""
    return view.reverting and view.failure == ARRIVED


def wait_for_arrivals(view: NodeView, group: GroupView, now: datetime) -> Decision | None:
    """Evict pods, or wait for them, in place of an act that would end them; None if no pod is in the way."""
    arrived = find_arrivals(view)
    if not arrived:
        return None
    blocked = UNSUPPORTED if view.reason is UpgradeReason.REPAIR else ARRIVED
    if evict := evict_pods(view, group, now):
        return msgspec.structs.replace(evict, blocked=blocked)
    pod = arrived[0]
    why = f"waiting for pod {pod.namespace}/{pod.name} to end, which was created after the drain"
    return keep_phase(view, why, blocked=blocked)


def end_first_upgrade(view: NodeView) -> Decision | None:
    """Delete the forward upgrade Job before the revert creates its own; None if it has ended or does not exist."""
    if not view.upgrade_jobs.first:
        return None
    return keep_phase(view, "deleting the first upgrade Job", Act.CANCEL_FIRST)


def end_upgrades(view: NodeView, now: datetime) -> Decision | None:
    """Delete upgrade Jobs whose node was deleted: they must not work on another node that joins under its name."""
    why, own = "the node was deleted; deleting its upgrade Job", view.upgrade
    if _is_past_last_act(view, now):
        return None
    if view.upgrade_jobs.first:
        return keep_phase(view, why, Act.CANCEL_FIRST)
    made = own.suspended or own.outcome is not PodOutcome.ABSENT
    return keep_phase(view, why, Act.CANCEL) if view.phase is NodePhase.UPGRADING and made else None


def end_unstarted(view: NodeView, waiting: Decision | None, now: datetime | None = None) -> Decision | None:
    """Delete an upgrade Job that was created and may not be started: a write that starts it may be in flight.

    Args:
        view: the node.
        waiting: the decision to wait instead; None if nothing prevents the start.
        now: given if the deadline has passed; the deletion is tried until LAST_ACT after it.
    """
    if waiting is None or not view.upgrade.suspended or view.phase is not NodePhase.UPGRADING:
        return None
    if now is not None and _is_past_last_act(view, now):
        return None
    return msgspec.structs.replace(waiting, acts=(Act.CANCEL,), evict=())


def _is_past_last_act(view: NodeView, now: datetime) -> bool:
    return view.deadline is not None and now >= view.deadline + LAST_ACT


def wait_for_upgrades(view: NodeView) -> Decision | None:
    """Create no upgrade Job while a pod of another one works on the node; None if there is no such pod."""
    left = view.upgrade_jobs.pods
    return (
        keep_phase(view, explain_silence(view, f"waiting for {left} pod(s) of an earlier upgrade Job to end"))
        if left
        else None
    )


def explain_no_validation(view: NodeView) -> str:
    """Why an untouched node is released without a validation, as a sentence; empty if it can be validated."""
    pod = next((other for other in view.others if other.gpus and not other.member), None)
    if pod is None or not is_untouched(view) or missing_gpus(view):
        return ""
    return f"released without validation: the upgrade changed nothing, and pod {pod.namespace}/{pod.name} holds GPUs"
