"""Labels of simulated GPUs: what the pods of feature discovery read on their nodes becomes labels, written here only.

NVIDIA's discovery leaves a file of which node-feature-discovery makes labels; ours needs nobody else. A pod on a node
has no right to write a label, so its kubelet carries its report. What we wrote is recorded on the Node in the same
patch, so that it can be taken back, and told from what others wrote.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.kubernetes import ContainerStatus, Node, Pod
from upgrader.api.resources import NODES
from upgrader.core import untrusted
from upgrader.core.errors import ConflictError, NotFoundError, UnreachableError, UnreadableError
from upgrader.core.model.operands import COMPONENT_OF, Operand
from upgrader.core.model.vendors import SIM
from upgrader.core.node_protocol.boot_reports import newest
from upgrader.core.node_protocol.gpu_features import GpuLabelDecision, GpuLabelView, GpuReport, decide, read_record
from upgrader.core.node_protocol.gpu_features import written as written_labels
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()

AT_ONCE = 50
"""Nodes written in one step of a stack: upgrades come first, and their pauses are a second."""
LONGEST = 300
"""Characters of what a pod said that are passed on."""


async def label(context: Context, read: StackReading) -> str:
    """Bring the labels of a stack's nodes to what its pods have read; why that is not so on some node, else empty.

    Raises:
        ClusterError: the API server refused or did not answer; the step is made again.
    """
    if read.target.operands != SIM:
        return ""  # NVIDIA's is on the nodes, and node-feature-discovery labels
    name = read.stack.metadata.name
    reports, fault = _reports(read.reporting)
    claimants = {node.name: node.claimants for node in read.snapshot.nodes}
    nodes = _nodes(context)
    views = {
        at: _view(node, name, node.status.node_info.boot_id, reports.get(at, ()), claimants.get(at, ()), read)
        for at, node in nodes.items()
    }
    decisions = {at: decide(view) for at, view in views.items()}
    await _write(context, nodes, decisions)
    broken = sorted(at for at, node in nodes.items() if _unreadable(node))
    return f"{broken[0]}: the record of its GPU labels cannot be read: remove it, and the labels" if broken else fault


async def leave(context: Context, stack: str) -> bool:
    """Take back the labels of a stack that does not discover any more; whether all are gone.

    Raises:
        ClusterError: the API server refused or did not answer; the step is made again.
    """
    nodes = _nodes(context)
    views = {at: _gone(node, stack) for at, node in nodes.items()}
    decisions = {at: decide(view) for at, view in views.items() if view.record and view.record.stack == stack}
    return not await _write(context, nodes, decisions)


def written(node: Node) -> list[str]:
    """Names of the GPU labels on a node that are as we wrote them."""
    text = node.metadata.annotations.get(names.ANNOTATION_GPU_FEATURES, "")
    return list(written_labels(node.metadata.labels, read_record(text)))


def _nodes(context: Context) -> Mapping[str, Node]:
    nodes = context.nodes.snapshot()
    if nodes is None:
        raise UnreachableError("the nodes are not in step with the API server")
    return nodes


def _view(
    node: Node, stack: str, boot_id: str, reports: Sequence[GpuReport], claimants: tuple[str, ...], read: StackReading
) -> GpuLabelView:
    on = node.metadata.labels.get(names.LABEL_OPERANDS) == names.ON
    wanted = (
        on and cluster_snapshot.in_pool(node, read.stack.spec) and node.metadata.labels.get(names.LABEL_SKIP) != "true"
    )
    return msgspec.structs.replace(
        _gone(node, stack),
        wanted=wanted and not _unreadable(node),
        claimants=claimants,
        report=newest(reports, boot_id),
        slices=read.target.time_slices,
    )


def _gone(node: Node, stack: str) -> GpuLabelView:
    record = read_record(node.metadata.annotations.get(names.ANNOTATION_GPU_FEATURES, ""))
    return GpuLabelView(stack=stack, labels=node.metadata.labels, wanted=False, record=record)


def _unreadable(node: Node) -> bool:
    text = node.metadata.annotations.get(names.ANNOTATION_GPU_FEATURES)
    return text is not None and read_record(text) is None


async def _write(context: Context, nodes: Mapping[str, Node], decisions: Mapping[str, GpuLabelDecision]) -> bool:
    """Write, a few nodes at once; whether anything is left. A node that changed meanwhile is looked at again."""
    due = [at for at, one in sorted(decisions.items()) if one.writes]
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
            continue  # and its labels with it
        else:
            log.info("GPU labels written", node=at, labels=len(decision.labels))
    return left


def _reports(pods: Iterable[Pod]) -> tuple[Mapping[str, list[GpuReport]], str]:
    """What the stack's pods have said, by node, and the first that said what is no report."""
    component = COMPONENT_OF[Operand.FEATURE_DISCOVERY]
    found: dict[str, list[GpuReport]] = defaultdict(list)
    fault = ""
    for pod in pods:
        if pod.metadata.labels.get(names.LABEL_COMPONENT) != component:
            continue
        for text in _messages(pod):
            try:
                found[pod.spec.node_name].append(untrusted.decode(text, GpuReport))
            except UnreadableError as error:
                fault = fault or f"{pod.spec.node_name}: what its pod said is no report: {error}"[:LONGEST]
    return found, fault


def _messages(pod: Pod) -> Iterator[str]:
    """What containers left that read the GPUs and ended well."""
    statuses: Sequence[ContainerStatus] = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    for status in statuses:
        ended = status.state.terminated or status.last_state.terminated
        if ended is not None and not ended.exit_code and ended.message:
            yield ended.message
