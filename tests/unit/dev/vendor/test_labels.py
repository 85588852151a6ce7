"""Labels of nodes with simulated GPUs."""

import msgspec

from upgrader.core.node_protocol.gpu_features import GpuReport
from upgrader_dev.node import exporter
from upgrader_dev.vendor import labels
from upgrader_dev.vendor.labels import gpu_labels

REPORT = GpuReport(boot_id="b", uptime=1.0, version="535.261.03", devices=8)


def test_a_version_in_parts():
    found = gpu_labels(REPORT, 0)
    parts = ("major", "minor", "rev")
    assert [found[f"nvidia.com/cuda.driver.{part}"] for part in parts] == ["535", "261", "03"]
    assert found["nvidia.com/cuda.driver-version.full"] == "535.261.03"
    odd = gpu_labels(msgspec.structs.replace(REPORT, version="1-.x~y"), 0)
    assert "nvidia.com/cuda.driver-version.full" not in odd
    assert "nvidia.com/cuda.driver.major" not in odd
    assert odd["nvidia.com/gpu.count"] == "8"


def test_labels_and_exporter_report_the_same_memory():
    assert labels.MEMORY_MIB == exporter.MEMORY_MIB
