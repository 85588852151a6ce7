"""GPU labels of nodes that the controller sets from the reports of feature discovery pods. Pure.

A pod has no right to label its node, so it reports, and the vendor derives labels from the report. A discovery that
labels its node by node-feature-discovery, as NVIDIA's does, has no such reports.
"""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from upgrader.core import untrusted


class GpuReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod's report on the driver that is loaded on its node. `uptime`: seconds since the boot."""

    boot_id: Annotated[str, Meta(min_length=1, max_length=64)]
    uptime: float
    version: Annotated[str, Meta(min_length=1, max_length=63)]
    devices: Annotated[int, Meta(ge=0, le=1024)]


class GpuRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """The record of the labels that were written on a node, in the same patch, with their stack."""

    stack: str
    labels: dict[str, str]


class GpuLabelView(Struct, frozen=True, kw_only=True):
    """A node and facts on its GPU labels.

    `wanted`: this stack runs discovery there, and its operands are on. `claimants`: other stacks that select the node.
    `found`: labels that follow from the pod's report of the present boot; None: there is no report yet.
    """

    stack: str
    labels: Mapping[str, str]
    wanted: bool
    record: GpuRecord | None = None
    claimants: tuple[str, ...] = ()
    found: Mapping[str, str] | None = None


class GpuLabelDecision(Struct, frozen=True, kw_only=True):
    """The contents of one patch, if `writes`; None removes a label, or the record."""

    writes: bool = False
    labels: dict[str, str | None] = {}
    record: GpuRecord | None = None


def decide(view: GpuLabelView) -> GpuLabelDecision:
    """The next patch of the GPU labels of one node. A second decision, after the patch, writes nothing.

    A label that others wrote, or changed since, is left to them. While there is no report, the written labels stay:
    they are removed with the operands, and a pod that is only replaced has no new report.
    """
    owner = view.record.stack if view.record is not None else view.stack
    if owner != view.stack and (owner in view.claimants or not view.wanted):
        return GpuLabelDecision(record=view.record)
    own = unchanged_labels(view.labels, view.record)
    if not view.wanted:
        return GpuLabelDecision(writes=view.record is not None, labels=dict.fromkeys(own))
    if view.found is None:
        return GpuLabelDecision(record=view.record)
    after = {name: value for name, value in view.found.items() if name in own or name not in view.labels}
    changes: dict[str, str | None] = {name: None for name in own if name not in after}
    changes |= {name: value for name, value in after.items() if view.labels.get(name) != value}
    record = GpuRecord(stack=view.stack, labels=after)
    return GpuLabelDecision(writes=bool(changes) or record != view.record, labels=changes, record=record)


def unchanged_labels(labels: Mapping[str, str], record: GpuRecord | None) -> dict[str, str]:
    """The labels of a node that still have the recorded value."""
    if record is None:
        return {}
    return {name: value for name, value in record.labels.items() if labels.get(name) == value}


def read_record(text: str) -> GpuRecord | None:
    """The record on a node; None if it is unreadable."""
    return untrusted.read_json(text, GpuRecord)
