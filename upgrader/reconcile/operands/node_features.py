"""Labels of node features, from the reports of a stack's pods, written here only.

A pod has no right to label its node: it reports in its container status. The same patch records the written labels on
the Node, so that they can be removed, and distinguished from labels of others.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec
import structlog
from msgspec import Struct

from upgrader.api import names
from upgrader.api.kubernetes import ContainerStatus, Node, Pod
from upgrader.api.resources import DAEMONSETS, GPU_STACKS, NODE_FEATURES, NODES
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core import untrusted
from upgrader.core.errors import ClusterError, ConflictError, NotFoundError, UnreachableError, UnreadableError
from upgrader.core.model.operands import PartPod
from upgrader.core.node_protocol.boot_reports import newest_report
from upgrader.core.node_protocol.node_features import LABEL_NFD_NODE, FeatureReport, kept_by_nfd, read_record
from upgrader.core.node_protocol.node_labels import SETTLED, LabelDecision, LabelView, NodeLabelState, decide
from upgrader.reconcile.facts import operand_pods
from upgrader.reconcile.observe import cluster_snapshot, pod_events
from upgrader.reconcile.operands import missing_pods
from upgrader.reconcile.runtime.context import Context
from upgrader.stack import manifests, naming

log = structlog.get_logger()

AUTO = "Auto"
AT_ONCE = 50
"""Nodes written in one step of a stack at most, since upgrades need a step each second."""
LONGEST = 300
"""Characters of a pod's message in an error."""
NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


class Labelling(Struct, frozen=True, kw_only=True):
    """The state of the labels of a stack's nodes: nodes by standing, with the first message of each.

    `wanted`: nodes that should have a reading pod. `pods`: existing and missing pods. `more`: the next step has nodes
    left to write.
    """

    asked: bool = False
    nodes: dict[NodeLabelState, int] = {}
    messages: dict[NodeLabelState, str] = {}
    wanted: tuple[str, ...] = ()
    pods: tuple[PartPod, ...] = ()
    more: bool = False

    @property
    def open(self) -> list[NodeLabelState]:
        """Standings that are not settled, the worst first."""
        return [standing for standing in NodeLabelState if standing in self.nodes and standing not in SETTLED]


class _Reading(Struct, frozen=True, kw_only=True):
    """Reports and faults of the pods of one node."""

    reports: list[FeatureReport] = []
    faults: list[str] = []


async def label_nodes(context: Context, stack: GpuStack, pods: Iterable[Pod]) -> Labelling:
    """Set the labels of the stack's nodes from the reports of its pods, or remove them if it does not label.

    `pods`: the operator's own pods of the stack.

    Raises:
        ClusterError: the API server did not answer; the step is repeated.
    """
    auto = stack.spec.node_features == AUTO
    if auto:
        await _ensure_daemonset(context, stack)
    listed = [pod for pod in pods if auto and pod.metadata.labels.get(names.LABEL_COMPONENT) == naming.NODE_FEATURES]
    own = await pod_events.explain_pods(
        context, (operand_pods.part_pod(pod) for pod in listed if operand_pods.is_active_pod(pod))
    )
    name = stack.metadata.name
    done = await _write_labels(context, name, stack if auto else None, _statements_by_node(listed, own))
    there, maker = [pod.node for pod in own], manifests.node_features_name(stack)
    lacking = missing_pods.part_pods(context, name, naming.NODE_FEATURES, maker, done.wanted, there)
    return msgspec.structs.replace(done, pods=(*own, *await pod_events.explain_pods(context, lacking)))


async def remove_labels(context: Context, name: str) -> bool:
    """Remove the labels of a deleted stack; whether all are removed.

    Raises:
        ClusterError: some could not be removed; the step is repeated.
    """
    return not (await _write_labels(context, name, None, {})).more


def recorded_labels(node: Node) -> list[str]:
    """Names of the recorded feature labels on a node that are unchanged and have no other writer."""
    return list(decide(_label_view(node, "", _Reading(), wanted=False)).labels)


async def _ensure_daemonset(context: Context, stack: GpuStack) -> None:
    body = manifests.node_features_daemonset(stack, context.stack)
    meta = body["metadata"]
    present = await context.cluster.get(DAEMONSETS, meta["name"], meta["namespace"])
    wanted = meta["annotations"][names.ANNOTATION_MANIFEST]
    if present is None or present.metadata.annotations.get(names.ANNOTATION_MANIFEST) != wanted:
        context.leadership.check()
        await context.cluster.apply(DAEMONSETS, body)


async def _write_labels(
    context: Context, name: str, stack: GpuStack | None, readings: Mapping[str, _Reading]
) -> Labelling:
    nodes = context.nodes.snapshot()
    if nodes is None:
        raise UnreachableError("the node cache is not in sync with the API server")
    views = _label_views((nodes[at] for at in sorted(nodes)), name, stack, readings)
    others = await _other_labellers(context, views, nodes, name)
    counts: dict[NodeLabelState, int] = defaultdict(int)
    messages: dict[NodeLabelState, str] = {}
    written, more = 0, False
    for at, view in views.items():
        held = msgspec.structs.replace(view, held_by=others.get(at, ""))
        decision = decide(held)
        if decision.writes and written < AT_ONCE:
            written += 1
            decision = await _label_node(context, nodes[at], held, decision)
        more = more or decision.writes
        if view.wanted:
            standing = NodeLabelState.WAITING if decision.writes else decision.standing
            counts[standing] += 1
            if decision.message:
                messages.setdefault(standing, f"{at}: {decision.message}")
    wanted = tuple(at for at, view in views.items() if view.wanted)
    return Labelling(asked=stack is not None, nodes=dict(counts), messages=messages, wanted=wanted, more=more)


def _label_views(
    nodes: Iterable[Node], name: str, stack: GpuStack | None, readings: Mapping[str, _Reading]
) -> dict[str, LabelView]:
    """Nodes that this stack labels, and nodes with a record; nodes with the label `skip` are left alone."""
    views: dict[str, LabelView] = {}
    for node in nodes:
        wanted = stack is not None and cluster_snapshot.in_pool(node, stack.spec)
        recorded = names.ANNOTATION_NODE_FEATURES in node.metadata.annotations
        if node.metadata.labels.get(names.LABEL_SKIP) != "true" and (wanted or recorded):
            told = readings.get(node.metadata.name, _Reading())
            views[node.metadata.name] = _label_view(node, name, told, wanted=wanted)
    return views


def _label_view(node: Node, stack: str, told: _Reading, *, wanted: bool) -> LabelView:
    meta, info = node.metadata, node.status.node_info
    text = meta.annotations.get(names.ANNOTATION_NODE_FEATURES)
    record = read_record(text) if text is not None else None
    return LabelView(
        stack=stack,
        boot_id=info.boot_id,
        kernel=info.kernel_version,
        labels=meta.labels,
        wanted=wanted,
        record=record,
        record_unreadable=text is not None and record is None,
        nfd=kept_by_nfd(meta.annotations),
        report=newest_report(told.reports, info.boot_id),
        fault=next(iter(told.faults), ""),
    )


async def _other_labellers(
    context: Context, views: Mapping[str, LabelView], nodes: Mapping[str, Node], name: str
) -> Mapping[str, str]:
    """The other stack that labels a node, by node; a deleted stack, or one that no longer labels, does not count."""
    recorded = {at: view.record.stack for at, view in views.items() if view.record and view.record.stack != name}
    if not recorded:
        return {}
    stacks = {
        other.metadata.name: other
        for other in await context.cluster.list(GPU_STACKS)
        if other.metadata.deletion_timestamp is None and other.spec.node_features == AUTO
    }
    held = (record for record in recorded.items() if record[1] in stacks)
    return {at: owner for at, owner in held if cluster_snapshot.in_pool(nodes[at], stacks[owner].spec)}


async def _label_node(context: Context, node: Node, view: LabelView, decision: LabelDecision) -> LabelDecision:
    """Label a node; returns the resulting decision. After a conflict the next step reads the node again."""
    try:
        if view.wanted and decision.record is not None and await _is_announced(context, node.metadata.name):
            message = "node-feature-discovery has a NodeFeature object for the node and will label it"
            return LabelDecision(standing=NodeLabelState.ANNOUNCED, message=message)
        await _patch_labels(context, node, decision)
    except ConflictError:
        return decision
    except NotFoundError:
        return LabelDecision(standing=NodeLabelState.NOT_LABELLED)
    except ClusterError as error:
        if not error.refused or not view.wanted:
            raise  # the removal of labels is retried
        return LabelDecision(standing=NodeLabelState.REFUSED, message=error.brief)
    return msgspec.structs.replace(decision, writes=False)


async def _patch_labels(context: Context, node: Node, decision: LabelDecision) -> None:
    record = None if decision.record is None else msgspec.json.encode(decision.record).decode()
    context.leadership.check()
    await context.cluster.merge(
        NODES,
        node.metadata,
        {"metadata": {"labels": decision.labels, "annotations": {names.ANNOTATION_NODE_FEATURES: record}}},
    )
    log.info("node labelled", node=node.metadata.name, standing=decision.standing.value, labels=len(decision.labels))


async def _is_announced(context: Context, node: str) -> bool:
    """Whether NFD's worker has announced a node that its master has not labelled yet. Checked only before writes."""
    versions = (await context.cluster.served()).get((NODE_FEATURES.group, NODE_FEATURES.plural), ())
    if not versions:
        return False
    kind = msgspec.structs.replace(NODE_FEATURES, version=versions[0])
    announced = await context.cluster.list(kind, labels=f"{LABEL_NFD_NODE}={node}")
    return any(feature.metadata.name == node for feature in announced)


def _statements_by_node(listed: Iterable[Pod], pods: Iterable[PartPod]) -> Mapping[str, _Reading]:
    """Reports and faults of the stack's pods by node; faults of the pod itself come after those of its containers."""
    statements: dict[str, _Reading] = defaultdict(_Reading)
    for pod in listed:
        for status in pod.status.init_container_statuses:
            report, fault = _read_report(status)
            if report is not None:
                statements[pod.spec.node_name].reports.append(report)
            if fault:
                statements[pod.spec.node_name].faults.append(fault)
        # The watching container ends with a report when another kernel is installed; other ends are no report.
        later = (_read_report(status)[0] for status in pod.status.container_statuses)
        statements[pod.spec.node_name].reports.extend(report for report in later if report is not None)
    for part in pods:
        if part.trouble:
            statements[part.node].faults.append(part.trouble)
    return statements


def _read_report(status: ContainerStatus) -> tuple[FeatureReport | None, str]:
    """The report in a container's status, or why there is none."""
    waiting = status.state.waiting
    if waiting is not None and waiting.reason in NO_IMAGE:
        return None, f"the image {status.image or 'of its pod'} cannot be pulled"
    ended = status.state.terminated or status.last_state.terminated
    if ended is None:
        return None, ""
    if ended.exit_code:
        return None, ended.message[:LONGEST] or f"its pod ended with code {ended.exit_code} ({ended.reason})"
    try:
        return untrusted.decode_json(ended.message, FeatureReport), ""
    except UnreadableError as error:
        return None, f"the output of its pod is not a report: {error}"[:LONGEST]
