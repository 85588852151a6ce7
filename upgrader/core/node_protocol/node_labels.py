"""Labels of a node: which are written, removed or left to other writers. Pure.

There is at most one writer: on a node with NFD's annotation no label is written, and labels that NFD does not keep are
removed; labels of another stack are waited for; a label that others wrote, or changed since, is left to them.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from upgrader.core.node_protocol.node_features import FeatureRecord, FeatureReport, feature_labels, pending_kernel


class NodeLabelState(StrEnum):
    """The state of the labels of one node, as one word; the worst first."""

    RECORD_UNREADABLE = "RecordUnreadable"
    REFUSED = "Refused"
    UNREADABLE = "Unreadable"
    DISAGREES = "Disagrees"
    ANNOUNCED = "LeftToNodeFeatureDiscovery"
    WAITING = "WaitingForReport"
    OTHER_STACK = "OtherStack"
    NFD = "NodeFeatureDiscovery"
    LABELLED = "Labelled"
    NOT_LABELLED = "NotLabelled"


SETTLED = frozenset(
    {NodeLabelState.NFD, NodeLabelState.OTHER_STACK, NodeLabelState.LABELLED, NodeLabelState.NOT_LABELLED}
)
"""States in which nothing is left to be done."""


class LabelView(Struct, frozen=True, kw_only=True):
    """A node, and facts on its labels.

    `wanted`: this stack labels it. `nfd`: labels that NFD keeps there, None if it does not run. `report` is of the
    present boot; `fault` is why there is none. `held_by`: another stack that wrote these labels and still keeps them.
    """

    stack: str
    boot_id: str
    kernel: str
    labels: Mapping[str, str]
    wanted: bool
    record: FeatureRecord | None = None
    record_unreadable: bool = False
    nfd: frozenset[str] | None = None
    report: FeatureReport | None = None
    fault: str = ""
    held_by: str = ""


class LabelDecision(Struct, frozen=True, kw_only=True):
    """The contents of one patch, if `writes`; None removes a label, or the record."""

    standing: NodeLabelState
    message: str = ""
    writes: bool = False
    labels: dict[str, str | None] = {}
    record: FeatureRecord | None = None


def decide(view: LabelView) -> LabelDecision:
    """The next patch of the labels of one node. A second decision, after the patch, writes nothing."""
    if view.record_unreadable:
        return LabelDecision(
            standing=NodeLabelState.RECORD_UNREADABLE,
            message="annotation gpu-upgrader.io/node-features cannot be read; remove it, and the labels that the "
            "operator wrote",
        )
    if view.held_by:
        return LabelDecision(standing=NodeLabelState.OTHER_STACK, message=f"GpuStack {view.held_by} labels the node")
    if view.nfd is not None and (view.wanted or view.record is not None):
        return _remove_labels(
            view, NodeLabelState.NFD, "node-feature-discovery labels the node, according to its annotations"
        )
    if not view.wanted:
        return _remove_labels(view, NodeLabelState.NOT_LABELLED, "")
    if view.report is None:
        standing = NodeLabelState.UNREADABLE if view.fault else NodeLabelState.WAITING
        return LabelDecision(standing=standing, message=view.fault or "its pod has not reported yet")
    if view.report.kernel != view.kernel:
        return LabelDecision(
            standing=NodeLabelState.DISAGREES,
            message=f"its pod reports kernel {view.report.kernel}, its kubelet reports {view.kernel}",
        )
    return _write_labels(view, view.report)


def _written_labels(view: LabelView) -> dict[str, str]:
    """The labels that still have the recorded value."""
    if view.record is None:
        return {}
    return {name: value for name, value in view.record.labels.items() if view.labels.get(name) == value}


def _remove_labels(view: LabelView, standing: NodeLabelState, message: str) -> LabelDecision:
    """Remove the labels that were written, with the record; those that NFD keeps now stay."""
    kept = view.nfd or frozenset()
    return LabelDecision(
        standing=standing,
        message=message,
        writes=view.record is not None,
        labels={name: None for name in _written_labels(view) if name not in kept},
    )


def _write_labels(view: LabelView, report: FeatureReport) -> LabelDecision:
    own, wanted = _written_labels(view), feature_labels(report)
    foreign = sorted(name for name in wanted if name in view.labels and name not in own)
    after = {name: value for name, value in wanted.items() if name not in foreign}
    changes: dict[str, str | None] = {name: None for name in own if name not in after}
    changes |= {name: value for name, value in after.items() if view.labels.get(name) != value}
    pending = pending_kernel(report.kernels, report.kernel)
    record = FeatureRecord(stack=view.stack, boot_id=view.boot_id, labels=after, pending=pending)
    return LabelDecision(
        standing=NodeLabelState.LABELLED,
        message=f"managed by another program: {', '.join(foreign)}" if foreign else "",
        writes=bool(changes) or record != view.record,
        labels=changes,
        record=record,
    )
