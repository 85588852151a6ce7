"""Which labels of a node are written, taken away or left to others. Pure.

One writer at most: where NFD has left a mark we write nothing and take back what it does not keep; where another stack
has written we wait for it to leave; what somebody else wrote, or changed after us, is theirs from then on.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from upgrader.core.node_protocol.node_features import FeatureRecord, FeatureReport, feature_labels, pending_kernel


class Standing(StrEnum):
    """How it stands with the labels of one node, as one word; the worst comes first."""

    RECORD_UNREADABLE = "RecordUnreadable"
    REFUSED = "Refused"
    UNREADABLE = "Unreadable"
    DISAGREES = "Disagrees"
    ANNOUNCED = "LeftToNodeFeatureDiscovery"
    WAITING = "WaitingForReport"
    OTHER_STACK = "OtherStack"
    NFD = "NodeFeatureDiscovery"
    LABELLED = "Labelled"
    NOT_OURS = "NotOurs"


SETTLED = frozenset({Standing.NFD, Standing.OTHER_STACK, Standing.LABELLED, Standing.NOT_OURS})
"""Nothing is left to be done about these."""


class LabelView(Struct, frozen=True, kw_only=True):
    """A node, and what is known of its labels.

    `wanted`: this stack labels it. `nfd`: what NFD keeps there, None where it does not run. `report` is of the present
    boot; `fault` says why there is none. `held_by`: another stack whose labels these are, while it still labels them.
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
    """What is written in one patch, where `writes`; None takes a label, or the record, away."""

    standing: Standing
    message: str = ""
    writes: bool = False
    labels: dict[str, str | None] = {}
    record: FeatureRecord | None = None


def decide(view: LabelView) -> LabelDecision:
    """What becomes of the labels of one node. Decided again from what it wrote, it writes nothing."""
    if view.record_unreadable:
        return LabelDecision(
            standing=Standing.RECORD_UNREADABLE,
            message="the record of the labels that were written cannot be read: remove it, and the labels",
        )
    if view.held_by:
        return LabelDecision(standing=Standing.OTHER_STACK, message=f"GpuStack {view.held_by} labels it")
    if view.nfd is not None and (view.wanted or view.record is not None):
        return _leave(view, Standing.NFD, "node-feature-discovery runs there, by its annotations on the Node")
    if not view.wanted:
        return _leave(view, Standing.NOT_OURS, "")
    if view.report is None:
        standing = Standing.UNREADABLE if view.fault else Standing.WAITING
        return LabelDecision(standing=standing, message=view.fault or "its pod has not told yet what it read")
    if view.report.kernel != view.kernel:
        return LabelDecision(
            standing=Standing.DISAGREES,
            message=f"its pod read kernel {view.report.kernel}, its kubelet says {view.kernel}",
        )
    return _label(view, view.report)


def _ours(view: LabelView) -> dict[str, str]:
    """The labels that are as we wrote them."""
    if view.record is None:
        return {}
    return {name: value for name, value in view.record.labels.items() if view.labels.get(name) == value}


def _leave(view: LabelView, standing: Standing, message: str) -> LabelDecision:
    """What is still ours goes, with the record; what NFD keeps now is not ours any longer."""
    kept = view.nfd or frozenset()
    return LabelDecision(
        standing=standing,
        message=message,
        writes=view.record is not None,
        labels={name: None for name in _ours(view) if name not in kept},
    )


def _label(view: LabelView, report: FeatureReport) -> LabelDecision:
    ours, wanted = _ours(view), feature_labels(report)
    theirs = sorted(name for name in wanted if name in view.labels and name not in ours)
    after = {name: value for name, value in wanted.items() if name not in theirs}
    changes: dict[str, str | None] = {name: None for name in ours if name not in after}
    changes |= {name: value for name, value in after.items() if view.labels.get(name) != value}
    pending = pending_kernel(report.kernels, report.kernel)
    record = FeatureRecord(stack=view.stack, boot_id=view.boot_id, labels=after, pending=pending)
    return LabelDecision(
        standing=Standing.LABELLED,
        message=f"left to somebody else: {', '.join(theirs)}" if theirs else "",
        writes=bool(changes) or record != view.record,
        labels=changes,
        record=record,
    )
