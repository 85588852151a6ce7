"""GPU labels of nodes, from the reports of feature discovery pods, written here only.

NVIDIA's discovery writes a file from which node-feature-discovery creates labels; a vendor whose discovery needs no
other component has pods that report in their container status, and derives the labels from the report. The same patch
records the written labels on the Node, so that they can be removed, and distinguished from labels of others.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.kubernetes import ContainerStatus, Node, Pod
from upgrader.api.resources import NODES
from upgrader.core import untrusted
from upgrader.core.errors import ConflictError, NotFoundError, UnreachableError, UnreadableError
from upgrader.core.model.operands import COMPONENT_OF, Operand
from upgrader.core.node_protocol.boot_reports import newest_report
from upgrader.core.node_protocol.gpu_features import GpuLabelDecision, GpuLabelView, GpuReport, decide, read_record
from upgrader.core.node_protocol.gpu_features import unchanged_labels as written_labels
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.vendors import find_vendor

Labels = Callable[[GpuReport, int], Mapping[str, str]]

log = structlog.get_logger()

AT_ONCE = 50
"""Nodes written in one step of a stack at most, since upgrades need a step each second."""
LONGEST = 300
"""Characters of a pod's message in an error."""


async def label_nodes(context: Context, read: StackReading) -> str:
    """Set the labels of a stack's nodes from the reports of its pods; returns an error of one node, else empty.

    Raises:
        ClusterError: the API server refused or did not answer; the step is repeated.
    """
    labels = find_vendor(read.target.operands).labels
    if labels is None:
        return ""  # the discovery of this vendor labels its node itself
    reports, fault = _read_reports(read.reporting)
    claimants = {node.name: node.claimants for node in read.snapshot.nodes}
    nodes = _known_nodes(context)
    views = {
        at: _label_view(node, reports.get(at, ()), claimants.get(at, ()), read, labels) for at, node in nodes.items()
    }
    decisions = {at: decide(view) for at, view in views.items()}
    await _write_labels(context, nodes, decisions)
    broken = sorted(at for at, node in nodes.items() if _has_unreadable_record(node))
    record = names.ANNOTATION_GPU_FEATURES
    return f"{broken[0]}: annotation {record} cannot be read; remove it, and its GPU labels" if broken else fault


async def remove_labels(context: Context, stack: str) -> bool:
    """Remove the labels of a stack without discovery; whether all are removed.

    Raises:
        ClusterError: the API server refused or did not answer; the step is repeated.
    """
    nodes = _known_nodes(context)
    views = {at: _unlabel_view(node, stack) for at, node in nodes.items()}
    decisions = {at: decide(view) for at, view in views.items() if view.record and view.record.stack == stack}
    return not await _write_labels(context, nodes, decisions)


def recorded_labels(node: Node) -> list[str]:
    """Names of the recorded GPU labels on a node that are unchanged."""
    text = node.metadata.annotations.get(names.ANNOTATION_GPU_FEATURES, "")
    return list(written_labels(node.metadata.labels, read_record(text)))


def _known_nodes(context: Context) -> Mapping[str, Node]:
    nodes = context.nodes.snapshot()
    if nodes is None:
        raise UnreachableError("the node cache is not in sync with the API server")
    return nodes


def _label_view(
    node: Node, reports: Sequence[GpuReport], claimants: tuple[str, ...], read: StackReading, labels: Labels
) -> GpuLabelView:
    report = newest_report(reports, node.status.node_info.boot_id)
    on = node.metadata.labels.get(names.LABEL_OPERANDS) == names.ON
    wanted = (
        on and cluster_snapshot.in_pool(node, read.stack.spec) and node.metadata.labels.get(names.LABEL_SKIP) != "true"
    )
    return msgspec.structs.replace(
        _unlabel_view(node, read.stack.metadata.name),
        wanted=wanted and not _has_unreadable_record(node),
        claimants=claimants,
        found=labels(report, read.target.time_slices) if report is not None else None,
    )


def _unlabel_view(node: Node, stack: str) -> GpuLabelView:
    record = read_record(node.metadata.annotations.get(names.ANNOTATION_GPU_FEATURES, ""))
    return GpuLabelView(stack=stack, labels=node.metadata.labels, wanted=False, record=record)


def _has_unreadable_record(node: Node) -> bool:
    text = node.metadata.annotations.get(names.ANNOTATION_GPU_FEATURES)
    return text is not None and read_record(text) is None


async def _write_labels(context: Context, nodes: Mapping[str, Node], decisions: Mapping[str, GpuLabelDecision]) -> bool:
    """Write up to `AT_ONCE` nodes; whether any is left. After a conflict the next step reads the node again."""
    due = [at for at, decision in sorted(decisions.items()) if decision.writes]
    left = len(due) > AT_ONCE
    for at in due[:AT_ONCE]:
        decision = decisions[at]
        record = None if decision.record is None else msgspec.json.encode(decision.record).decode()
        patch = {"labels": decision.labels, "annotations": {names.ANNOTATION_GPU_FEATURES: record}}
        context.leadership.check()
        try:
            await context.cluster.merge(NODES, nodes[at].metadata, {"metadata": patch})
        except ConflictError:
            left = True
        except NotFoundError:
            continue  # deleted, and its labels with it
        else:
            log.info("GPU labels written", node=at, labels=len(decision.labels))
    return left


def _read_reports(pods: Iterable[Pod]) -> tuple[Mapping[str, list[GpuReport]], str]:
    """Reports of the stack's pods by node, and the first message that is not a report."""
    component = COMPONENT_OF[Operand.FEATURE_DISCOVERY]
    reports: dict[str, list[GpuReport]] = defaultdict(list)
    fault = ""
    for pod in pods:
        if pod.metadata.labels.get(names.LABEL_COMPONENT) != component:
            continue
        for text in _report_messages(pod):
            try:
                reports[pod.spec.node_name].append(untrusted.decode_json(text, GpuReport))
            except UnreadableError as error:
                fault = fault or f"{pod.spec.node_name}: the output of its pod is not a report: {error}"[:LONGEST]
    return reports, fault


def _report_messages(pod: Pod) -> Iterator[str]:
    """Termination messages of containers that read the GPUs and succeeded."""
    statuses: Sequence[ContainerStatus] = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    for status in statuses:
        ended = status.state.terminated or status.last_state.terminated
        if ended is not None and not ended.exit_code and ended.message:
            yield ended.message
