"""What feature discovery says of simulated GPUs: names as GFD's, values that say simulated. Pure.

Names and forms were read in GFD's source (k8s-device-plugin v0.20.0, internal/lm). What only a GPU has is not made up:
a compute capability of 0.0 keeps work away that asks for some, and labels of a CUDA runtime are left out.
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
"""What a simulated device claims to have; the exporter says the same."""

_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class GpuReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a pod read of the driver that is loaded on its node. `uptime`: seconds since the boot."""

    boot_id: Annotated[str, Meta(min_length=1, max_length=64)]
    uptime: float
    version: Annotated[str, Meta(min_length=1, max_length=63)]
    devices: Annotated[int, Meta(ge=0, le=1024)]


class GpuRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """What we wrote on a node, kept there in the same patch: for which stack, and which labels."""

    stack: str
    labels: dict[str, str]


class GpuLabelView(Struct, frozen=True, kw_only=True):
    """A node and what is known of its GPU labels.

    `wanted`: this stack discovers there, and its operands are on. `claimants`: other stacks that select the node.
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
    """What is written in one patch, where `writes`; None takes a label, or the record, away."""

    writes: bool = False
    labels: dict[str, str | None] = {}
    record: GpuRecord | None = None


def gpu_labels(report: GpuReport, slices: int) -> dict[str, str]:
    """The labels of a node whose devices are offered `slices` times each; 0: they are not shared.

    What is no label value, which a version may not be, is left out.
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
    found = {
        **dict(zip(LABELS_GPU, gpu, strict=True)),
        **dict(zip(LABELS_DRIVER, (major, minor, revision), strict=True)),
        **dict(zip(LABELS_DRIVER_VERSION, (major, minor, revision, report.version), strict=True)),
        **dict.fromkeys(LABELS_CAPABLE, "false"),
    }
    return {name: value for name, value in found.items() if _VALUE.fullmatch(value)}


def decide(view: GpuLabelView) -> GpuLabelDecision:
    """What becomes of the GPU labels of one node. Decided again from what it wrote, it writes nothing.

    A label that somebody else wrote, or changed after us, is theirs. While there is no report, what was written stays:
    it goes with the operands, and a pod that is only replaced has nothing new to say.
    """
    owner = view.record.stack if view.record is not None else view.stack
    if owner != view.stack and (owner in view.claimants or not view.wanted):
        return GpuLabelDecision(record=view.record)
    ours = written(view.labels, view.record)
    if not view.wanted:
        return GpuLabelDecision(writes=view.record is not None, labels=dict.fromkeys(ours))
    if view.report is None:
        return GpuLabelDecision(record=view.record)
    wanted = gpu_labels(view.report, view.slices)
    after = {name: value for name, value in wanted.items() if name in ours or name not in view.labels}
    changes: dict[str, str | None] = {name: None for name in ours if name not in after}
    changes |= {name: value for name, value in after.items() if view.labels.get(name) != value}
    record = GpuRecord(stack=view.stack, labels=after)
    return GpuLabelDecision(writes=bool(changes) or record != view.record, labels=changes, record=record)


def written(labels: Mapping[str, str], record: GpuRecord | None) -> dict[str, str]:
    """The labels of a node that are as we wrote them."""
    if record is None:
        return {}
    return {name: value for name, value in record.labels.items() if labels.get(name) == value}


def read_record(text: str) -> GpuRecord | None:
    """What we wrote on a node; None where nobody can read it any more."""
    return untrusted.document(text, GpuRecord)
