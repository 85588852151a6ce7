"""The state machine of a NodeUpgrade: pure, from a view of one node and its group to a decision with its reason.

`phases.TRANSITIONS` defines the phases and their deadlines; this module decides when a transition is taken. Once the
node may carry a taint or a claim, the only ways out are forward, revert (at Unloading, source and target exchanged,
once) and Releasing, which removes them.
"""

from datetime import datetime

import msgspec

from upgrader.core.model.phases import NodePhase, RequestPhase, UpgradeReason, is_final
from upgrader.core.node_protocol.orders import Reason
from upgrader.core.node_upgrade.clearing import (
    ARRIVED,
    LAST_ACT,
    UNSUPPORTED,
    end_first_upgrade,
    end_unstarted,
    end_upgrades,
    evict_pods,
    explain_no_validation,
    is_untouched,
    wait_for_arrivals,
    wait_for_upgrades,
)
from upgrader.core.node_upgrade.resource_losses import describe_resources, judge_resources
from upgrader.core.node_upgrade.upgrade_state import (
    ABORTED,
    DRIVER_CHANGED,
    KERNEL_CHANGED,
    REVERT_SUFFIX,
    STOPPED,
    Act,
    Decision,
    GroupView,
    NodeView,
    PodOutcome,
    driver_to_remove,
    explain_driver_change,
    explain_kernel_change,
    explain_silence,
    extend_deadline,
    go_to,
    is_failing,
    is_settled,
    keep_phase,
    missing_gpus,
    operand_keys,
    operands_left,
    pods_left,
    result_message,
    shows_former_boot,
    turned_back,
    unplaced_gangs,
    upgrade_failure,
)

UNHEALTHY = "GPUsMissing"
"""Why an upgrade is blocked: after its validation a GPU is no longer allocatable, so the node is not released."""

DRIVER_BUSY = "DriverBusy"
"""Why an upgrade is blocked: processes outside Kubernetes hold the driver. They are named and not ended."""

_P = NodePhase
BEFORE_OFF = frozenset({_P.PENDING, _P.PREPARING, _P.PREPARED, _P.TAINTING, _P.DRAINING})
_UNTOUCHED = frozenset({_P.PENDING, _P.PREPARING, _P.PREPARED})
_ALONE = frozenset({UpgradeReason.INSTALL, UpgradeReason.REPAIR})
_ASKED = frozenset({RequestPhase.REQUESTED, RequestPhase.PARKED, RequestPhase.EXPIRED})
_GOING = STOPPED | {RequestPhase.PARKED, RequestPhase.STOPPING}
"""The gang has acknowledged, or does not need to: also if a deleted node upgrade is created again after the stop."""


def decide(view: NodeView, group: GroupView, now: datetime) -> Decision:
    """The next step of one node.

    Never raises; it waits for what is not known yet (a pod without answer, a sibling that is behind), without a guess.
    """
    if is_final(view.phase):
        return keep_phase(view)
    if view.node is None:
        gone = go_to(view, _P.NODE_DELETED, message="the node was deleted, or another node of that name joined")
        return end_upgrades(view, now) or gone
    if group.undo and all(node.phase in BEFORE_OFF or is_final(node.phase) for node in group.nodes):
        undone = _undo_upgrade(view)
        if undone is not None:
            return undone
    decision = _leave_other_kernel(view) or _STEPS[view.phase](view, group, now)
    late = view.deadline is not None and now >= view.deadline
    if late and decision.phase is view.phase:
        return extend_deadline(decision, group) if decision.on_siblings else _decide_overdue(view, decision, now)
    return decision


def _leave_other_kernel(view: NodeView) -> Decision | None:
    """Leave a node that rebooted into another kernel: the target driver never loads there, whatever the deadline.

    The source driver may fit, else it is upgraded again; a plan's upgrade resets the kubelet first. Its Job may end.
    """
    if why := explain_kernel_change(view):
        if view.phase in {_P.PREPARING, _P.PREPARED}:
            return _untouched_or_release(view, KERNEL_CHANGED, why)
        if view.phase in {_P.TAINTING, _P.DRAINING}:
            return go_to(view, _P.RELEASING, failure=KERNEL_CHANGED, message=why)
        back = view.reason not in _ALONE or (view.node is not None and view.node.kernel == view.former)
        if view.phase in {_P.UNLOADING, _P.LOADING, _P.VALIDATING} and back and not view.reverting:
            return _revert_upgrade(view, KERNEL_CHANGED, why)
        if view.phase in {_P.LOADING, _P.VALIDATING}:
            if left := driver_to_remove(view):
                return keep_phase(view, f"{why}; {left}", Act.REMOVE_DRIVER)
            return go_to(view, _P.RELEASING, failure=KERNEL_CHANGED, message=why)
    return None


def _undo_upgrade(view: NodeView) -> Decision | None:
    why = "the stack was deleted" if view.reason in _ALONE else "the plan was aborted"
    if view.phase in _UNTOUCHED and not (view.node and view.node.claimed_by == view.uid):
        return go_to(view, _P.FAILED, failure=ABORTED, message=f"{why} before the node was changed")
    if view.phase is _P.RELEASING:
        return None
    return go_to(view, _P.RELEASING, failure=ABORTED, message=f"{why}; the taint and the claim are removed")


def _revert_upgrade(view: NodeView, failure: str, message: str, now: datetime | None = None) -> Decision:
    """Revert the upgrade; if it reverts already, fail."""
    if view.reverting:
        off = view.node is None or view.node.operands != "on"
        if not off and not (now and view.deadline and now >= view.deadline + LAST_ACT):
            return keep_phase(view, f"{message}; switching the operands off before the upgrade fails", Act.OPERANDS_OFF)
        what = "operands stay off" if off else "its operands could not be switched off"
        return go_to(
            view,
            _P.FAILED,
            failure="RevertFailed",
            message=f"{message}; the revert failed: {what} and the taint stays; repair the node, then delete "
            f"NodeUpgrade {view.name} to have the node installed again",
        )
    return Decision(phase=_P.UNLOADING, reverting=True, failure=failure, message=f"{message}{REVERT_SUFFIX}")


def _decide_overdue(view: NodeView, waiting: Decision, now: datetime) -> Decision:
    why = f"{view.phase} exceeded its deadline: {view.refused or waiting.message or 'no answer'}"
    match view.phase:
        case _P.PREPARING:
            return _untouched_or_release(view, "NotPrepared", why)
        case _P.PREPARED:
            return _untouched_or_release(view, "NotAcknowledged", why)
        case _P.TAINTING:
            return go_to(view, _P.RELEASING, failure="NotClosed", message=why)
        case _P.DRAINING:
            if waiting.blocked == UNSUPPORTED:
                return waiting  # released, it would run more pods on a driver that is for another kernel
            return go_to(view, _P.RELEASING, failure="NotDrained", message=why)
        case _P.UNLOADING | _P.UPGRADING if waiting.blocked == UNSUPPORTED and not view.reverting:
            return waiting
        case _P.UNLOADING if waiting.blocked == ARRIVED:
            return _revert_upgrade(view, ARRIVED, why, now)
        case _P.UNLOADING | _P.UPGRADING | _P.LOADING | _P.VALIDATING:
            unstarted = end_unstarted(view, keep_phase(view, why), now)
            return unstarted or _revert_upgrade(view, f"{view.phase}Late", why, now)
        case _P.RELEASING:
            return _finish_release(view, f"{why}; released without the gang")
        case _P.PENDING | _P.SUCCEEDED | _P.FAILED | _P.NODE_DELETED:
            return waiting


def _untouched_or_release(view: NodeView, failure: str, message: str) -> Decision:
    """Fail, or release first: a repair taints its node from the start, and its taint must be removed before it ends."""
    if view.node is not None and view.node.claimed_by == view.uid:
        return go_to(view, _P.RELEASING, failure=failure, message=message)
    return go_to(view, _P.FAILED, failure=failure, message=message)


# ------------------------------------------------------------------------------- one function per phase


def _decide_pending(view: NodeView, group: GroupView, now: datetime) -> Decision:
    del group, now
    return go_to(view, _P.PREPARING)


def _decide_preparing(view: NodeView, group: GroupView, now: datetime) -> Decision:
    del group, now
    acts = (Act.CLOSE, Act.PREPARE) if view.reason is UpgradeReason.REPAIR else (Act.PREPARE,)
    match view.prepare.outcome:
        case PodOutcome.ABSENT:
            return keep_phase(view, "starting the prepare pod", *acts)
        case PodOutcome.WAITING:
            pulling = explain_silence(view, "pulling images and checking the node")
            return keep_phase(view, view.prepare.trouble or pulling)
        case PodOutcome.FAILED:
            return _untouched_or_release(view, "NotPrepared", result_message(view.prepare, "the prepare pod failed"))
        case PodOutcome.SUCCEEDED:
            return go_to(view, _P.PREPARED, message="all images for the upgrade are on the node")


def _decide_prepared(view: NodeView, group: GroupView, now: datetime) -> Decision:
    del now
    if failed := turned_back(group):
        return _untouched_or_release(view, "SiblingFailed", f"node {failed} of the upgrade group cannot be upgraded")
    if behind := [node.name for node in group.nodes if node.phase in {_P.PENDING, _P.PREPARING}]:
        return keep_phase(view, f"waiting for {len(behind)} node(s) of the upgrade group to be prepared")
    if why := explain_driver_change(view):
        return _untouched_or_release(view, DRIVER_CHANGED, why)
    if group.refused:
        return _untouched_or_release(view, "NotAcknowledged", group.refused)
    if gone := [request for request in group.requests if request.phase not in _ASKED | _GOING]:
        return _untouched_or_release(view, "NotAcknowledged", f"{gone[0].gang}: {gone[0].message}")
    silent = [request.gang for request in group.requests if request.phase not in _GOING]
    if silent or len(group.requests) < group.gangs:
        return keep_phase(
            view, f"waiting for the acknowledgement of {', '.join(silent) or 'gangs without a request yet'}"
        )
    return go_to(view, _P.TAINTING, message="all gangs of the upgrade group have acknowledged")


def _decide_tainting(view: NodeView, group: GroupView, now: datetime) -> Decision:
    lost = [request for request in group.requests if request.phase not in _GOING]
    if lost:
        return go_to(view, _P.RELEASING, failure="AcknowledgementLost", message=f"{lost[0].gang}: {lost[0].message}")
    if view.node is None or view.node.claimed_by != view.uid:
        return keep_phase(view, "tainting the node", Act.CLOSE)
    if why := explain_driver_change(view):  # from here on its claim keeps other upgrades away
        return go_to(view, _P.RELEASING, failure=DRIVER_CHANGED, message=why)
    strangers = [pod for pod in view.others if pod.is_stranger]
    if strangers and view.reason is not UpgradeReason.REPAIR:
        pod = strangers[0]
        failure, what = ("NewGpuPod", "") if pod.gpus else ("NewPod", "out")
        why = f"pod {pod.namespace}/{pod.name} with{what} GPUs appeared after the acknowledgements; group is released"
        return go_to(view, _P.RELEASING, failure=failure, message=why)
    if left := turned_back(group):
        why = f"node {left} of the upgrade group failed or is being released"
        return go_to(view, _P.RELEASING, failure="SiblingFailed", message=why)
    if not is_settled(view, view.node, now):
        return keep_phase(view, "listing pods once more before any gang is stopped")
    return go_to(view, _P.DRAINING, message="the node is tainted")


def _decide_draining(view: NodeView, group: GroupView, now: datetime) -> Decision:
    lost = [request for request in group.requests if request.phase not in _GOING]
    if lost:
        return go_to(view, _P.RELEASING, failure="AcknowledgementLost", message=f"{lost[0].gang}: {lost[0].message}")
    if left := turned_back(group):
        why = f"node {left} of the upgrade group failed or is being released"
        return go_to(view, _P.RELEASING, failure="SiblingFailed", message=why)
    if behind := [node.name for node in group.nodes if node.phase in {_P.PREPARED, _P.TAINTING}]:
        return keep_phase(view, f"waiting for node {behind[0]} of the upgrade group to be tainted")
    if evict := evict_pods(view, group, now):
        return evict
    running = [request for request in group.requests if request.phase not in STOPPED]
    if running:
        # A stop that has begun gets all its time, or it would be without use: from then on the gang's deadline counts.
        stopping = all(request.phase is RequestPhase.STOPPING for request in running) and not pods_left((view,))
        return msgspec.structs.replace(keep_phase(view, f"waiting for {running[0].gang} to stop"), on_siblings=stopping)
    if view.others:
        pod = view.others[0]
        blocked = UNSUPPORTED if view.reason is UpgradeReason.REPAIR else "PodsLeft"
        return keep_phase(view, f"waiting for pod {pod.namespace}/{pod.name} to end", blocked=blocked)
    return go_to(view, _P.UNLOADING, message="no pod is left that the upgrade would end")


def _decide_unloading(view: NodeView, group: GroupView, now: datetime) -> Decision:
    if is_untouched(view):
        return go_to(view, _P.LOADING, message="no upgrade Job was created, so there is nothing to undo")
    if view.node is None or view.node.driver_key != "none" or view.node.operands != "off" or view.node.revision:
        return keep_phase(view, "switching the operands off", Act.OPERANDS_OFF)
    if view.node.adopted and (view.node.unpaused_labels or (view.node.foreign_labels and not view.reverting)):
        return keep_phase(view, "taking the node over from another operator", Act.OPERANDS_OFF)
    if waiting := end_first_upgrade(view) or wait_for_arrivals(view, group, now):
        return waiting
    if left := operands_left(view):
        return keep_phase(view, left)
    return go_to(view, _P.UPGRADING, message="operands are off")


def _decide_upgrading(view: NodeView, group: GroupView, now: datetime) -> Decision:
    match view.upgrade.outcome:
        case PodOutcome.ABSENT:
            first = end_first_upgrade(view) or wait_for_upgrades(view) or wait_for_arrivals(view, group, now)
            return end_unstarted(view, first) or first or keep_phase(view, "starting the upgrade Job", Act.UPGRADE)
        case PodOutcome.WAITING:
            busy = view.upgrade.result is not None and view.upgrade.result.reason is Reason.BUSY
            why = view.upgrade.trouble or explain_silence(view, "the upgrade Job runs")
            return keep_phase(view, why, blocked=DRIVER_BUSY if busy else "")
        case PodOutcome.FAILED:
            failure = upgrade_failure(view.upgrade)
            return _revert_upgrade(view, failure, result_message(view.upgrade, "the upgrade Job failed"))
        case PodOutcome.SUCCEEDED if shows_former_boot(view):
            return keep_phase(view, "waiting for the Node to show the boot after its reboot")
        case PodOutcome.SUCCEEDED:
            return go_to(view, _P.LOADING, message=result_message(view.upgrade, "the upgrade Job succeeded"))


def _decide_loading(view: NodeView, group: GroupView, now: datetime) -> Decision:
    node = view.node
    if node is not None and view.kernel not in {"", node.kernel}:
        return keep_phase(view, f"waiting for the Node to show kernel {view.kernel}; it still shows {node.kernel}")
    if node is None or operand_keys(node) != (view.driver_key or "none", view.runtime_key, view.plugin_key):
        return keep_phase(view, "switching the driver on", Act.DRIVER_ON)
    if not view.driver_key:
        return go_to(view, _P.RELEASING, message="nothing was installed before, so nothing is switched on")
    if not view.driver.ready:
        return keep_phase(view, view.driver.explain_wait("waiting for the driver to be loaded"))
    if node.operands != "on":
        return wait_for_arrivals(view, group, now) or keep_phase(view, "switching the operands on", Act.OPERANDS_ON)
    if view.runtime_key and not view.runtime.ready:
        return keep_phase(view, "waiting for the runtime hook")
    if view.plugin_key and not view.plugin.ready:
        return keep_phase(view, "waiting for the device plugin to register with the kubelet")
    if not node.ready:
        return keep_phase(view, "waiting for the node to be Ready")
    if node.gpus_allocatable == 0:
        return keep_phase(view, f"0 GPUs allocatable, {view.expected_gpus or 'some'} expected")
    return judge_resources(view, now) or go_to(view, _P.VALIDATING, message=describe_resources(view))


def _decide_validating(view: NodeView, group: GroupView, now: datetime) -> Decision:
    match view.validate.outcome:
        case PodOutcome.ABSENT if why := explain_no_validation(view):
            return go_to(view, _P.RELEASING, message=why)
        case PodOutcome.ABSENT:
            start = keep_phase(view, view.validate.trouble or "starting the validation pod", Act.VALIDATE)
            return wait_for_arrivals(view, group, now) or start
        case PodOutcome.WAITING:
            return keep_phase(view, view.validate.trouble or explain_silence(view, "the validation pod runs"))
        case PodOutcome.FAILED:
            return _revert_upgrade(view, "NotValid", result_message(view.validate, "the validation pod failed"))
        case PodOutcome.SUCCEEDED:
            if missing := missing_gpus(view):
                # The validation succeeded: the plugin may be registering again. Until then the node is not released.
                return keep_phase(view, f"validation succeeded, but now {missing}", blocked=UNHEALTHY)
            return _release_with_siblings(view, group)


def _release_with_siblings(view: NodeView, group: GroupView) -> Decision:
    """A gang never runs on mixed drivers: its nodes are released together, or revert together."""
    ahead = [node for node in group.nodes if node.phase is _P.RELEASING and not node.reverting and not node.failure]
    if ahead and not view.reverting:
        # It was released because all were valid, in a step that was interrupted: nodes that are still valid follow.
        why = f"validation succeeded; node {ahead[0].name} of the upgrade group is being released"
        return go_to(view, _P.RELEASING, message=why)
    turned = [node for node in group.nodes if node.reverting or is_failing(node)]
    if turned and not view.reverting:
        return _revert_upgrade(view, "SiblingReverted", f"node {turned[0].name} of the upgrade group reverts")
    left = (node for node in group.nodes if not is_final(node.phase) and node.phase is not _P.RELEASING)
    if behind := [node.name for node in left if not _is_valid(node)]:
        waiting = keep_phase(view, f"validation succeeded; waiting for node {behind[0]} of the upgrade group")
        return msgspec.structs.replace(waiting, on_siblings=True)
    return go_to(view, _P.RELEASING, message="validation succeeded on all nodes of the upgrade group")


def _is_valid(view: NodeView) -> bool:
    return view.phase is _P.VALIDATING and view.validate.outcome is PodOutcome.SUCCEEDED and not missing_gpus(view)


def _decide_releasing(view: NodeView, group: GroupView, now: datetime) -> Decision:
    del now
    if order := view.forced.get(_P.RELEASING, ""):
        return _finish_release(view, f"released {order}")
    stopped = STOPPED - {RequestPhase.ENDED}
    waiting = [request.gang for request in group.requests if request.phase in stopped]
    stopping = [request.gang for request in group.requests if request.phase is RequestPhase.STOPPING]
    asked = [request.gang for request in group.requests if request.phase in _ASKED]
    restarting = (waiting, "be restarted"), (stopping, "be restarted")
    for gangs, what in (*restarting, (unplaced_gangs(group), "be placed"), (asked, "be withdrawn")):
        if gangs:
            return keep_phase(view, f"waiting for {gangs[0]} to {what}")
    return _finish_release(view, "released")


def _finish_release(view: NodeView, message: str) -> Decision:
    """End the upgrade, once its node states that this upgrade has released it.

    The release is also written on a node without a claim: a former leader may have sent a claim that is in flight, and
    the API server refuses that only if the Node has changed since.
    """
    node = view.node
    unclaimed = node is not None and not node.claimed_by and node.released_by != view.uid
    if unclaimed or (node is not None and node.claimed_by == view.uid):
        return keep_phase(view, "releasing the node", Act.RELEASE)
    if not view.failure:
        return go_to(view, _P.SUCCEEDED, message=message)
    return go_to(view, _P.FAILED, message=f"{message}. Why it failed: {view.why}" if view.why else message)


_STEPS = {
    _P.PENDING: _decide_pending,
    _P.PREPARING: _decide_preparing,
    _P.PREPARED: _decide_prepared,
    _P.TAINTING: _decide_tainting,
    _P.DRAINING: _decide_draining,
    _P.UNLOADING: _decide_unloading,
    _P.UPGRADING: _decide_upgrading,
    _P.LOADING: _decide_loading,
    _P.VALIDATING: _decide_validating,
    _P.RELEASING: _decide_releasing,
}
