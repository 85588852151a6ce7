"""Labels of nodes with simulated GPUs: the names of GFD, with values that are marked as simulated. Pure.

Names and forms are those of GFD's source (k8s-device-plugin v0.20.0, internal/lm). Properties of real GPUs are not
invented: a compute capability of 0.0 excludes workloads that require one, and labels of a CUDA runtime are omitted.
"""

import re

from upgrader.core.node_protocol.gpu_features import GpuReport

MEMORY_MIB = 81920
"""The memory that a simulated device reports; a test compares it with that of the exporter."""

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

_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def gpu_labels(report: GpuReport, slices: int) -> dict[str, str]:
    """The labels of a node whose devices are offered `slices` times each; 0: they are not shared.

    A text that is not a valid label value, as a version may be, is omitted.
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
