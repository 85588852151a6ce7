"""Labels of feature discovery for simulated GPUs: the names of GFD, values that state simulated. Pure.

Names and forms are those of GFD's source (k8s-device-plugin v0.20.0, internal/lm). Properties of real GPUs are not
invented: a compute capability of 0.0 keeps workloads away that require one, and labels of a CUDA runtime are left out.
"""

import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from upgrader.core import untrusted

LABELS_GPU = tuple(
    f"nvidia.com/gpu.{part}"
    for part in (
        "product",
        "memory",
        "count",
        "replicas",
        "sharing-strategy",
        "family",
        "compute.major",
        "compute.minor",
    )
)
LABELS_DRIVER = tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))
LABELS_DRIVER_VERSION = tuple(
    f"nvidia.com/cuda.driver-version.{part}" for part in ("major", "minor", "revision", "full")
)
LABELS_CAPABLE = ("nvidia.com/mig.capable", "nvidia.com/mps.capable")

PRODUCT = "SIMULATED-GPU"
FAMILY = "simulated"
MEMORY_MIB = 81920
"""The memory that a simulated device reports; the exporter reports the same."""

_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


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
    `report` is of the present boot; None: there is none yet.
    """

    stack: str
    labels: Mapping[str, str]
    wanted: bool
    record: GpuRecord | None = None
    claimants: tuple[str, ...] = ()
    report: GpuReport | None = None
    slices: int = 0


class GpuLabelDecision(Struct, frozen=True, kw_only=True):
    """The contents of one patch, if `writes`; None removes a label, or the record."""

    writes: bool = False
    labels: dict[str, str | None] = {}
    record: GpuRecord | None = None


def gpu_labels(report: GpuReport, slices: int) -> dict[str, str]:
    """The labels of a node whose devices are offered `slices` times each; 0: they are not shared.

    A text that is not a valid label value, as a version may be, is left out.
    """
    major, minor, revision = (*report.version.split(".")[:3], "", "")[:3]
    gpu = (
        f"{PRODUCT}-SHARED" if slices else PRODUCT,
        str(MEMORY_MIB),
        str(report.devices),
        str(slices or 1),
        "time-slicing" if slices else "none",
        FAMILY,
        *("0", "0"),
    )
    labels = {
        **dict(zip(LABELS_GPU, gpu, strict=True)),
        **dict(zip(LABELS_DRIVER, (major, minor, revision), strict=True)),
        **dict(zip(LABELS_DRIVER_VERSION, (major, minor, revision, report.version), strict=True)),
        **dict.fromkeys(LABELS_CAPABLE, "false"),
    }
    return {name: value for name, value in labels.items() if _VALUE.fullmatch(value)}


def decide(view: GpuLabelView) -> GpuLabelDecision:
    """The next patch of the GPU labels of one node. A second decision, after the patch, writes nothing.

    A label that others wrote, or changed since, is left to them. While there is no report, the written labels stay:
    they are removed with the operands, and a pod that is only replaced has no new report.
    """
    owner = view.record.stack if view.record is not None else view.stack
    if owner != view.stack and (owner in view.claimants or not view.wanted):
        return GpuLabelDecision(record=view.record)
    own = written(view.labels, view.record)
    if not view.wanted:
        return GpuLabelDecision(writes=view.record is not None, labels=dict.fromkeys(own))
    if view.report is None:
        return GpuLabelDecision(record=view.record)
    wanted = gpu_labels(view.report, view.slices)
    after = {name: value for name, value in wanted.items() if name in own or name not in view.labels}
    changes: dict[str, str | None] = {name: None for name in own if name not in after}
    changes |= {name: value for name, value in after.items() if view.labels.get(name) != value}
    record = GpuRecord(stack=view.stack, labels=after)
    return GpuLabelDecision(writes=bool(changes) or record != view.record, labels=changes, record=record)


def written(labels: Mapping[str, str], record: GpuRecord | None) -> dict[str, str]:
    """The labels of a node that still have the recorded value."""
    if record is None:
        return {}
    return {name: value for name, value in record.labels.items() if labels.get(name) == value}


def read_record(text: str) -> GpuRecord | None:
    """The record on a node; None if it is unreadable."""
    return untrusted.document(text, GpuRecord)
