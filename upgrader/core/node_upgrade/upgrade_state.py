"""Views and decisions of a NodeUpgrade: values of core.node_upgrade.upgrade_machine."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct, structs

from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.phases import NodePhase, RequestPhase, UpgradeReason, is_final
from upgrader.core.model.pod_diagnostics import Silence
from upgrader.core.node_protocol.orders import FORMER_BOOT, OrderResult, Reason
from upgrader.core.node_upgrade.node_resources import NodeResources


class PodOutcome(StrEnum):
    """The progress of a node pod."""

    ABSENT = "Absent"
    WAITING = "Waiting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class PodResult(Struct, frozen=True, kw_only=True):
    """A node pod (prepare, upgrade, validate) and its result."""

    outcome: PodOutcome = PodOutcome.ABSENT
    result: OrderResult | None = None
    trouble: str = ""  # why it cannot start (image pull...), as the kubelet or the API server reports it
    silence: Silence | None = None  # it has not begun, and its status does not state why
    suspended: bool = False  # an upgrade Job that was created and not started: it has had no effect yet


class OperandFacts(Struct, frozen=True, kw_only=True):
    """Pods of one operand on the node; `trouble` is why one of them is not ready, as far as it is known."""

    pods: int = 0
    ready: int = 0
    trouble: str = ""

    def explain_wait(self, waiting: str) -> str:
        """What is waited for, with the trouble of the pod."""
        return f"{waiting}: {self.trouble}" if self.trouble else waiting


class UpgradeJobs(Struct, frozen=True, kw_only=True):
    """Upgrade Jobs that may still work on the node, beside that of this direction; not known while that exists."""

    first: bool = False  # the forward Job, while the node reverts; it has not ended
    pods: int = 0  # pods of any upgrade Job, its own or a deleted one, which have not ended


class OtherPod(Struct, frozen=True, kw_only=True):
    """A pod that is no node pod and no operand, and that the upgrade would end."""

    name: str
    namespace: str
    uid: str
    member: bool = False  # of a gang that has a valid acknowledgement or is being stopped
    evictable: bool = False  # of a replicated owner, or expendable; not terminating yet
    gpus: bool = True  # requests GPUs of the stack; without any, only a reboot or other CPUs would end it
    expendable: bool = False  # no owner creates it again, and the approval names its gang: it is evicted last
    before_boot: bool = False  # does not run on this boot: the kubelet rejected or lost it
    leaving: bool = False  # it is terminating
    forced: bool = False  # declares nothing, or its owner replaces it, and a user ordered the drain of the node

    @property
    def is_stranger(self) -> bool:
        """Whether it was not judged before the requests; a pod that terminates and holds no device may end."""
        return not (self.member or self.evictable or self.expendable) and (self.gpus or not self.leaving)


ABORTED = "Aborted"
"""Failure of an upgrade that a user aborted: there was no error."""

DRIVER_CHANGED = "DriverChanged"
"""Failure of a node upgrade that would revert to another driver than its node has now."""

KERNEL_CHANGED = "KernelChanged"
"""Failure of a node upgrade whose node booted another kernel than it was planned for."""

NODE_DEGRADED = "NodeDegraded"
"""Failure of a node upgrade whose node has less after its reboot than before."""

REFUSAL = "Refused"
"""Why a node upgrade is blocked: the API server, or an admission webhook, refuses a write that its phase needs."""

NO_ANSWER = "NoAnswer"
"""Why a node upgrade is blocked: the API server could not be reached, or failed; nothing was refused.

Throttling (429) blocks no upgrade: the whole step ends, and is repeated after a pause.
"""

REVERT_SUFFIX = "; reverting"
"""The end of the sentence with which an upgrade starts to revert."""

SETTLE = timedelta(seconds=5)
"""Pods are listed again this long after the taint: a bind in flight is visible by then (see `is_settled`)."""

STOPPED = frozenset({RequestPhase.STOPPED, RequestPhase.ENDED})
"""Phases in which no pod of the gang runs."""


class NodeView(Struct, frozen=True, kw_only=True):
    """A NodeUpgrade with all that its next step depends on."""

    name: str
    reason: UpgradeReason
    phase: NodePhase
    phase_since: datetime
    deadline: datetime | None
    reverting: bool = False
    failure: str = ""  # status.reason that is kept until the end: why the upgrade reverts
    why: str = ""  # the sentence of that failure
    refused: str = ""  # why the API server, or an admission webhook, refused a write that this phase needs
    node: NodeFacts | None = None  # None: deleted, or another node of that name
    uid: str = ""
    source_key: str = ""  # of the driver that the node had when the upgrade was ordered; empty: none
    driver_key: str = ""  # of the effective target (source while reverting)
    plugin_key: str = ""
    runtime_key: str = ""
    revision: str = ""
    kernel: str = ""  # that the upgrade reboots into; empty: it does not reboot
    planned: str = ""  # the kernel that the node has to run now; empty: the upgrade reboots it, and has not yet
    former: str = ""  # the kernel that the source driver is for
    expected_gpus: int = 0
    prepare: PodResult = PodResult()
    upgrade: PodResult = PodResult()
    validate: PodResult = PodResult()
    upgrade_jobs: UpgradeJobs = UpgradeJobs()
    driver: OperandFacts = OperandFacts()
    plugin: OperandFacts = OperandFacts()
    foreign_pods: int = 0  # pods of another operator that labels of the node deploy here; the node was adopted
    runtime: OperandFacts = OperandFacts()
    other_operands: OperandFacts = OperandFacts()  # pods of operands that may hold devices open
    others: tuple[OtherPod, ...] = ()
    may_reboot: bool = False  # it reboots into the same kernel if the driver cannot be unloaded
    empties: bool = False  # it ends every pod on the node, with GPUs or without
    forced: dict[NodePhase, str] = {}  # steps that a user forces, with user and reason
    not_evicted: str = ""  # why the last eviction was refused, as a sentence
    evict_after: datetime | None = None  # until then no pod is evicted; None: immediately
    resources: NodeResources = NodeResources()  # allocatable ones, beside GPUs


def is_settled(view: NodeView, node: NodeFacts, now: datetime) -> bool:
    """Whether no bind of a pod that the upgrade would end can still be in flight to its tainted node.

    There is no bind of a pod with GPUs to a node that never had any, or whose GPUs do not work since its reboot: its
    kubelet would refuse the pod. In a plan's upgrade, or if a plugin is registered, GPUs may be away for a moment.
    """
    none = {UpgradeReason.INSTALL: node.gpus == 0, UpgradeReason.REPAIR: True}.get(view.reason, False)
    if none and node.gpus_allocatable == 0 and not view.empties:
        return True
    return now >= (node.closed_at or view.phase_since) + SETTLE


def missing_gpus(view: NodeView) -> str:
    """How many GPUs are expected on a node and not allocatable, as a sentence; empty if none is missing."""
    node = view.node
    if node is None:
        return ""
    expected = max(view.expected_gpus, node.gpus)
    return f"{node.gpus_allocatable} GPUs allocatable, {expected} expected" if node.gpus_allocatable < expected else ""


def explain_silence(view: NodeView, otherwise: str) -> str:
    """That a node is not Ready while its upgrade waits for it, as a sentence; `otherwise` while it is Ready."""
    node = view.node
    if node is None or node.ready:
        return otherwise
    if view.phase is NodePhase.UPGRADING and view.kernel not in {"", node.kernel}:
        return f"the node is not Ready: it has not returned from its reboot into kernel {view.kernel}"
    if view.phase is NodePhase.UPGRADING and view.may_reboot:
        return "the node is not Ready: it does not respond, or has not returned from a reboot after a failed unload"
    return "the node is not Ready: it does not respond"


def shows_former_boot(view: NodeView) -> bool:
    """Whether the Node still shows the boot that its upgrade has ended by a reboot."""
    result = view.upgrade.result
    former = result.facts.get(FORMER_BOOT) if result is not None else None
    return view.node is not None and view.node.boot_id == former


def explain_kernel_change(view: NodeView) -> str:
    """That a node rebooted into another kernel than its upgrade is for, as a sentence; empty if it did not.

    After a reboot by the upgrade the Node shows the former kernel for a while; that is not such a change.
    """
    node, fits = view.node, {view.planned, view.former} if view.reverting or view.kernel else {view.planned}
    if node is None or not (node.kernel and all(fits)) or node.kernel in fits:
        return ""
    return f"the node runs kernel {node.kernel}, the upgrade was planned for {view.planned}"


def explain_driver_change(view: NodeView) -> str:
    """That a node has another driver than its upgrade would revert to, as a sentence; empty if it has that driver.

    The read from which the upgrade was ordered may be stale, and another upgrade may have ended on the node since.
    Only a plan's upgrade is judged: a stack orders upgrades of nodes whose label states a driver that does not run, or
    is no longer known.
    """
    node, had = view.node, view.source_key or "none"
    if node is None or view.reason is not UpgradeReason.ROLLOUT or (node.driver_key or "none") == had:
        return ""
    return f"the node has driver {node.driver_key or 'none'}, and the upgrade was ordered when it had {had}"


def operand_keys(node: NodeFacts) -> tuple[str, str, str]:
    """The keys of the operands that the labels of a node name."""
    return (node.driver_key, node.runtime_key, node.plugin_key)


def driver_to_remove(view: NodeView) -> str:
    """What is missing until no operand runs on the node and it records its former driver; empty if nothing is."""
    node = view.node
    if node is None or not _is_off(node):
        return "switching off the operands of the node"
    if view.reason is not UpgradeReason.INSTALL and node.removed_driver is None:
        return "recording the former driver of the node"
    return operands_left(view)


def operands_left(view: NodeView) -> str:
    """That operand pods, also of another operator, are still on the node, as a sentence; empty if none is."""
    if left := view.driver.pods + view.plugin.pods + view.other_operands.pods:
        return explain_silence(view, f"waiting for {left} operand pod(s) to end")
    return f"waiting for {view.foreign_pods} pod(s) of another operator to end" if view.foreign_pods else ""


def is_left_on_node(view: NodeView) -> bool:
    """Whether the upgrade failed and left its taint and claim on the node, for an administrator."""
    return view.phase is NodePhase.FAILED and view.node is not None and view.node.claimed_by == view.uid


def has_no_driver(view: NodeView) -> bool:
    """Whether it is released without a working driver: no gang can be placed on it until it is upgraded again."""
    off = view.node is not None and _is_off(view.node)
    return view.phase is NodePhase.RELEASING and (off or view.failure == KERNEL_CHANGED)


def _is_off(node: NodeFacts) -> bool:
    return (node.driver_key, node.operands) == ("none", "off")


def is_failing(view: NodeView) -> bool:
    """Whether the upgrade has failed, or is about to fail."""
    return view.phase is NodePhase.FAILED or (view.phase is NodePhase.RELEASING and bool(view.failure))


def upgrade_failure(job: PodResult) -> str:
    """The reason of a node upgrade whose Job has failed."""
    return NODE_DEGRADED if job.result is not None and job.result.reason is Reason.DEGRADED else "UpgradeFailed"


def result_message(pod_result: PodResult, otherwise: str) -> str:
    """The message of a node pod's result, or why it has no result."""
    return pod_result.result.message if pod_result.result is not None else pod_result.trouble or otherwise


class RequestFacts(Struct, frozen=True, kw_only=True):
    """A gang of the upgrade group, as far as its nodes depend on it."""

    name: str
    gang: str
    phase: RequestPhase
    bound: bool = False  # all members of the restarted gang have a node
    nodes: frozenset[str] = frozenset()  # names of those that it ran on; none: not known, it may have run on any
    message: str = ""
    deadline: datetime | None = None


class GroupView(Struct, frozen=True, kw_only=True):
    """An upgrade group: its upgrades, its requests, and what its plan orders."""

    nodes: tuple[NodeView, ...]
    requests: tuple[RequestFacts, ...] = ()
    gangs: int = 0  # gangs that must have a request before a node is tainted
    undo: bool = False  # plan aborted or deleted
    refused: str = ""  # why its gangs cannot be requested to checkpoint now; then the group is released


def turned_back(group: GroupView) -> str:
    """The first node of a group that has failed or is being released; empty if there is none."""
    ways_out = {NodePhase.RELEASING, NodePhase.FAILED}
    return next((node.name for node in group.nodes if node.phase in ways_out), "")


def unplaced_gangs(group: GroupView) -> list[str]:
    """Gangs that restart, whose pods have no nodes yet and may get these.

    A gang is not placed on a node that is kept, or that has no driver, so that its placement is not waited for.
    """
    out = {
        view.node.name
        for view in group.nodes
        if view.node is not None and (is_left_on_node(view) or has_no_driver(view))
    }
    starting = [gang for gang in group.requests if gang.phase is RequestPhase.RESTARTING and not gang.bound]
    return [gang.gang for gang in starting if not out or (gang.nodes and not gang.nodes & out)]


def _is_lost_at_boot(view: NodeView, pod: OtherPod) -> bool:
    return view.reason is UpgradeReason.REPAIR and pod.before_boot


def to_evict(view: NodeView, group: GroupView) -> tuple[OtherPod, ...]:
    """Pods that are evicted now; expendable pods go last, when nothing else can still undo the group here."""
    pods = tuple(
        pod for pod in view.others if not pod.member and (pod.evictable or pod.forced or _is_lost_at_boot(view, pod))
    )
    first = tuple(pod for pod in pods if not pod.expendable)
    stopping = any(request.phase not in STOPPED for request in group.requests)
    return first if first or stopping else pods


def pods_left(nodes: Iterable[NodeView]) -> str:
    """A sentence with one pod, beside members of gangs, for whose end a node upgrade waits; empty if there is none.

    Expendable pods do not count: they are evicted after the gangs.
    """
    left = (pod for node in nodes for pod in node.others if not (pod.member or pod.expendable))
    pod = next(left, None)
    return f"waiting for pod {pod.namespace}/{pod.name} to end first" if pod is not None else ""


class Act(StrEnum):
    """What is done to the cluster in a step."""

    PREPARE = "prepare pod"
    CLOSE = "taint"
    EVICT = "evict others"
    OPERANDS_OFF = "operands off"
    REMOVE_DRIVER = "remove driver"  # the node keeps a record of its former driver, for the next upgrade
    UPGRADE = "upgrade Job"
    CANCEL_FIRST = "no first upgrade Job"  # a revert begins, and two upgrades on one node would undo each other's work
    CANCEL = "no upgrade Job"  # its node was deleted: the Job must not work on another node that joins under its name
    DRIVER_ON = "driver on"
    OPERANDS_ON = "operands on"
    VALIDATE = "validation pod"
    RELEASE = "release"


class Decision(Struct, frozen=True, kw_only=True):
    """The acts of a step, and `phase`, which is written after them (nothing is written if it is unchanged)."""

    phase: NodePhase
    acts: tuple[Act, ...] = ()
    reverting: bool = False
    failure: str = ""
    message: str = ""
    blocked: str = ""  # reason of the condition Blocked, empty if nothing blocks
    evict: tuple[OtherPod, ...] = ()
    on_siblings: bool = False  # waits for siblings, or for gangs that stop: their deadlines count, not its own
    deadline: datetime | None = None  # the phase's new deadline, that of what it waits for, since its own has passed


def keep_phase(view: NodeView, message: str = "", *acts: Act, blocked: str = "") -> Decision:
    """The decision to stay in a phase, with these acts."""
    return Decision(
        phase=view.phase, acts=acts, reverting=view.reverting, failure=view.failure, message=message, blocked=blocked
    )


def go_to(view: NodeView, phase: NodePhase, *acts: Act, message: str = "", failure: str = "") -> Decision:
    """The decision to enter a phase after these acts; a failure that is known already stays."""
    return Decision(phase=phase, acts=acts, reverting=view.reverting, failure=failure or view.failure, message=message)


def extend_deadline(waiting: Decision, group: GroupView) -> Decision:
    """Wait until the deadline of what is waited for: gangs that stop, or else the other nodes of the group."""
    gangs = [gang.deadline for gang in group.requests if gang.phase is RequestPhase.STOPPING]
    deadlines = gangs or [node.deadline for node in group.nodes if not is_final(node.phase)]
    return structs.replace(
        waiting, deadline=max((deadline for deadline in deadlines if deadline is not None), default=None)
    )
