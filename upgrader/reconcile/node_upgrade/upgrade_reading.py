"""The inputs of one step of a node upgrade: the Node, the pods on it, the upgrade Job."""

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
from upgrader.core.model.phases import NodePhase, UpgradeReason, transition_of
from upgrader.core.node_protocol.gpu_resources import Claimed, PoolGpus, gpus_by_name
from upgrader.core.node_upgrade.upgrade_state import (
    ABORTED,
    NO_ANSWER,
    REFUSAL,
    REVERT_SUFFIX,
    NodeView,
    OperandFacts,
    OtherPod,
    UpgradeJobs,
)
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations, nearest_declared
from upgrader.reconcile.facts.device_claims import holds_by_claim, read_claimed
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.facts.node_resources import read_resources
from upgrader.reconcile.facts.operand_pods import pod_trouble
from upgrader.reconcile.facts.owner_reading import declared_above
from upgrader.reconcile.facts.pod_facts import controller_of, gpus_of, is_own_pod, is_replicated, of_the_node
from upgrader.reconcile.node_upgrade import force_requests
from upgrader.reconcile.observe import pod_events
from upgrader.reconcile.ports import Reads
from upgrader.reconcile.runtime.context import Context
from upgrader.stack import manifests
from upgrader.stack.naming import UPGRADE
from upgrader.stack.node_pods import pod_results

OPERAND_PHASES = frozenset({"Pending", "Running", "Unknown"})


HOLDERS = frozenset(COMPONENTS) - {"driver", "device-plugin"}
"""Operands without a key on the node: each may hold a device open, so an upgrade waits until all have ended."""


class MayGo(msgspec.Struct, frozen=True, kw_only=True):
    """Uids of pods that may be evicted although their gang is not stopped, and of pods that stay."""

    forced: frozenset[str] = frozenset()  # a user forced their deletion
    expendable: frozenset[str] = frozenset()  # they have no controller, and the approval names their gang
    waited_for: frozenset[str] | None = frozenset()  # the plan waits for them; None: unknown, so every pod stays


_BOOTED = frozenset({NodePhase.LOADING, NodePhase.VALIDATING})
"""The phases after a node upgrade's own reboot, whose end its Job has confirmed."""


def effective_state(upgrade: NodeUpgrade) -> NodeState:
    """The state that the node should have at the end; the source state while the upgrade is reverted."""
    return upgrade.spec.source if upgrade.status.reverting else upgrade.spec.target


def expected_gpus(upgrade: NodeUpgrade) -> int:
    """Devices that the node should offer at the end; 0 if unknown."""
    return manifests.expected_devices(upgrade, effective_state(upgrade), upgrade.status.found.gpus)


async def read_upgrade(
    context: Context,
    upgrade: NodeUpgrade,
    members: frozenset[str],
    spaces: Mapping[str, CheckpointAnnotations],
    may_go: MayGo,
    reads: Reads,
) -> NodeView:
    """One NodeUpgrade with its node, pods and Job, read by `reads`.

    `members`: uids of pods that acknowledged or are being stopped; `spaces`: declarations of namespaces.
    """
    node = await reads.get(NODES, upgrade.spec.node.name)
    if node is not None and node.metadata.uid != upgrade.spec.node.uid:
        node = None
    pods = await reads.list(PODS, fields=f"spec.nodeName={upgrade.spec.node.name}") if node else []
    job = None
    if upgrade.status.phase is NodePhase.UPGRADING:
        name = manifests.upgrade_name(upgrade, reverting=upgrade.status.reverting)
        job = await reads.get(JOBS, name, context.stack.namespace)
    gpus = _pool_gpus(upgrade, await read_claimed(reads, pods))
    around = {
        pod.metadata.uid: await _declared_around(reads, pod, spaces)
        for pod in pods
        if pod.metadata.uid not in members and _in_the_way(upgrade, pod, gpus)
    }
    view = build_view(upgrade, node, pods, job, members, around, gpus.claimed, namespace=context.stack.namespace)
    others = tuple(_permit_eviction(pod, may_go) for pod in view.others)
    jobs = await _upgrade_jobs(context, upgrade, pods, reads)
    view = msgspec.structs.replace(view, others=others, forced=force_requests.forced_steps(upgrade), upgrade_jobs=jobs)
    return await _explain_silence(context, view)


async def _upgrade_jobs(context: Context, upgrade: NodeUpgrade, pods: Sequence[k.Pod], reads: Reads) -> UpgradeJobs:
    """Upgrade Jobs that may still work on the node, read by their pods before a Job is created.

    A Job may be finished by the clock of its controller, or deleted, while its pod still terminates.
    """
    if upgrade.status.phase not in {NodePhase.UNLOADING, NodePhase.UPGRADING}:
        return UpgradeJobs()
    first = None
    if upgrade.status.reverting:
        name = manifests.upgrade_name(upgrade, reverting=False)
        first = await reads.get(JOBS, name, context.stack.namespace)
    return UpgradeJobs(
        first=first is not None and not pod_results.has_job_ended(first),
        pods=sum(is_own_pod(pod, context.stack.namespace) and _is_upgrade_pod(pod) for pod in pods),
    )


def _is_upgrade_pod(pod: k.Pod) -> bool:
    return pod.metadata.labels.get(names.LABEL_COMPONENT) == UPGRADE and pod.status.phase in OPERAND_PHASES


async def list_others(context: Context, upgrade: NodeUpgrade, view: NodeView) -> tuple[OtherPod, ...]:
    """Pods that the upgrade would end, from a fresh list; the view states which are members."""
    pods = await context.cluster.list(PODS, fields=f"spec.nodeName={upgrade.spec.node.name}")
    members = frozenset(other.uid for other in view.others if other.member)
    claimed = await read_claimed(context.cluster, pods)
    rest = [pod for pod in pods if not is_own_pod(pod, context.stack.namespace)]
    return tuple(_other_pods(upgrade, rest, members, {}, _pool_gpus(upgrade, claimed)))


def blind_view(upgrade: NodeUpgrade) -> NodeView:
    """A NodeUpgrade whose node cannot be read: its phase, for the others of its group. It gets no decision."""
    status = upgrade.status
    return NodeView(
        name=upgrade.metadata.name,
        uid=upgrade.metadata.uid,
        reason=upgrade.spec.reason,
        phase=status.phase,
        phase_since=timing.parse_time(upgrade.metadata.creation_timestamp),
        deadline=None,
        reverting=status.reverting,
        failure=status.reason,
    )


async def _explain_silence(context: Context, view: NodeView) -> NodeView:
    """The view with the reason why this phase's pod does not start, if the pod's status does not state it."""
    field, what = _POD_OF_PHASE.get(view.phase, ("", ""))
    if not field:
        return view
    listening = view.node is not None and view.node.ready
    pod_result = await pod_events.explain_pod_result(context, getattr(view, field), what, listening=listening)
    return msgspec.structs.replace(view, **{field: pod_result})


_POD_OF_PHASE = {
    NodePhase.PREPARING: ("prepare", "the prepare pod"),
    NodePhase.UPGRADING: ("upgrade", "the upgrade Job"),
    NodePhase.VALIDATING: ("validate", "the validation pod"),
}
"""The pod that a phase waits for: its field in the view, and its name in messages."""


def _permit_eviction(pod: OtherPod, may_go: MayGo) -> OtherPod:
    expendable = pod.uid in may_go.expendable
    stays = may_go.waited_for is None or pod.uid in may_go.waited_for
    return msgspec.structs.replace(
        pod,
        forced=pod.uid in may_go.forced,
        expendable=expendable,
        evictable=(pod.evictable and not stays) or (expendable and not pod.leaving),
    )


async def _declared_around(
    reads: Reads, pod: k.Pod, spaces: Mapping[str, CheckpointAnnotations]
) -> CheckpointAnnotations:
    """Declarations of a pod's owners and namespace. Owners are read only if the pod would be evicted without them."""
    space = spaces.get(pod.metadata.namespace, CheckpointAnnotations())
    if not is_replicated(pod, space):
        return space
    return nearest_declared([await declared_above(reads, pod), space])


def build_view(
    upgrade: NodeUpgrade,
    node: k.Node | None,
    pods: Sequence[k.Pod],
    job: k.Job | None,
    members: frozenset[str],
    around: Mapping[str, CheckpointAnnotations],
    claimed: Claimed | None = None,
    *,
    namespace: str,
) -> NodeView:
    """The input of `core.node_upgrade.upgrade_machine.decide`; pure.

    `pods`: all pods of the node; the operator's own are in `namespace`. `claimed`: see `device_claims.read_claimed`.
    """
    status, goal = upgrade.status, effective_state(upgrade)
    own = [pod for pod in pods if is_own_pod(pod, namespace)]
    rest = [pod for pod in pods if not is_own_pod(pod, namespace)]
    return NodeView(
        name=upgrade.metadata.name,
        uid=upgrade.metadata.uid,
        reason=upgrade.spec.reason,
        phase=status.phase,
        phase_since=timing.parse_time(
            status.steps[-1].started_at if status.steps else upgrade.metadata.creation_timestamp
        ),
        deadline=_phase_deadline(upgrade, node),
        reverting=status.reverting,
        failure=status.reason,
        why=_failure_message(status),
        refused=_refusal_message(status),
        node=_upgrade_node_facts(upgrade, node) if node is not None else None,
        source_key=upgrade.spec.source.driver_key,
        driver_key=goal.driver_key,
        plugin_key=goal.plugin_key,
        runtime_key=goal.runtime_key,
        revision=goal.revision,
        kernel=_expected_kernel(upgrade),
        planned=upgrade.spec.target.kernel if upgrade.spec.kernel_reboot is None or status.phase in _BOOTED else "",
        former=upgrade.spec.source.kernel,
        expected_gpus=expected_gpus(upgrade),
        prepare=pod_results.prepare_result(own, upgrade),
        upgrade=pod_results.upgrade_result(job, own),
        validate=pod_results.validate_result(own, upgrade, reverting=status.reverting),
        driver=_operand_facts(own, names.LABEL_IMAGE_KEY, goal.driver_key, status.phase, "driver"),
        plugin=_operand_facts(own, names.LABEL_IMAGE_KEY, goal.plugin_key, status.phase, "device-plugin"),
        foreign_pods=sum(_is_foreign_operand(pod, node) for pod in rest),
        runtime=_operand_facts(own, names.LABEL_IMAGE_KEY, goal.runtime_key, status.phase, "runtime"),
        other_operands=_device_holders(own),
        others=tuple(_other_pods(upgrade, rest, members, around, _pool_gpus(upgrade, claimed or {}))),
        may_reboot=upgrade.spec.reboot is not None and not upgrade.spec.reboot.is_certain,
        empties=manifests.ends_all_pods(upgrade),
        not_evicted=status.eviction.message if status.eviction is not None else "",
        evict_after=timing.parse_time(status.eviction.not_before) if status.eviction is not None else None,
        resources=read_resources(upgrade, node),
    )


def _phase_deadline(upgrade: NodeUpgrade, node: k.Node | None) -> datetime | None:
    """The deadline of this phase: as written, but that of closing counts from the taint.

    A late step has not waited: until the taint exists, the deadline is extended by its full length.
    """
    status = upgrade.status
    written = timing.parse_time(status.deadline) if status.deadline else None
    if status.phase is not NodePhase.TAINTING or written is None or node is None:
        return written
    allowed, facts = timedelta(seconds=transition_of(status.phase).seconds or 0), _upgrade_node_facts(upgrade, node)
    if facts.claimed_by == upgrade.metadata.uid and facts.closed_at is not None:
        return max(written, facts.closed_at + allowed)
    return written + allowed


def _upgrade_node_facts(upgrade: NodeUpgrade, node: k.Node) -> NodeFacts:
    """The node, with what it is able to offer.

    After a change of partitions, its capacity includes the former resources for five more minutes (kubelet 1.34,
    endpointStopGracePeriod of its device manager; read, not measured). Then only allocatable resources count.
    """
    resource = upgrade.spec.target.resource_name
    facts = node_facts(node, resource)
    if upgrade.spec.source.mig_strategy == upgrade.spec.target.mig_strategy:
        return facts
    offered = gpus_by_name(node.status.allocatable, resource)
    capacity = gpus_by_name(node.status.capacity, resource)
    return msgspec.structs.replace(facts, gpus=sum(count for name, count in capacity.items() if name in offered))


def _is_foreign_operand(pod: k.Pod, node: k.Node | None) -> bool:
    """Whether another operator's label deployed a pod; its DaemonSet removes it when that label is false, or paused.

    A pod without a DaemonSet would stay forever, whatever its selector.
    """
    owner = controller_of(pod.metadata)
    labels = node.metadata.labels if node is not None else {}
    paused = (key for key in names.LABELS_PAUSED if adoption.is_paused(labels.get(key, "")))
    by_daemonset = owner is not None and owner.kind == "DaemonSet"
    return by_daemonset and any(
        pod.spec.node_selector.get(key, adoption.OFF) != adoption.OFF for key in (*names.LABELS_DEPLOY, *paused)
    )


def _operand_facts(pods: Sequence[k.Pod], label: str, key: str, phase: NodePhase, component: str) -> OperandFacts:
    """Pods of an operand: during unloading, all of the component; afterwards only those of the wanted image."""
    operand_pods = [
        pod
        for pod in pods
        if pod.metadata.labels.get(names.LABEL_COMPONENT) == component
        and pod.status.phase in OPERAND_PHASES
        and (phase is NodePhase.UNLOADING or pod.metadata.labels.get(label) == key)
    ]
    alive = [pod for pod in operand_pods if pod.metadata.deletion_timestamp is None]
    trouble = next((why for pod in alive if not _is_ready(pod) and (why := pod_trouble(pod))), "")
    return OperandFacts(pods=len(operand_pods), ready=sum(map(_is_ready, alive)), trouble=trouble)


def _device_holders(pods: Sequence[k.Pod]) -> OperandFacts:
    alive = (pod for pod in pods if pod.status.phase in OPERAND_PHASES)
    return OperandFacts(pods=sum(pod.metadata.labels.get(names.LABEL_COMPONENT) in HOLDERS for pod in alive))


def _is_ready(pod: k.Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def _other_pods(
    upgrade: NodeUpgrade,
    pods: Sequence[k.Pod],
    members: frozenset[str],
    around: Mapping[str, CheckpointAnnotations],
    gpus: PoolGpus,
) -> list[OtherPod]:
    others = []
    for pod in pods:
        if pod.status.phase in {"Succeeded", "Failed"} or not _in_the_way(upgrade, pod, gpus):
            continue
        leaving = pod.metadata.deletion_timestamp is not None
        others.append(
            OtherPod(
                name=pod.metadata.name,
                namespace=pod.metadata.namespace,
                uid=pod.metadata.uid,
                member=pod.metadata.uid in members,
                gpus=gpus_of(pod, gpus) > 0,
                evictable=_is_evictable(pod, around.get(pod.metadata.uid), gpus),
                leaving=leaving,
                before_boot=upgrade.spec.reason is UpgradeReason.REPAIR and _is_terminated(pod),
            )
        )
    return others


def _is_evictable(pod: k.Pod, around: CheckpointAnnotations | None, gpus: PoolGpus) -> bool:
    """Whether a pod may be evicted alone; a pod with GPUs by ResourceClaim is waited for, as plans do."""
    if pod.metadata.deletion_timestamp is not None or holds_by_claim(pod, gpus.claimed):
        return False
    return is_replicated(pod, around)


def _in_the_way(upgrade: NodeUpgrade, pod: k.Pod, gpus: PoolGpus) -> bool:
    """Whether the upgrade would end a pod: by its devices, its exclusive CPUs, or a reboot.

    Pods of DaemonSets and static pods belong to the node and do not count.
    """
    if gpus_of(pod, gpus):
        return True
    return manifests.ends_all_pods(upgrade) and not of_the_node(pod)


def _pool_gpus(upgrade: NodeUpgrade, claimed: Claimed) -> PoolGpus:
    """Resources that the node offered before the upgrade, and will offer: pods may request either."""
    before = upgrade.spec.source.resource_name
    return PoolGpus(resource=upgrade.spec.target.resource_name, former=(before,) if before else (), claimed=claimed)


def blocked_condition(status: NodeUpgradeStatus) -> k.Condition | None:
    """The condition Blocked of a node upgrade, if it is True."""
    return next(
        (condition for condition in status.conditions if (condition.type, condition.status) == ("Blocked", "True")),
        None,
    )


def _refusal_message(status: NodeUpgradeStatus) -> str:
    condition = blocked_condition(status)
    return status.message if condition is not None and condition.reason in {REFUSAL, NO_ANSWER} else ""


def _failure_message(status: NodeUpgradeStatus) -> str:
    """The message of the failed step: the step before the second unloading, or before the release."""
    next_phase = NodePhase.UNLOADING if status.reverting else NodePhase.RELEASING
    after = [place for place, step in enumerate(status.steps) if step.name is next_phase and place]
    if status.reason in {"", ABORTED} or not after:
        return ""
    return status.steps[after[-1] - 1].result.removesuffix(REVERT_SUFFIX)


def _expected_kernel(upgrade: NodeUpgrade) -> str:
    """The kernel that the node must run after the upgrade Job; empty if it does not change."""
    reboot = upgrade.spec.kernel_reboot
    if reboot is None:
        return ""
    return reboot.source if upgrade.status.reverting else reboot.target


def _is_terminated(pod: k.Pod) -> bool:
    """Whether all containers of a pod have terminated; a waiting container may still start."""
    states = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    return bool(states) and all(state.state.terminated is not None for state in states)
