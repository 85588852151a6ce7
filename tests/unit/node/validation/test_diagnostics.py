"""Reports of NVIDIA's diagnostics: DCGM 3 and 4, with faults, with remarks, and what is no report."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.node_protocol.orders import OrderResult, ProgramsOrder, Reason
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.diagnostics import DiagnosticReport, judge_diagnostics
from upgrader.node.validation.program_results import ProgramOutput
from upgrader.node.validation.programs import validate_programs

PERSISTENCE = {
    "error_category": 8,
    "error_id": 29,
    "error_severity": 5,
    "warning": "Persistence Mode: Persistence mode for GPU 0 is disabled.",
}
MEMORY = {"error_id": 81, "error_severity": 2, "warning": "GPU 1 had uncorrectable memory errors"}


def version_3(*, software="Pass", memory="Pass", warnings=()):
    """DCGM 3.3: results by `gpu_id`."""
    results = [{"gpu_id": "0", "status": "Pass", "info": "Allocated 79 GiB"}, {"gpu_id": "1", "status": memory}]
    if warnings:
        results[1]["warnings"] = warnings
    categories = [
        {"category": "Deployment", "tests": [{"name": "Denylist", "results": [{"status": software}]}]},
        {"category": "Hardware", "tests": [{"name": "GPU Memory", "results": results}]},
    ]
    return {"DCGM GPU Diagnostic": {"test_categories": categories}, "Driver Version Detected": "535.309.01"}


def version_4(*, software="Pass", software_warnings=(), memory="Pass", warnings=()):
    """DCGM 4: results by `entity_id`, with a summary of each test."""

    def test(name, status, found):
        result = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": status}
        if found:
            result["warnings"] = found
        return {"name": name, "results": [result], "test_summary": {"status": status}}

    categories = [
        {"category": "Deployment", "tests": [test("software", software, software_warnings)]},
        {"category": "Hardware", "tests": [test("memory", memory, warnings)]},
    ]
    return {"DCGM Diagnostic": {"test_categories": categories}, "metadata": {"version": "4.2.3"}}


def ended(document, code=0):
    return ProgramOutput(code=code, output=msgspec.json.encode(document).decode(), end="the end")


def fault(output):
    with pytest.raises(OrderFailedError) as caught:
        judge_diagnostics(output)
    assert caught.value.reason is Reason.DEVICE_FAILED
    return str(caught.value)


def test_reports_without_a_fault():
    assert judge_diagnostics(ended(version_3())) == DiagnosticReport(passed=2)
    assert judge_diagnostics(ended(version_4())) == DiagnosticReport(passed=1)


def test_faults_name_test_and_gpu():
    assert fault(ended(version_3(memory="Fail", warnings=[MEMORY]), 205)) == (
        "diagnostics: GPU Memory on GPU 1: GPU 1 had uncorrectable memory errors"
    )
    old = ended(version_3(memory="Warn", warnings="an old text"))
    assert fault(old) == "diagnostics: GPU Memory on GPU 1: an old text"
    assert fault(ended(version_4(memory="Fail"), 0)) == "diagnostics: memory on GPU 0: Fail"
    assert fault(ended(version_3(software="Fail"), 0)) == "diagnostics: Denylist: Fail"


def test_the_configuration_of_a_node_is_a_remark_although_dcgmi_fails():
    configured = ended(version_4(software="Fail", software_warnings=[PERSISTENCE]), 205)
    assert judge_diagnostics(configured) == DiagnosticReport(
        passed=1, remarks=("software on GPU 0: Persistence Mode: Persistence mode for GPU 0 is disabled.",)
    )
    both = [PERSISTENCE, MEMORY]
    assert "uncorrectable" in fault(ended(version_4(software="Fail", software_warnings=both), 205))


def test_an_exit_code_without_a_fault_in_the_report_is_one():
    assert fault(ended(version_4(), 1)) == (
        "diagnostics: the program ended with exit code 1, and its report has no fault: the end"
    )


@pytest.mark.parametrize("document", [version_3(memory="Skip"), version_4(memory="Skip"), {"DCGM Diagnostic": {}}])
def test_diagnostics_that_examine_no_device_prove_nothing(document):
    if "DCGM GPU Diagnostic" in document:
        document["DCGM GPU Diagnostic"]["test_categories"][1]["tests"][0]["results"][0]["status"] = "Skip"
    assert "no test of a device has passed" in fault(ended(document))


def test_diagnostics_that_did_not_run():
    assert "did not run: no GPUs" in fault(ended({"DCGM Diagnostic": {"runtime_error": "no GPUs"}}, 226))
    assert "neither `DCGM Diagnostic`" in fault(ended({"metadata": {}}))


@given(text=st.text(max_size=200) | st.from_type(dict).map(str), code=st.integers(0, 255))
def test_any_other_output_is_one_fault(text, code):
    assert fault(ProgramOutput(code=code, output=text, end="")).startswith("diagnostics: ")


def test_many_faults_are_shown_in_part():
    document = version_4()
    result = {"entity_id": 0, "status": "Fail"}
    document["DCGM Diagnostic"]["test_categories"][1]["tests"] = [
        {"name": f"t{number}", "results": [result]} for number in range(9)
    ]
    assert fault(ended(document)).endswith("t4 on GPU 0: Fail and 4 more")


def test_the_order_without_an_all_reduce(tmp_path):
    (tmp_path / "diagnostics.out").write_bytes(msgspec.json.encode(version_4()))
    (tmp_path / "diagnostics.code").write_text("0\n")
    assert validate_programs(ProgramsOrder(diagnostics=True), results=tmp_path, state=tmp_path / "none") == OrderResult(
        reason=Reason.DONE, message="diagnostics: 1 results of devices passed"
    )
    assert not (tmp_path / "none").exists()
