"""What the next step of an upgrade depends on, and what is decided: values of core.node_upgrade.upgrade_machine."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct, structs

from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.phases import NodePhase, RequestPhase, UpgradeReason, ends
from upgrader.core.model.pod_diagnostics import Silence
from upgrader.core.node_protocol.orders import OrderResult


class Outcome(StrEnum):
    """How far one of our pods on the node is."""

    ABSENT = "Absent"
    WAITING = "Waiting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class PodResult(Struct, frozen=True, kw_only=True):
    """One of our pods on the node (prepare, upgrade, validate) and its answer."""

    outcome: Outcome = Outcome.ABSENT
    result: OrderResult | None = None
    trouble: str = ""  # why it cannot start (image pull...), as the kubelet or the API server says it
    silence: Silence | None = None  # it has not begun, and its status does not say why
    suspended: bool = False  # an upgrade Job that was made, and not started: nothing came of it yet


class OperandFacts(Struct, frozen=True, kw_only=True):
    """Pods of one operand on the node."""

    pods: int = 0
    ready: int = 0


class UpgradeJobs(Struct, frozen=True, kw_only=True):
    """Upgrade Jobs that may still work on the node, beside the one of this direction; not known while that is there."""

    first: bool = False  # the Job of the way there, while the node goes back; it has not ended
    pods: int = 0  # pods of whichever upgrade Job, its own or one that is gone, which have not ended


class OtherPod(Struct, frozen=True, kw_only=True):
    """A pod that is none of ours and that the upgrade would end."""

    name: str
    namespace: str
    uid: str
    member: bool = False  # of a gang that has a valid acknowledgement or is being stopped
    evictable: bool = False  # of a replicated owner, or expendable; nobody is ending it yet
    gpus: bool = True  # asks for some of the stack's; without any, only a reboot or other CPUs would end it
    expendable: bool = False  # nothing makes it again, and the approval names its gang: it goes last, for good
    before_boot: bool = False  # does not run on this boot: the kubelet rejected or lost it
    leaving: bool = False  # somebody is ending it
    forced: bool = False  # declares nothing, or its owner replaces it, and a person ordered the node to be drained

    @property
    def stranger(self) -> bool:
        """Whether nobody judged it before the gangs were asked; what ends already and holds no device is let end."""
        return not (self.member or self.evictable or self.expendable) and (self.gpus or not self.leaving)


ABORTED = "Aborted"
"""Failure of a walk that a person broke off: nothing went wrong."""

DRIVER_CHANGED = "DriverChanged"
"""Failure of a node upgrade that would go back to another driver than its node has by now."""

KERNEL_CHANGED = "KernelChanged"
"""Failure of a node upgrade whose node came up with another kernel than it was planned for."""

REFUSAL = "Refused"
"""Why a node upgrade is blocked: the API server, or an admission webhook of it, does not do what its phase needs."""

NO_ANSWER = "NoAnswer"
"""Why a node upgrade is blocked: the API server could not be reached, or failed; nothing was refused.

One that throttles (429) holds no upgrade: the whole step ends, and is made again after a pause.
"""

GOING_BACK = "; going back"
"""How the sentence ends with which a walk turns round."""

SETTLE = timedelta(seconds=5)
"""Pods are listed again this long after the taint: a bind that was on its way has landed by then (see `settled`)."""

STOPPED = frozenset({RequestPhase.STOPPED, RequestPhase.ENDED})
"""A gang in one of these runs nowhere."""


class NodeView(Struct, frozen=True, kw_only=True):
    """A NodeUpgrade with everything that its next step depends on."""

    name: str
    reason: UpgradeReason
    phase: NodePhase
    phase_since: datetime
    deadline: datetime | None
    reverting: bool = False
    failure: str = ""  # status.reason that survives until the end: why the walk turned round
    why: str = ""  # the sentence of that failure
    refused: str = ""  # why the API server, or an admission webhook of it, did not do what this phase needs
    node: NodeFacts | None = None  # None: deleted, or another node of that name
    uid: str = ""
    source_key: str = ""  # of the driver that the node had when the upgrade was ordered; empty: none
    driver_key: str = ""  # of the effective target (source while reverting)
    plugin_key: str = ""
    runtime_key: str = ""
    revision: str = ""
    kernel: str = ""  # that the upgrade reboots into; empty: it does not
    planned: str = ""  # the kernel that the node has to run now; empty: the upgrade reboots it, and has not yet
    former: str = ""  # the kernel that what the node had before is for
    expected_gpus: int = 0
    prepare: PodResult = PodResult()
    upgrade: PodResult = PodResult()
    validate: PodResult = PodResult()
    upgrade_jobs: UpgradeJobs = UpgradeJobs()
    driver: OperandFacts = OperandFacts()
    plugin: OperandFacts = OperandFacts()
    theirs: int = 0  # pods of another operator that its labels have deployed here and that were taken over
    runtime: OperandFacts = OperandFacts()
    others_of_ours: OperandFacts = OperandFacts()  # pods of operands that may hold devices open
    others: tuple[OtherPod, ...] = ()
    empties: bool = False  # it ends every pod on the node, with GPUs or without
    forced: dict[NodePhase, str] = {}  # steps that a person ordered to go on, with who and why
    not_evicted: str = ""  # why a pod was refused to be evicted last, as a sentence
    evict_after: datetime | None = None  # until then nobody is evicted; None: at once


def settled(view: NodeView, node: NodeFacts, now: datetime) -> bool:
    """Whether no pod that the upgrade would end can still be on its way to its node, which is closed.

    No bind of a pod with GPUs was where a node never had any, or where none works since it rebooted: its kubelet would
    refuse the pod. In a plan's upgrade, and where a plugin is known to the kubelet already, it may just be away.
    """
    none = {UpgradeReason.INSTALL: node.gpus == 0, UpgradeReason.REPAIR: True}.get(view.reason, False)
    if none and node.gpus_allocatable == 0 and not view.empties:
        return True
    return now >= (node.closed_at or view.phase_since) + SETTLE


def missing_gpus(view: NodeView) -> str:
    """How many GPUs are expected on a node and not allocatable, as a sentence; empty where none is missing."""
    node = view.node
    if node is None:
        return ""
    expected = max(view.expected_gpus, node.gpus)
    return f"{node.gpus_allocatable} GPUs allocatable, {expected} expected" if node.gpus_allocatable < expected else ""


def away(view: NodeView, otherwise: str) -> str:
    """That a node says nothing while its upgrade waits for it, as a sentence; `otherwise` while it is Ready."""
    node = view.node
    if node is None or node.ready:
        return otherwise
    if view.phase is NodePhase.UPGRADING and view.kernel not in {"", node.kernel}:
        return f"the node is not Ready: it has not come back from its reboot into kernel {view.kernel}"
    return "the node is not Ready: nothing on it answers"


def moved(view: NodeView) -> str:
    """That a node rebooted into another kernel than its way is for, as a sentence; empty where it did not.

    After a reboot of the upgrade its Node shows the former kernel for a while: that says nothing yet.
    """
    node, fits = view.node, {view.planned, view.former} if view.reverting or view.kernel else {view.planned}
    if node is None or not (node.kernel and all(fits)) or node.kernel in fits:
        return ""
    return f"the node runs kernel {node.kernel}, the upgrade was planned for {view.planned}"


def replaced(view: NodeView) -> str:
    """That a node has another driver than its upgrade would go back to, as a sentence; empty where it has that one.

    What was read when the upgrade was ordered may be of before, and another upgrade may have ended there meanwhile.
    Only a plan's upgrade is judged: its stack orders one where what the label says is not what runs, or is not known
    any more.
    """
    node, had = view.node, view.source_key or "none"
    if node is None or view.reason is not UpgradeReason.ROLLOUT or (node.driver_key or "none") == had:
        return ""
    return f"the node has driver {node.driver_key or 'none'}, and the upgrade was ordered when it had {had}"


def driver_to_remove(view: NodeView) -> str:
    """What is missing until nothing of ours runs on the node and it says what it had; empty when nothing is."""
    node = view.node
    if node is None or not _off(node):
        return "switching off what was switched on"
    if view.reason is not UpgradeReason.INSTALL and node.removed_driver is None:
        return "keeping what it had"
    return operands_left(view)


def operands_left(view: NodeView) -> str:
    """That pods of operands are still on the node, ours or another operator's, as a sentence; empty when none is."""
    if left := view.driver.pods + view.plugin.pods + view.others_of_ours.pods:
        return away(view, f"waiting for {left} operand pod(s) to go")
    return f"waiting for {view.theirs} pod(s) of another operator to go" if view.theirs else ""


def kept(view: NodeView) -> bool:
    """Whether the upgrade failed and left its marks on the node, for a person."""
    return view.phase is NodePhase.FAILED and view.node is not None and view.node.claimed_by == view.uid


def bare(view: NodeView) -> bool:
    """Whether it is given back without a driver that works: no gang can come to it, until it is upgraded anew."""
    off = view.node is not None and _off(view.node)
    return view.phase is NodePhase.RELEASING and (off or view.failure == KERNEL_CHANGED)


def _off(node: NodeFacts) -> bool:
    return (node.driver_key, node.operands) == ("none", "off")


def let_go(view: NodeView) -> bool:
    """Whether the upgrade has failed, or is about to have."""
    return view.phase is NodePhase.FAILED or (view.phase is NodePhase.RELEASING and bool(view.failure))


def said(pod_result: PodResult, otherwise: str) -> str:
    """What one of our pods answered, or why it gave no answer."""
    return pod_result.result.message if pod_result.result is not None else pod_result.trouble or otherwise


class RequestFacts(Struct, frozen=True, kw_only=True):
    """What a node needs to know of a gang of its group."""

    name: str
    gang: str
    phase: RequestPhase
    bound: bool = False  # all members of the restarted gang have a node
    nodes: frozenset[str] = frozenset()  # names of those that it ran on; none: not known, it may have been any
    message: str = ""
    deadline: datetime | None = None


class GroupView(Struct, frozen=True, kw_only=True):
    """A group: its upgrades, its requests, and what its plan wants."""

    nodes: tuple[NodeView, ...]
    requests: tuple[RequestFacts, ...] = ()
    gangs: int = 0  # gangs that must have a request before anything is closed
    undo: bool = False  # plan aborted or deleted
    refused: str = ""  # why its gangs cannot be asked now; then the group is let go


def turned_back(group: GroupView) -> str:
    """The first node of a group that has failed or is on its way out; empty where there is none."""
    ways_out = {NodePhase.RELEASING, NodePhase.FAILED}
    return next((node.name for node in group.nodes if node.phase in ways_out), "")


def unplaced(group: GroupView) -> list[str]:
    """Gangs that restart, whose pods have no nodes yet and may get these.

    A gang does not come back to a node that is kept, or that has no driver: nobody waits for it to be placed.
    """
    out = {one.node.name for one in group.nodes if one.node is not None and (kept(one) or bare(one))}
    starting = [one for one in group.requests if one.phase is RequestPhase.RESTARTING and not one.bound]
    return [one.gang for one in starting if not out or (one.nodes and not one.nodes & out)]


def _harmless(view: NodeView, pod: OtherPod) -> bool:
    return view.reason is UpgradeReason.REPAIR and pod.before_boot


def to_evict(view: NodeView, group: GroupView) -> tuple[OtherPod, ...]:
    """Pods that are evicted now; what nobody makes again goes when nothing else can still undo the group here."""
    found = tuple(
        pod for pod in view.others if not pod.member and (pod.evictable or pod.forced or _harmless(view, pod))
    )
    first = tuple(pod for pod in found if not pod.expendable)
    stopping = any(one.phase not in STOPPED for one in group.requests)
    return first if first or stopping else found


def pods_left(nodes: Iterable[NodeView]) -> str:
    """That nodes still have pods for which a node upgrade waits, beside members of gangs; as a sentence, or empty.

    Those that nobody makes again and the approval names do not count: they go after the gangs.
    """
    left = (pod for one in nodes for pod in one.others if not (pod.member or pod.expendable))
    pod = next(left, None)
    return f"waiting for pod {pod.namespace}/{pod.name} to go first" if pod is not None else ""


class Act(StrEnum):
    """What is done to the world in a step."""

    PREPARE = "prepare pod"
    CLOSE = "taint"
    EVICT = "evict others"
    OPERANDS_OFF = "operands off"
    REMOVE_DRIVER = "driver away"  # with what the node had kept on it, for the upgrade that comes next
    UPGRADE = "upgrade Job"
    CANCEL_FIRST = (
        "no first upgrade Job"  # the way back begins, and two upgrades on one node would undo each other's work
    )
    CANCEL = "no upgrade Job"  # its node is gone: a node that joins under its name is not its business
    DRIVER_ON = "driver on"
    OPERANDS_ON = "operands on"
    VALIDATE = "validation pod"
    GIVE_BACK = "give back"


class Decision(Struct, frozen=True, kw_only=True):
    """Acts first, then the record: `phase` is what is written afterwards (unchanged: nothing is written)."""

    phase: NodePhase
    acts: tuple[Act, ...] = ()
    reverting: bool = False
    failure: str = ""
    message: str = ""
    blocked: str = ""  # reason of the condition Blocked, empty where nothing blocks
    evict: tuple[OtherPod, ...] = ()
    on_siblings: bool = False  # waits for siblings, or for gangs that stop: their deadlines count, not its own
    deadline: datetime | None = None  # the phase's new one: of what it waits for, since its own has passed


def stay(view: NodeView, message: str = "", *acts: Act, blocked: str = "") -> Decision:
    """A phase goes on, with these acts."""
    return Decision(
        phase=view.phase, acts=acts, reverting=view.reverting, failure=view.failure, message=message, blocked=blocked
    )


def extend(waiting: Decision, group: GroupView) -> Decision:
    """Wait until the deadline of what is waited for: gangs that stop, or else the others of the group."""
    gangs = [gang.deadline for gang in group.requests if gang.phase is RequestPhase.STOPPING]
    found = gangs or [node.deadline for node in group.nodes if not ends(node.phase)]
    return structs.replace(waiting, deadline=max((each for each in found if each is not None), default=None))
