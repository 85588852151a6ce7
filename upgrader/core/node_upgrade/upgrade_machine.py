"""What happens next on one node of a group: pure, from what was read to a decision with its reason.

The walk and its deadlines are `phases.TRANSITIONS`; this module says when which row is taken. Once a mark may stand on
the node, the only ways out are forward, revert (at Unloading, source and target exchanged, once) and Releasing, which
takes the marks away.
"""

from datetime import datetime

import msgspec

from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.phases import NodePhase, RequestPhase, UpgradeReason, ends
from upgrader.core.node_protocol.orders import Reason
from upgrader.core.node_upgrade.clearing import (
    ARRIVED,
    LAST_ACT,
    UNSUPPORTED,
    as_it_was,
    end_first_upgrade,
    end_unstarted,
    end_upgrades,
    evicting,
    untouched,
    wait_for_arrivals,
    wait_for_upgrades,
)
from upgrader.core.node_upgrade.upgrade_state import (
    ABORTED,
    DRIVER_CHANGED,
    GOING_BACK,
    KERNEL_CHANGED,
    STOPPED,
    Act,
    Decision,
    GroupView,
    NodeView,
    Outcome,
    away,
    driver_to_remove,
    extend,
    let_go,
    missing_gpus,
    moved,
    operands_left,
    pods_left,
    replaced,
    said,
    settled,
    stay,
    turned_back,
    unplaced,
)

UNHEALTHY = "GPUsMissing"
"""Why an upgrade is blocked: after its validation a GPU is not allocatable any more, so the node is not given back."""

DRIVER_BUSY = "DriverBusy"
"""Why an upgrade is blocked: processes outside Kubernetes hold the driver. They are named, none is ended."""

_P = NodePhase
BEFORE_OFF = frozenset({_P.PENDING, _P.PREPARING, _P.PREPARED, _P.TAINTING, _P.DRAINING})
_UNTOUCHED = frozenset({_P.PENDING, _P.PREPARING, _P.PREPARED})
_ALONE = frozenset({UpgradeReason.INSTALL, UpgradeReason.REPAIR})
_ASKED = frozenset({RequestPhase.REQUESTED, RequestPhase.PARKED, RequestPhase.EXPIRED})
_GOING = STOPPED | {RequestPhase.PARKED, RequestPhase.STOPPING}
"""It has acknowledged, or needs not: also where a node upgrade is made anew (somebody deleted it) after the stop."""


def decide(view: NodeView, group: GroupView, now: datetime) -> Decision:
    """The next step of one node.

    Never raises; what is not known yet (a pod without answer, a sibling that is behind) is waiting, never a guess.
    """
    if ends(view.phase):
        return stay(view)
    if view.node is None:
        gone = _go(view, _P.NODE_DELETED, message="the node was deleted, or another node of that name joined")
        return end_upgrades(view, now) or gone
    if group.undo and all(one.phase in BEFORE_OFF or ends(one.phase) for one in group.nodes):
        turned = _undo(view)
        if turned is not None:
            return turned
    decision = _on_another_kernel(view) or _STEPS[view.phase](view, group, now)
    late = view.deadline is not None and now >= view.deadline
    if late and decision.phase is view.phase:
        return extend(decision, group) if decision.on_siblings else _late(view, decision, now)
    return decision


def _on_another_kernel(view: NodeView) -> Decision | None:
    """Its node rebooted meanwhile: the driver that it is to get loads nowhere there, and no deadline changes that.

    What it had may fit, else it is upgraded anew; a plan's upgrade puts the kubelet back first. Its Job is waited for.
    """
    if why := moved(view):
        if view.phase in {_P.PREPARING, _P.PREPARED}:
            return _untouched_or_release(view, KERNEL_CHANGED, why)
        if view.phase in {_P.TAINTING, _P.DRAINING}:
            return _go(view, _P.RELEASING, failure=KERNEL_CHANGED, message=why)
        back = view.reason not in _ALONE or (view.node is not None and view.node.kernel == view.former)
        if view.phase in {_P.UNLOADING, _P.LOADING, _P.VALIDATING} and back and not view.reverting:
            return _turn(view, KERNEL_CHANGED, why)
        if view.phase in {_P.LOADING, _P.VALIDATING}:
            if left := driver_to_remove(view):
                return stay(view, f"{why}; {left}", Act.REMOVE_DRIVER)
            return _go(view, _P.RELEASING, failure=KERNEL_CHANGED, message=why)
    return None


def _go(view: NodeView, phase: NodePhase, *acts: Act, message: str = "", failure: str = "") -> Decision:
    return Decision(phase=phase, acts=acts, reverting=view.reverting, failure=failure or view.failure, message=message)


def _undo(view: NodeView) -> Decision | None:
    why = "the stack was deleted" if view.reason in _ALONE else "the plan was aborted"
    if view.phase in _UNTOUCHED and not (view.node and view.node.claimed_by == view.uid):
        return _go(view, _P.FAILED, failure=ABORTED, message=f"{why} before the node was touched")
    if view.phase is _P.RELEASING:
        return None
    return _go(view, _P.RELEASING, failure=ABORTED, message=f"{why}; the marks are taken away")


def _turn(view: NodeView, failure: str, message: str, now: datetime | None = None) -> Decision:
    """Revert, or give up where this already was the revert."""
    if view.reverting:
        off = view.node is None or view.node.operands != "on"
        if not off and not (now and view.deadline and now >= view.deadline + LAST_ACT):
            return stay(view, f"{message}; switching the operands off before giving up", Act.OPERANDS_OFF)
        what = "operands stay off" if off else "its operands could not be switched off"
        return _go(
            view,
            _P.FAILED,
            failure="RevertFailed",
            message=f"{message}; this was the revert: {what} and the taint stays, a person must look; "
            f"delete NodeUpgrade {view.name} to have the node installed anew",
        )
    return Decision(phase=_P.UNLOADING, reverting=True, failure=failure, message=f"{message}{GOING_BACK}")


def _late(view: NodeView, waiting: Decision, now: datetime) -> Decision:
    why = f"{view.phase} took longer than its deadline: {view.refused or waiting.message or 'no answer'}"
    match view.phase:
        case _P.PREPARING:
            return _untouched_or_release(view, "NotPrepared", why)
        case _P.PREPARED:
            return _untouched_or_release(view, "NotAcknowledged", why)
        case _P.TAINTING:
            return _go(view, _P.RELEASING, failure="NotClosed", message=why)
        case _P.DRAINING:
            if waiting.blocked == UNSUPPORTED:
                return waiting  # given back, it would take more work on a driver that is for another kernel
            return _go(view, _P.RELEASING, failure="NotDrained", message=why)
        case _P.UNLOADING | _P.UPGRADING if waiting.blocked == UNSUPPORTED and not view.reverting:
            return waiting
        case _P.UNLOADING if waiting.blocked == ARRIVED:
            return _turn(view, ARRIVED, why, now)
        case _P.UNLOADING | _P.UPGRADING | _P.LOADING | _P.VALIDATING:
            return end_unstarted(view, stay(view, why), now) or _turn(view, f"{view.phase}Late", why, now)
        case _P.RELEASING:
            return _released(view, f"{why}; given back without the gang")
        case _P.PENDING | _P.SUCCEEDED | _P.FAILED | _P.NODE_DELETED:
            return waiting


def _untouched_or_release(view: NodeView, failure: str, message: str) -> Decision:
    """A repair is tainted from the start: its marks must go before it ends."""
    if view.node is not None and view.node.claimed_by == view.uid:
        return _go(view, _P.RELEASING, failure=failure, message=message)
    return _go(view, _P.FAILED, failure=failure, message=message)


# ------------------------------------------------------------------------------- one function per phase


def _pending(view: NodeView, group: GroupView, now: datetime) -> Decision:
    del group, now
    return _go(view, _P.PREPARING)


def _preparing(view: NodeView, group: GroupView, now: datetime) -> Decision:
    del group, now
    acts = (Act.CLOSE, Act.PREPARE) if view.reason is UpgradeReason.REPAIR else (Act.PREPARE,)
    match view.prepare.outcome:
        case Outcome.ABSENT:
            return stay(view, "starting the prepare pod", *acts)
        case Outcome.WAITING:
            return stay(view, view.prepare.trouble or away(view, "pulling images and checking the node"))
        case Outcome.FAILED:
            return _untouched_or_release(view, "NotPrepared", said(view.prepare, "the prepare pod failed"))
        case Outcome.SUCCEEDED:
            return _go(view, _P.PREPARED, message="everything for the upgrade is on the node")


def _prepared(view: NodeView, group: GroupView, now: datetime) -> Decision:
    del now
    if failed := turned_back(group):
        return _untouched_or_release(view, "SiblingFailed", f"{failed} of the same upgrade group cannot be upgraded")
    if behind := [one.name for one in group.nodes if one.phase in {_P.PENDING, _P.PREPARING}]:
        return stay(view, f"waiting for {len(behind)} node(s) of the upgrade group to be prepared")
    if why := replaced(view):
        return _untouched_or_release(view, DRIVER_CHANGED, why)
    if group.refused:
        return _untouched_or_release(view, "NotAcknowledged", group.refused)
    if gone := [one for one in group.requests if one.phase not in _ASKED | _GOING]:
        return _untouched_or_release(view, "NotAcknowledged", f"{gone[0].gang}: {gone[0].message}")
    silent = [one.gang for one in group.requests if one.phase not in _GOING]
    if silent or len(group.requests) < group.gangs:
        return stay(view, f"waiting for the acknowledgement of {', '.join(silent) or 'gangs still to be asked'}")
    return _go(view, _P.TAINTING, message="all gangs of the upgrade group have acknowledged")


def _closing(view: NodeView, group: GroupView, now: datetime) -> Decision:
    lost = [one for one in group.requests if one.phase not in _GOING]
    if lost:
        return _go(view, _P.RELEASING, failure="AcknowledgementLost", message=f"{lost[0].gang}: {lost[0].message}")
    if view.node is None or view.node.claimed_by != view.uid:
        return stay(view, "tainting the node", Act.CLOSE)
    if why := replaced(view):  # from here on nobody else changes it
        return _go(view, _P.RELEASING, failure=DRIVER_CHANGED, message=why)
    strangers = [pod for pod in view.others if pod.stranger]
    if strangers and view.reason is not UpgradeReason.REPAIR:
        pod = strangers[0]
        failure, what = ("NewGpuPod", "") if pod.gpus else ("NewPod", "out")
        message = f"pod {pod.namespace}/{pod.name} with{what} GPUs appeared after the acknowledgements; all are let go"
        return _go(view, _P.RELEASING, failure=failure, message=message)
    if left := turned_back(group):
        return _go(view, _P.RELEASING, failure="SiblingFailed", message=f"{left} of the same upgrade group was let go")
    if not settled(view, view.node, now):
        return stay(view, "listing pods once more before anything is stopped")
    return _go(view, _P.DRAINING, message="closed; no new GPU pod")


def _draining(view: NodeView, group: GroupView, now: datetime) -> Decision:
    lost = [one for one in group.requests if one.phase not in _GOING]
    if lost:
        return _go(view, _P.RELEASING, failure="AcknowledgementLost", message=f"{lost[0].gang}: {lost[0].message}")
    if left := turned_back(group):
        return _go(view, _P.RELEASING, failure="SiblingFailed", message=f"{left} of the same upgrade group was let go")
    if behind := [one.name for one in group.nodes if one.phase in {_P.PREPARED, _P.TAINTING}]:
        return stay(view, f"waiting for {behind[0]} of the upgrade group to be closed")
    if evict := evicting(view, group, now):
        return evict
    running = [one for one in group.requests if one.phase not in STOPPED]
    if running:
        # A stop that was begun is given all its time, or it was for nothing: the gang's deadline counts from there.
        stopping = all(one.phase is RequestPhase.STOPPING for one in running) and not pods_left((view,))
        return msgspec.structs.replace(stay(view, f"waiting for {running[0].gang} to stop"), on_siblings=stopping)
    if view.others:
        pod = view.others[0]
        blocked = UNSUPPORTED if view.reason is UpgradeReason.REPAIR else "PodsLeft"
        return stay(view, f"waiting for pod {pod.namespace}/{pod.name} to end", blocked=blocked)
    return _go(view, _P.UNLOADING, message="no pod is left that the upgrade would end")


def _off(view: NodeView, group: GroupView, now: datetime) -> Decision:
    if untouched(view):
        return _go(view, _P.LOADING, message="no upgrade Job was made, so there is nothing to undo")
    if view.node is None or view.node.driver_key != "none" or view.node.operands != "off" or view.node.revision:
        return stay(view, "switching the operands off", Act.OPERANDS_OFF)
    if view.node.adopted and view.node.theirs and not view.reverting:
        return stay(view, "taking the node over from another operator", Act.OPERANDS_OFF)
    if waiting := end_first_upgrade(view) or wait_for_arrivals(view, group, now):
        return waiting
    if left := operands_left(view):
        return stay(view, left)
    return _go(view, _P.UPGRADING, message="operands are off")


def _upgrading(view: NodeView, group: GroupView, now: datetime) -> Decision:
    match view.upgrade.outcome:
        case Outcome.ABSENT:
            first = end_first_upgrade(view) or wait_for_upgrades(view) or wait_for_arrivals(view, group, now)
            return end_unstarted(view, first) or first or stay(view, "starting the upgrade Job", Act.UPGRADE)
        case Outcome.WAITING:
            busy = view.upgrade.result is not None and view.upgrade.result.reason is Reason.BUSY
            why = view.upgrade.trouble or away(view, "the upgrade Job runs")
            return stay(view, why, blocked=DRIVER_BUSY if busy else "")
        case Outcome.FAILED:
            return _turn(view, "UpgradeFailed", said(view.upgrade, "the upgrade Job failed"))
        case Outcome.SUCCEEDED:
            return _go(view, _P.LOADING, message=said(view.upgrade, "swapped"))


def _keys(node: NodeFacts) -> tuple[str, str, str]:
    return (node.driver_key, node.runtime_key, node.plugin_key)


def _turning_on(view: NodeView, group: GroupView, now: datetime) -> Decision:
    node = view.node
    if node is not None and view.kernel not in {"", node.kernel}:
        return stay(view, f"waiting for the Node to show kernel {view.kernel}; it still shows {node.kernel}")
    if node is None or _keys(node) != (view.driver_key or "none", view.runtime_key, view.plugin_key):
        return stay(view, "switching the driver on", Act.DRIVER_ON)
    if not view.driver_key:
        return _go(view, _P.RELEASING, message="nothing was installed before, so nothing is switched on")
    if not view.driver.ready:
        return stay(view, "waiting for the driver to be loaded")
    if node.operands != "on":
        return wait_for_arrivals(view, group, now) or stay(view, "switching the operands on", Act.OPERANDS_ON)
    if view.runtime_key and not view.runtime.ready:
        return stay(view, "waiting for the runtime hook")
    if view.plugin_key and not view.plugin.ready:
        return stay(view, "waiting for the device plugin to register with the kubelet")
    if not node.ready:
        return stay(view, "waiting for the node to be Ready")
    if node.gpus_allocatable == 0:
        return stay(view, f"0 GPUs allocatable, {view.expected_gpus or 'some'} expected")
    # A plugin names all its devices at once: where some are allocatable, the others are not coming by waiting. Which
    # they are only the validation can say.
    return _go(view, _P.VALIDATING, message=missing_gpus(view) or f"{node.gpus_allocatable} GPUs allocatable")


def _validating(view: NodeView, group: GroupView, now: datetime) -> Decision:
    match view.validate.outcome:
        case Outcome.ABSENT if why := as_it_was(view):
            return _go(view, _P.RELEASING, message=why)
        case Outcome.ABSENT:
            start = stay(view, view.validate.trouble or "starting the validation pod", Act.VALIDATE)
            return wait_for_arrivals(view, group, now) or start
        case Outcome.WAITING:
            return stay(view, view.validate.trouble or away(view, "the validation pod runs"))
        case Outcome.FAILED:
            return _turn(view, "NotValid", said(view.validate, "the validation pod failed"))
        case Outcome.SUCCEEDED:
            if missing := missing_gpus(view):
                # It was well a moment ago: the plugin may just be registering again. It is not given back like this.
                return stay(view, f"valid, but now {missing}", blocked=UNHEALTHY)
            return _with_siblings(view, group)


def _with_siblings(view: NodeView, group: GroupView) -> Decision:
    """A gang never runs on mixed drivers: its nodes go forward together, or back together."""
    ahead = [one for one in group.nodes if one.phase is _P.RELEASING and not one.reverting and not one.failure]
    if ahead and not view.reverting:
        # It left only because all were seen valid, in a step that was broken off: whoever still is goes with it.
        return _go(view, _P.RELEASING, message=f"valid, with {ahead[0].name}")
    turned = [one for one in group.nodes if one.reverting or let_go(one)]
    if turned and not view.reverting:
        return _turn(view, "SiblingReverted", f"{turned[0].name} of the same upgrade group goes back")
    behind = [
        one.name for one in group.nodes if not ends(one.phase) and one.phase is not _P.RELEASING and not _valid(one)
    ]
    if behind:
        return msgspec.structs.replace(
            stay(view, f"valid; waiting for {behind[0]} of the upgrade group"), on_siblings=True
        )
    return _go(view, _P.RELEASING, message="valid, with all its siblings")


def _valid(view: NodeView) -> bool:
    well = view.validate.outcome is Outcome.SUCCEEDED and not missing_gpus(view)
    return view.phase is _P.VALIDATING and well


def _releasing(view: NodeView, group: GroupView, now: datetime) -> Decision:
    del now
    if order := view.forced.get(_P.RELEASING, ""):
        return _released(view, f"given back {order}")
    waiting = [one.gang for one in group.requests if one.phase in STOPPED and one.phase is not RequestPhase.ENDED]
    stopping = [one.gang for one in group.requests if one.phase is RequestPhase.STOPPING]
    asked = [one.gang for one in group.requests if one.phase in _ASKED]
    for gangs, what in (
        (waiting, "be restarted"),
        (stopping, "be restarted"),
        (unplaced(group), "be placed"),
        (asked, "be let go"),
    ):
        if gangs:
            return stay(view, f"waiting for {gangs[0]} to {what}")
    return _released(view, "given back")


def _released(view: NodeView, message: str) -> Decision:
    """The end, once the node says that this upgrade has released it.

    It is written on a node without a claim, too: a leader that was frozen can have sent the claim, and that is refused
    only where the Node has changed since.
    """
    node = view.node
    unclaimed = node is not None and not node.claimed_by and node.released_by != view.uid
    if unclaimed or (node is not None and node.claimed_by == view.uid):
        return stay(view, "giving the node back", Act.GIVE_BACK)
    if not view.failure:
        return _go(view, _P.SUCCEEDED, message=message)
    return _go(view, _P.FAILED, message=f"{message}. Why it failed: {view.why}" if view.why else message)


_STEPS = {
    _P.PENDING: _pending,
    _P.PREPARING: _preparing,
    _P.PREPARED: _prepared,
    _P.TAINTING: _closing,
    _P.DRAINING: _draining,
    _P.UNLOADING: _off,
    _P.UPGRADING: _upgrading,
    _P.LOADING: _turning_on,
    _P.VALIDATING: _validating,
    _P.RELEASING: _releasing,
}
