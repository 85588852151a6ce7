"""What follows from allocatable resources that a node has lost in its upgrade: a wait, a revert or a remark."""

from datetime import datetime

from upgrader.core.model.phases import NodePhase
from upgrader.core.node_upgrade.upgrade_state import (
    NODE_DEGRADED,
    REVERT_SUFFIX,
    Decision,
    NodeView,
    keep_phase,
    missing_gpus,
)


def judge_resources(view: NodeView, now: datetime) -> Decision | None:
    """Wait for allocatable resources that the node had before its reboot, and revert the upgrade if they stay away.

    None if all have returned, or if the stack only reports the others. A revert does not depend on them.
    """
    resources = view.resources
    if not resources.lost:
        return None
    lost = f"less than before the reboot is allocatable: {resources.lost}"
    if now < resources.settles_at(view.phase_since, view.deadline):
        return keep_phase(view, f"waiting for resources of the node; {lost}")
    if resources.reports:
        return None
    message = f"{lost}; repair the node, or set spec.reboot.onLoss of the stack to Report{REVERT_SUFFIX}"
    return Decision(phase=NodePhase.UNLOADING, reverting=True, failure=NODE_DEGRADED, message=message)


def describe_resources(view: NodeView) -> str:
    """The allocatable GPUs of a node that is validated next, and which other resources are less than before.

    A plugin reports all its devices at once: if only some are allocatable, a wait does not add the others. Only the
    validation can name them.
    """
    allocatable = view.node.gpus_allocatable if view.node is not None else 0
    gpus = missing_gpus(view) or f"{allocatable} GPUs allocatable"
    return f"{gpus}; less than before the reboot is allocatable: {view.resources.lost}" if view.resources.lost else gpus
