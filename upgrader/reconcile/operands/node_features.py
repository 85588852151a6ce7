"""Labels of node features: what pods of a stack have read on their nodes becomes labels, written here and nowhere else.

A pod on a node cannot write a label, and needs no right for what it does: its kubelet carries its report. What we wrote
is recorded on the Node in the same patch, so that it can be taken back, and told from what others wrote.
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
from upgrader.core.node_protocol.boot_reports import newest
from upgrader.core.node_protocol.node_features import LABEL_NFD_NODE, FeatureReport, kept_by_nfd, read_record
from upgrader.core.node_protocol.node_labels import SETTLED, LabelDecision, LabelView, Standing, decide
from upgrader.reconcile.facts import operand_pods
from upgrader.reconcile.observe import cluster_snapshot, pod_events
from upgrader.reconcile.operands import missing_pods
from upgrader.reconcile.runtime.context import Context
from upgrader.stack import manifests, naming

log = structlog.get_logger()

AUTO = "Auto"
AT_ONCE = 50
"""Nodes written in one step of a stack: upgrades come first, and their pauses are a second."""
LONGEST = 300
"""Characters of what a pod said that are passed on."""
NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


class Labelling(Struct, frozen=True, kw_only=True):
    """How it stands with the labels of a stack's nodes: nodes by standing, with the first message of each.

    `wanted` are the nodes that should have a pod that reads, `pods` those that are there or missing. `more`: there is
    something left to write in the next step.
    """

    asked: bool = False
    nodes: dict[Standing, int] = {}
    said: dict[Standing, str] = {}
    wanted: tuple[str, ...] = ()
    pods: tuple[PartPod, ...] = ()
    more: bool = False

    @property
    def open(self) -> list[Standing]:
        """What is not settled, the worst first."""
        return [one for one in Standing if one in self.nodes and one not in SETTLED]


class _Said(Struct, frozen=True, kw_only=True):
    """What the pods of one node have said."""

    reports: list[FeatureReport] = []
    faults: list[str] = []


async def label(context: Context, stack: GpuStack, pods: Iterable[Pod]) -> Labelling:
    """Bring the labels of the stack's nodes to what its pods have read, or take them back where it does not label.

    `pods`: those that we made for the stack.

    Raises:
        ClusterError: the API server did not answer; the step is made again.
    """
    auto = stack.spec.node_features == AUTO
    if auto:
        await _ensure(context, stack)
    listed = [one for one in pods if auto and one.metadata.labels.get(names.LABEL_COMPONENT) == naming.NODE_FEATURES]
    own = await pod_events.explained(
        context, (operand_pods.part_pod(one) for one in listed if operand_pods.counts(one))
    )
    name = stack.metadata.name
    done = await _write(context, name, stack if auto else None, _told(listed, own))
    there, maker = [one.node for one in own], manifests.node_features_name(stack)
    lacking = missing_pods.part_pods(context, name, naming.NODE_FEATURES, maker, done.wanted, there)
    return msgspec.structs.replace(done, pods=(*own, *await pod_events.explained(context, lacking)))


async def leave(context: Context, name: str) -> bool:
    """Take back the labels of a stack that is no more; whether all are gone.

    Raises:
        ClusterError: some could not be taken back; the step is made again.
    """
    return not (await _write(context, name, None, {})).more


def written(node: Node) -> list[str]:
    """Names of the feature labels on a node that are as we wrote them, and that nobody else keeps."""
    return list(decide(_view(node, "", _Said(), wanted=False)).labels)


async def _ensure(context: Context, stack: GpuStack) -> None:
    body = manifests.node_features_daemonset(stack, context.stack)
    meta = body["metadata"]
    present = await context.cluster.get(DAEMONSETS, meta["name"], meta["namespace"])
    wanted = meta["annotations"][names.ANNOTATION_MANIFEST]
    if present is None or present.metadata.annotations.get(names.ANNOTATION_MANIFEST) != wanted:
        context.leadership.check()
        await context.cluster.apply(DAEMONSETS, body)


async def _write(context: Context, name: str, stack: GpuStack | None, said: Mapping[str, _Said]) -> Labelling:
    nodes = context.nodes.snapshot()
    if nodes is None:
        raise UnreachableError("the nodes are not in step with the API server")
    views = _views((nodes[at] for at in sorted(nodes)), name, stack, said)
    others = await _others(context, views, nodes, name)
    counts: dict[Standing, int] = defaultdict(int)
    messages: dict[Standing, str] = {}
    written, more = 0, False
    for at, view in views.items():
        held = msgspec.structs.replace(view, held_by=others.get(at, ""))
        decision = decide(held)
        if decision.writes and written < AT_ONCE:
            written += 1
            decision = await _act(context, nodes[at], held, decision)
        more = more or decision.writes
        if view.wanted:
            standing = Standing.WAITING if decision.writes else decision.standing
            counts[standing] += 1
            if decision.message:
                messages.setdefault(standing, f"{at}: {decision.message}")
    wanted = tuple(at for at, view in views.items() if view.wanted)
    return Labelling(asked=stack is not None, nodes=dict(counts), said=messages, wanted=wanted, more=more)


def _views(nodes: Iterable[Node], name: str, stack: GpuStack | None, said: Mapping[str, _Said]) -> dict[str, LabelView]:
    """Nodes that this stack labels, and those that carry a record; a person's label `skip` keeps us off."""
    found: dict[str, LabelView] = {}
    for node in nodes:
        wanted = stack is not None and cluster_snapshot.in_pool(node, stack.spec)
        recorded = names.ANNOTATION_NODE_FEATURES in node.metadata.annotations
        if node.metadata.labels.get(names.LABEL_SKIP) != "true" and (wanted or recorded):
            told = said.get(node.metadata.name, _Said())
            found[node.metadata.name] = _view(node, name, told, wanted=wanted)
    return found


def _view(node: Node, stack: str, told: _Said, *, wanted: bool) -> LabelView:
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
        report=newest(told.reports, info.boot_id),
        fault=next(iter(told.faults), ""),
    )


async def _others(
    context: Context, views: Mapping[str, LabelView], nodes: Mapping[str, Node], name: str
) -> Mapping[str, str]:
    """The other stack that labels a node, by node; a stack that is gone, or labels no longer, leaves its labels."""
    recorded = {at: view.record.stack for at, view in views.items() if view.record and view.record.stack != name}
    if not recorded:
        return {}
    stacks = {
        one.metadata.name: one
        for one in await context.cluster.list(GPU_STACKS)
        if one.metadata.deletion_timestamp is None and one.spec.node_features == AUTO
    }
    held = (one for one in recorded.items() if one[1] in stacks)
    return {at: owner for at, owner in held if cluster_snapshot.in_pool(nodes[at], stacks[owner].spec)}


async def _act(context: Context, node: Node, view: LabelView, decision: LabelDecision) -> LabelDecision:
    """Write; the decision as it turned out. A node that changed meanwhile is looked at again in the next step."""
    try:
        if view.wanted and decision.record is not None and await _announced(context, node.metadata.name):
            message = "node-feature-discovery has read it, by its NodeFeature object, and will label it"
            return LabelDecision(standing=Standing.ANNOUNCED, message=message)
        await _patch(context, node, decision)
    except ConflictError:
        return decision
    except NotFoundError:
        return LabelDecision(standing=Standing.NOT_OURS)
    except ClusterError as error:
        if not error.refused or not view.wanted:
            raise  # what is to be taken back is taken back, or tried again
        return LabelDecision(standing=Standing.REFUSED, message=error.brief)
    return msgspec.structs.replace(decision, writes=False)


async def _patch(context: Context, node: Node, decision: LabelDecision) -> None:
    record = None if decision.record is None else msgspec.json.encode(decision.record).decode()
    context.leadership.check()
    await context.cluster.merge(
        NODES,
        node.metadata,
        {"metadata": {"labels": decision.labels, "annotations": {names.ANNOTATION_NODE_FEATURES: record}}},
    )
    log.info("node labelled", node=node.metadata.name, standing=decision.standing.value, labels=len(decision.labels))


async def _announced(context: Context, node: str) -> bool:
    """Whether NFD's worker has told its master of a node which that has not labelled yet. Asked before writes only."""
    versions = (await context.cluster.served()).get((NODE_FEATURES.group, NODE_FEATURES.plural), ())
    if not versions:
        return False
    kind = msgspec.structs.replace(NODE_FEATURES, version=versions[0])
    found = await context.cluster.list(kind, labels=f"{LABEL_NFD_NODE}={node}")
    return any(one.metadata.name == node for one in found)


def _told(listed: Iterable[Pod], pods: Iterable[PartPod]) -> Mapping[str, _Said]:
    """What the stack's pods have said, by node; what keeps a pod from saying anything comes after its own words."""
    found: dict[str, _Said] = defaultdict(_Said)
    for pod in listed:
        for status in pod.status.init_container_statuses:
            report, fault = _said(status)
            if report is not None:
                found[pod.spec.node_name].reports.append(report)
            if fault:
                found[pod.spec.node_name].faults.append(fault)
        # What watches ends with a report when another kernel is installed; how else it ended says nothing of the node.
        later = (_said(status)[0] for status in pod.status.container_statuses)
        found[pod.spec.node_name].reports.extend(one for one in later if one is not None)
    for part in pods:
        if part.trouble:
            found[part.node].faults.append(part.trouble)
    return found


def _said(status: ContainerStatus) -> tuple[FeatureReport | None, str]:
    """The report that a container left, or what kept it from leaving one."""
    waiting = status.state.waiting
    if waiting is not None and waiting.reason in NO_IMAGE:
        return None, f"the image {status.image or 'of its pod'} cannot be pulled"
    ended = status.state.terminated or status.last_state.terminated
    if ended is None:
        return None, ""
    if ended.exit_code:
        return None, ended.message[:LONGEST] or f"its pod ended with code {ended.exit_code} ({ended.reason})"
    try:
        return untrusted.decode(ended.message, FeatureReport), ""
    except UnreadableError as error:
        return None, f"what its pod said is no report: {error}"[:LONGEST]
