"""Reading what the next step of a node upgrade depends on: the Node, the pods on it, the upgrade Job."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from upgrader.api import kubernetes as k
from upgrader.api import names
from upgrader.api.resources import JOBS, NODES, PODS
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade, NodeUpgradeStatus
from upgrader.core import timing
from upgrader.core.gpu_stack import adoption
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.operands import COMPONENTS
from upgrader.core.model.phases import NodePhase, UpgradeReason, row
from upgrader.core.node_protocol.gpu_resources import Claimed, PoolGpus, gpus_by_name
from upgrader.core.node_upgrade.upgrade_state import (
    ABORTED,
    GOING_BACK,
    NO_ANSWER,
    REFUSAL,
    NodeView,
    OperandFacts,
    OtherPod,
    UpgradeJobs,
)
from upgrader.core.workloads.checkpoint_annotations import Declared, nearest
from upgrader.reconcile.facts.device_claims import holds_by_claim, read_claimed
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.facts.owner_reading import declared_above
from upgrader.reconcile.facts.pod_facts import controller_of, gpus_of, of_the_node, ours, replicated
from upgrader.reconcile.node_upgrade import force_requests
from upgrader.reconcile.observe import pod_events
from upgrader.reconcile.ports import Reads
from upgrader.reconcile.runtime.context import Context
from upgrader.stack import manifests, pod_results
from upgrader.stack.naming import UPGRADE

OPERAND_PHASES = frozenset({"Pending", "Running", "Unknown"})


HOLDERS = frozenset(COMPONENTS) - {"driver", "device-plugin"}
"""Operands beside those that an upgrade waits for by their keys: each may hold a device open, so all are gone first."""


class MayGo(msgspec.Struct, frozen=True, kw_only=True):
    """Uids of pods that may go although no gang of theirs is stopped, and of those that stay."""

    forced: frozenset[str] = frozenset()  # a person ordered them away
    expendable: frozenset[str] = frozenset()  # nothing makes them again, and the approval names their gang
    waited_for: frozenset[str] | None = frozenset()  # the plan waits for them; None: not known, so every pod may be one


_BOOTED = frozenset({NodePhase.LOADING, NodePhase.VALIDATING})
"""The phases after a node upgrade's own reboot, which its Job has seen to be over."""


def effective(upgrade: NodeUpgrade) -> NodeState:
    """What the node should run at the end of the walk: the source while it goes back."""
    return upgrade.spec.source if upgrade.status.reverting else upgrade.spec.target


def expected_gpus(upgrade: NodeUpgrade) -> int:
    """Devices that the node should offer at the end of the walk; 0 where that is not known."""
    return manifests.offered(upgrade, effective(upgrade), upgrade.status.found.gpus)


async def read_upgrade(
    context: Context,
    upgrade: NodeUpgrade,
    members: frozenset[str],
    spaces: Mapping[str, Declared],
    may_go: MayGo,
    reads: Reads,
) -> NodeView:
    """One NodeUpgrade with its surroundings, as `reads` has them.

    `members`: uids of pods that acknowledged or are being stopped; `spaces`: what namespaces declare.
    """
    node = await reads.get(NODES, upgrade.spec.node.name)
    if node is not None and node.metadata.uid != upgrade.spec.node.uid:
        node = None
    pods = await reads.list(PODS, fields=f"spec.nodeName={upgrade.spec.node.name}") if node else []
    job = None
    if upgrade.status.phase is NodePhase.UPGRADING:
        name = manifests.upgrade_name(upgrade, reverting=upgrade.status.reverting)
        job = await reads.get(JOBS, name, context.stack.namespace)
    gpus = _gpus(upgrade, await read_claimed(reads, pods))
    around = {
        pod.metadata.uid: await _around(reads, pod, spaces)
        for pod in pods
        if pod.metadata.uid not in members and _in_the_way(upgrade, pod, gpus)
    }
    view = build_view(upgrade, node, pods, job, members, around, gpus.claimed, namespace=context.stack.namespace)
    others = tuple(_released(pod, may_go) for pod in view.others)
    jobs = await _upgrade_jobs(context, upgrade, pods, reads)
    view = msgspec.structs.replace(view, others=others, forced=force_requests.orders(upgrade), upgrade_jobs=jobs)
    return await _explained(context, view)


async def _upgrade_jobs(context: Context, upgrade: NodeUpgrade, pods: Sequence[k.Pod], reads: Reads) -> UpgradeJobs:
    """Upgrade Jobs that may still work on the node: read before one is made, by their pods rather than by themselves.

    A Job says that it is over on the clock of its controller, or is gone, while its pod still ends.
    """
    if upgrade.status.phase not in {NodePhase.UNLOADING, NodePhase.UPGRADING}:
        return UpgradeJobs()
    first = None
    if upgrade.status.reverting:
        name = manifests.upgrade_name(upgrade, reverting=False)
        first = await reads.get(JOBS, name, context.stack.namespace)
    return UpgradeJobs(
        first=first is not None and not pod_results.job_ended(first),
        pods=sum(ours(pod, context.stack.namespace) and _upgrades(pod) for pod in pods),
    )


def _upgrades(pod: k.Pod) -> bool:
    return pod.metadata.labels.get(names.LABEL_COMPONENT) == UPGRADE and pod.status.phase in OPERAND_PHASES


async def list_others(context: Context, upgrade: NodeUpgrade, view: NodeView) -> tuple[OtherPod, ...]:
    """Pods that the upgrade would end, as they are now; who is a member is known from the view."""
    pods = await context.cluster.list(PODS, fields=f"spec.nodeName={upgrade.spec.node.name}")
    members = frozenset(one.uid for one in view.others if one.member)
    claimed = await read_claimed(context.cluster, pods)
    rest = [pod for pod in pods if not ours(pod, context.stack.namespace)]
    return tuple(_others(upgrade, rest, members, {}, _gpus(upgrade, claimed)))


def blind_view(upgrade: NodeUpgrade) -> NodeView:
    """A NodeUpgrade whose node cannot be read: where its walk is, for the others. Nothing is decided on it."""
    status = upgrade.status
    return NodeView(
        name=upgrade.metadata.name,
        uid=upgrade.metadata.uid,
        reason=upgrade.spec.reason,
        phase=status.phase,
        phase_since=timing.parse(upgrade.metadata.creation_timestamp),
        deadline=None,
        reverting=status.reverting,
        failure=status.reason,
    )


async def _explained(context: Context, view: NodeView) -> NodeView:
    """With why the pod does not start that this phase waits for, where its own status does not say."""
    listening = view.node is not None and view.node.ready
    match view.phase:
        case NodePhase.PREPARING:
            found = await pod_events.of_pod(context, view.prepare, "the prepare pod", listening=listening)
            return msgspec.structs.replace(view, prepare=found)
        case NodePhase.UPGRADING:
            found = await pod_events.of_pod(context, view.upgrade, "the upgrade Job", listening=listening)
            return msgspec.structs.replace(view, upgrade=found)
        case NodePhase.VALIDATING:
            found = await pod_events.of_pod(context, view.validate, "the validation pod", listening=listening)
            return msgspec.structs.replace(view, validate=found)
        case _:
            return view


def _released(pod: OtherPod, may_go: MayGo) -> OtherPod:
    expendable = pod.uid in may_go.expendable
    stays = may_go.waited_for is None or pod.uid in may_go.waited_for
    return msgspec.structs.replace(
        pod,
        forced=pod.uid in may_go.forced,
        expendable=expendable,
        evictable=(pod.evictable and not stays) or (expendable and not pod.leaving),
    )


async def _around(reads: Reads, pod: k.Pod, spaces: Mapping[str, Declared]) -> Declared:
    """What is declared around a pod. Its owners are read only where it would be evicted if they said nothing."""
    space = spaces.get(pod.metadata.namespace, Declared())
    if not replicated(pod, space):
        return space
    return nearest([await declared_above(reads, pod), space])


def build_view(
    upgrade: NodeUpgrade,
    node: k.Node | None,
    pods: Sequence[k.Pod],
    job: k.Job | None,
    members: frozenset[str],
    around: Mapping[str, Declared],
    claimed: Claimed | None = None,
    *,
    namespace: str,
) -> NodeView:
    """The values that `core.node_upgrade.upgrade_machine.decide` works on; pure.

    `pods`: all of the node; our own are in `namespace`. `claimed`: see `device_claims.read_claimed`.
    """
    status, goal = upgrade.status, effective(upgrade)
    own = [pod for pod in pods if ours(pod, namespace)]
    rest = [pod for pod in pods if not ours(pod, namespace)]
    return NodeView(
        name=upgrade.metadata.name,
        uid=upgrade.metadata.uid,
        reason=upgrade.spec.reason,
        phase=status.phase,
        phase_since=timing.parse(status.steps[-1].started_at if status.steps else upgrade.metadata.creation_timestamp),
        deadline=_deadline(upgrade, node),
        reverting=status.reverting,
        failure=status.reason,
        why=_why(status),
        refused=_refused(status),
        node=_facts(upgrade, node) if node is not None else None,
        source_key=upgrade.spec.source.driver_key,
        driver_key=goal.driver_key,
        plugin_key=goal.plugin_key,
        runtime_key=goal.runtime_key,
        revision=goal.revision,
        kernel=_kernel(upgrade),
        planned=upgrade.spec.target.kernel if upgrade.spec.reboot is None or status.phase in _BOOTED else "",
        former=upgrade.spec.source.kernel,
        expected_gpus=expected_gpus(upgrade),
        prepare=pod_results.prepare_result(own, upgrade),
        upgrade=pod_results.upgrade_result(job, own),
        validate=pod_results.validate_result(own, upgrade, reverting=status.reverting),
        driver=_operand(own, names.LABEL_IMAGE_KEY, goal.driver_key, status.phase, "driver"),
        plugin=_operand(own, names.LABEL_IMAGE_KEY, goal.plugin_key, status.phase, "device-plugin"),
        theirs=sum(_theirs(pod) for pod in rest),
        runtime=_operand(own, names.LABEL_IMAGE_KEY, goal.runtime_key, status.phase, "runtime"),
        others_of_ours=_holders(own),
        others=tuple(_others(upgrade, rest, members, around, _gpus(upgrade, claimed or {}))),
        empties=manifests.empties(upgrade),
        not_evicted=status.eviction.message if status.eviction is not None else "",
        evict_after=timing.parse(status.eviction.not_before) if status.eviction is not None else None,
    )


def _deadline(upgrade: NodeUpgrade, node: k.Node | None) -> datetime | None:
    """When this phase is given up: as it was written, but closing counts from its taint.

    A step that came late, whosever fault that was, has not waited: until the taint is there it is tried for as long
    again.
    """
    status = upgrade.status
    written = timing.parse(status.deadline) if status.deadline else None
    if status.phase is not NodePhase.TAINTING or written is None or node is None:
        return written
    allowed, facts = timedelta(seconds=row(status.phase).seconds or 0), _facts(upgrade, node)
    if facts.claimed_by == upgrade.metadata.uid and facts.closed_at is not None:
        return max(written, facts.closed_at + allowed)
    return written + allowed


def _facts(upgrade: NodeUpgrade, node: k.Node) -> NodeFacts:
    """The node, with what it is able to offer.

    Where it is partitioned otherwise now, its capacity has for five minutes more what was offered before (kubelet
    1.34, endpointStopGracePeriod of its device manager; read, not measured). Then resources count of which pods can
    have something.
    """
    resource = upgrade.spec.target.resource_name
    facts = node_facts(node, resource)
    if upgrade.spec.source.mig_strategy == upgrade.spec.target.mig_strategy:
        return facts
    offered = gpus_by_name(node.status.allocatable, resource)
    capacity = gpus_by_name(node.status.capacity, resource)
    return msgspec.structs.replace(facts, gpus=sum(count for name, count in capacity.items() if name in offered))


def _theirs(pod: k.Pod) -> bool:
    """Whether another operator's label had deployed it; its DaemonSet takes it away when that says false.

    A selector that a pod without a DaemonSet has would keep it there for ever.
    """
    owner = controller_of(pod.metadata)
    by_daemonset = owner is not None and owner.kind == "DaemonSet"
    return by_daemonset and any(
        pod.spec.node_selector.get(key, adoption.OFF) != adoption.OFF for key in names.LABELS_DEPLOY
    )


def _operand(pods: Sequence[k.Pod], label: str, key: str, phase: NodePhase, component: str) -> OperandFacts:
    """Pods of an operand: while switching off, all of the component; afterwards only those of the wanted image."""
    found = [
        pod
        for pod in pods
        if pod.metadata.labels.get(names.LABEL_COMPONENT) == component
        and pod.status.phase in OPERAND_PHASES
        and (phase is NodePhase.UNLOADING or pod.metadata.labels.get(label) == key)
    ]
    ready = [pod for pod in found if pod.metadata.deletion_timestamp is None and _ready(pod)]
    return OperandFacts(pods=len(found), ready=len(ready))


def _holders(pods: Sequence[k.Pod]) -> OperandFacts:
    alive = (pod for pod in pods if pod.status.phase in OPERAND_PHASES)
    return OperandFacts(pods=sum(pod.metadata.labels.get(names.LABEL_COMPONENT) in HOLDERS for pod in alive))


def _ready(pod: k.Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def _others(
    upgrade: NodeUpgrade,
    pods: Sequence[k.Pod],
    members: frozenset[str],
    around: Mapping[str, Declared],
    gpus: PoolGpus,
) -> list[OtherPod]:
    found = []
    for pod in pods:
        if pod.status.phase in {"Succeeded", "Failed"} or not _in_the_way(upgrade, pod, gpus):
            continue
        leaving = pod.metadata.deletion_timestamp is not None
        found.append(
            OtherPod(
                name=pod.metadata.name,
                namespace=pod.metadata.namespace,
                uid=pod.metadata.uid,
                member=pod.metadata.uid in members,
                gpus=gpus_of(pod, gpus) > 0,
                evictable=_evictable(pod, around.get(pod.metadata.uid), gpus),
                leaving=leaving,
                before_boot=upgrade.spec.reason is UpgradeReason.REPAIR and _rejected(pod),
            )
        )
    return found


def _evictable(pod: k.Pod, around: Declared | None, gpus: PoolGpus) -> bool:
    """Whether a pod may go by itself; one with GPUs by ResourceClaim is waited for, as plans do."""
    if pod.metadata.deletion_timestamp is not None or holds_by_claim(pod, gpus.claimed):
        return False
    return replicated(pod, around)


def _in_the_way(upgrade: NodeUpgrade, pod: k.Pod, gpus: PoolGpus) -> bool:
    """Whether the upgrade would end a pod: its devices go, the CPUs that are its own, or the whole machine.

    What belongs to the node and comes back with it is not: pods of DaemonSets and static ones.
    """
    if gpus_of(pod, gpus):
        return True
    return manifests.empties(upgrade) and not of_the_node(pod)


def _gpus(upgrade: NodeUpgrade, claimed: Claimed) -> PoolGpus:
    """What the node offered before the upgrade, and what it will offer: pods may ask for either."""
    before = upgrade.spec.source.resource_name
    return PoolGpus(resource=upgrade.spec.target.resource_name, former=(before,) if before else (), claimed=claimed)


def blocked(status: NodeUpgradeStatus) -> k.Condition | None:
    """The condition that says what blocks a node upgrade, while something does."""
    return next((one for one in status.conditions if (one.type, one.status) == ("Blocked", "True")), None)


def _refused(status: NodeUpgradeStatus) -> str:
    found = blocked(status)
    return status.message if found is not None and found.reason in {REFUSAL, NO_ANSWER} else ""


def _why(status: NodeUpgradeStatus) -> str:
    """What was said when the walk failed: it went on with switching off once more, or with giving the node back."""
    next_phase = NodePhase.UNLOADING if status.reverting else NodePhase.RELEASING
    after = [place for place, step in enumerate(status.steps) if step.name is next_phase and place]
    if status.reason in {"", ABORTED} or not after:
        return ""
    return status.steps[after[-1] - 1].result.removesuffix(GOING_BACK)


def _kernel(upgrade: NodeUpgrade) -> str:
    """The kernel that the node has to show after the upgrade Job of this way; empty where that does not reboot."""
    reboot = upgrade.spec.reboot
    if reboot is None:
        return ""
    return reboot.source if upgrade.status.reverting else reboot.target


def _rejected(pod: k.Pod) -> bool:
    """The kubelet says that everything of this pod has ended; a container that waits may still start."""
    states = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    return bool(states) and all(one.state.terminated is not None for one in states)
