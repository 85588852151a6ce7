"""Pods on a node that its upgrade would end: evicted while it drains, looked for again before each act that ends pods.

A taint keeps no pod away that tolerates it. After the node was drained such a pod may have come, and nobody asked it.
An earlier upgrade Job of ours is waited for, too: by its pods, because a Job is over before they are.
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
    Outcome,
    away,
    missing_gpus,
    stay,
    to_evict,
)

UNSUPPORTED = "RunningOnUnsupportedKernel"
"""Why a repair is blocked: work that nobody acknowledged is on the node, and the upgrade goes on when it has ended."""

EVICTION_REFUSED = "EvictionRefused"
"""Why a node upgrade is blocked: a pod may not be evicted, now or as it is."""

ARRIVED = "PodsArrived"
"""Why a node upgrade is blocked, and why its walk turned round: pods came after the node was drained."""

LAST_ACT = timedelta(seconds=60)
"""How long beyond its deadline an upgrade that ends still tries to take its Job away, or to switch the operands off."""

_ENDING = frozenset({NodePhase.UNLOADING, NodePhase.UPGRADING})
"""The phases before an upgrade Job, which ends every pod that stands in `others`; later acts take devices only."""


def evicting(view: NodeView, group: GroupView, now: datetime) -> Decision | None:
    """Pods that may go are evicted under their budgets; None where there is no such pod."""
    evict = to_evict(view, group)
    if not evict:
        return None
    work = view.reason is UpgradeReason.REPAIR and len(evict) < len(view.others)
    # An order is for the pods that were there while the node was drained, not for those that came later.
    order = view.forced.get(NodePhase.DRAINING, "") if view.phase is NodePhase.DRAINING else ""
    if view.evict_after is not None and now < view.evict_after and not order:
        return stay(view, view.not_evicted, blocked=UNSUPPORTED if work else EVICTION_REFUSED)
    how = view.not_evicted or f"evicting {len(evict)} pod(s) under their budgets"
    waiting = stay(view, f"deleting {len(evict)} pod(s) {order}" if order else how, Act.EVICT)
    return msgspec.structs.replace(waiting, evict=evict, blocked=UNSUPPORTED if work else "")


def arrivals(view: NodeView) -> tuple[OtherPod, ...]:
    """Pods that came after the node was drained and that the next act of its upgrade would end, or take devices from.

    Members of gangs that were stopped are none. A walk that turned round for such pods takes nothing from them.
    """
    every = view.phase in _ENDING
    if untouched(view) and not every:
        return ()
    return tuple(pod for pod in view.others if not pod.member and (every or pod.gpus))


def untouched(view: NodeView) -> bool:
    """Whether the walk turned round before its upgrade Job was made, so that there is nothing to undo on the node."""
    return view.reverting and view.failure == ARRIVED


def wait_for_arrivals(view: NodeView, group: GroupView, now: datetime) -> Decision | None:
    """What is done in place of an act that would end pods; None where no pod is in its way."""
    there = arrivals(view)
    if not there:
        return None
    blocked = UNSUPPORTED if view.reason is UpgradeReason.REPAIR else ARRIVED
    if evict := evicting(view, group, now):
        return msgspec.structs.replace(evict, blocked=blocked)
    pod = there[0]
    why = f"waiting for pod {pod.namespace}/{pod.name} to end, which came after the node was drained"
    return stay(view, why, blocked=blocked)


def end_first_upgrade(view: NodeView) -> Decision | None:
    """The upgrade Job of the way there goes before the way back has one; None where it has ended or is gone."""
    if not view.upgrade_jobs.first:
        return None
    return stay(view, "taking away the upgrade Job of the way there", Act.CANCEL_FIRST)


def end_upgrades(view: NodeView, now: datetime) -> Decision | None:
    """Node upgrade Jobs whose node is gone are taken away: they must not work on a node that joins under its name."""
    why, own = "the node is gone; taking its upgrade Job away", view.upgrade
    if _beyond(view, now):
        return None
    if view.upgrade_jobs.first:
        return stay(view, why, Act.CANCEL_FIRST)
    made = own.suspended or own.outcome is not Outcome.ABSENT
    return stay(view, why, Act.CANCEL) if view.phase is NodePhase.UPGRADING and made else None


def end_unstarted(view: NodeView, waiting: Decision | None, now: datetime | None = None) -> Decision | None:
    """An upgrade Job that was made is removed where something keeps it from being started: a start may be on its way.

    Args:
        view: the node.
        waiting: what is waited for instead; None where nothing keeps it from being started.
        now: where the deadline has passed; for a while it is tried still.
    """
    if waiting is None or not view.upgrade.suspended or view.phase is not NodePhase.UPGRADING:
        return None
    if now is not None and _beyond(view, now):
        return None
    return msgspec.structs.replace(waiting, acts=(Act.CANCEL,), evict=())


def _beyond(view: NodeView, now: datetime) -> bool:
    return view.deadline is not None and now >= view.deadline + LAST_ACT


def wait_for_upgrades(view: NodeView) -> Decision | None:
    """No upgrade Job is made while a pod of another works on the node; None where there is no such pod."""
    left = view.upgrade_jobs.pods
    return stay(view, away(view, f"waiting for {left} pod(s) of an earlier upgrade Job to end")) if left else None


def as_it_was(view: NodeView) -> str:
    """Why an untouched node is given back without a validation, as a sentence; empty where it can be validated."""
    pod = next((one for one in view.others if one.gpus and not one.member), None)
    if pod is None or not untouched(view) or missing_gpus(view):
        return ""
    return f"nothing was changed, and pod {pod.namespace}/{pod.name} has devices that a validation would need"
