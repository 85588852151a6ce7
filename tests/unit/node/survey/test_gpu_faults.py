"""Faults of GPUs are found before an upgrade, and those that it does not clear prevent it."""

import pytest

from tests.support.smi_reports import make_gpu
from tests.support.surveyed import GPU_ALIAS, SurveyWorld
from upgrader.core.doctor.advice import Severity

ADDRESS = "0000:1b:00.0"
SUBJECT = f"GPU 0 ({ADDRESS})"


@pytest.fixture
def world(tmp_path):
    world = SurveyWorld(tmp_path)
    world.load_own_driver()
    world.add_smi()
    return world


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"remap_failure": "Yes"}, "problem"),
        ({"mig": "Enabled"}, "problem"),
        ({"width": "GPU is lost"}, "problem"),
        ({"remap_pending": "Yes"}, "warning"),
        ({"uncorrected": {"dram_uncorrectable": "1"}}, "warning"),
        ({"fabric_state": "In Progress"}, "warning"),
    ],
)
def test_a_fault_that_a_load_of_the_driver_clears_is_a_warning(world, changes, severity):
    world.programs.gpus = [make_gpu(address=ADDRESS, **changes)]
    assert world.found() == [("GpuFault", severity, SUBJECT)]


def test_a_finding_has_the_check_the_value_and_what_to_do(world):
    world.programs.gpus = [make_gpu(address=ADDRESS, remap_failure="Yes")]
    (finding,) = world.survey().findings
    assert (finding.message, finding.fix) == (
        "RowRemapFailure: it could not replace a defective row of its memory (failure: Yes)",
        "Replace the GPU.",
    )


def test_a_gpu_that_the_driver_does_not_have(world):
    world.add_device("0000:2b:00.0", "0x030200", GPU_ALIAS)
    (finding,) = world.survey().findings
    assert (finding.severity, finding.subject) == (Severity.PROBLEM, "the PCI bus")
    assert finding.message == "PciFunctions: it has 2 GPU(s), the driver lacks 1: 0000:2b:00.0 (no driver)"


def test_nvidia_smi_that_fails_is_a_finding(world):
    world.programs.smi_code = 9
    assert world.found() == [("CannotLook", "warning", "GPUs")]


def test_without_a_driver_of_this_operator_nvidia_smi_does_not_run(tmp_path):
    world = SurveyWorld(tmp_path)
    world.add_smi()
    world.load_module("nvidia", version="535.183.01")
    world.survey()
    assert not any("-x" in words for words in world.programs.calls)


def test_without_nvidia_smi_and_without_gpus_there_is_nothing_to_find(world):
    world.programs.gpus = [make_gpu(address=ADDRESS, remap_failure="Yes")]
    world.add_smi().unlink()
    assert world.found() == []
    world.add_smi()
    gpu = world.proc / "driver/nvidia/gpus" / ADDRESS
    (gpu / "information").unlink()
    gpu.rmdir()
    assert world.found() == []
