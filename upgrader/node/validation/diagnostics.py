"""The report of NVIDIA's diagnostics of GPUs, as `dcgmi diag -j` prints it: DCGM 3 and DCGM 4.

The exit code of dcgmi is not 0 if persistence mode is off, too, so the report decides. Sources: dcgm_errors.h
(severities) and issues of the project NVIDIA/DCGM with reports of versions 3.1 to 4.2.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from upgrader.core import untrusted
from upgrader.core.errors import UnreadableError
from upgrader.core.node_protocol.node_places import DIAGNOSTICS
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.program_results import ProgramOutput

SOFTWARE_CATEGORY = "Deployment"
"""Category of tests that examine software only."""

CONFIGURATION = 5
"""Severity of an error that is the configuration of the node, such as persistence mode (DCGM_ERROR_CONFIG)."""

_SHOWN = 5
"""Most faults in a message."""


class Warn(Struct, frozen=True, kw_only=True):
    """Why a test failed or warned. DCGM before 3.1 has only a text."""

    warning: str = ""
    error_severity: int | None = None


class DeviceResult(Struct, frozen=True, kw_only=True):
    """The result of a test on one device: `gpu_id` in DCGM 3, `entity_id` in DCGM 4."""

    status: str
    gpu_id: int | str | None = None
    entity_id: int | None = None
    warnings: str | list[Warn] = ""

    @property
    def device(self) -> str:
        """The device, for messages."""
        identifier = self.entity_id if self.entity_id is not None else self.gpu_id
        return "" if identifier is None else f" on GPU {identifier}"

    @property
    def reasons(self) -> str:
        """The warnings in one text."""
        texts = [self.warnings] if isinstance(self.warnings, str) else [warn.warning for warn in self.warnings]
        return " ".join(" ".join(texts).split())

    @property
    def is_configuration(self) -> bool:
        """Whether only the configuration of the node is wrong."""
        return (
            isinstance(self.warnings, list)
            and bool(self.warnings)
            and all(warn.error_severity == CONFIGURATION for warn in self.warnings)
        )


class DiagnosticTest(Struct, frozen=True, kw_only=True):
    """A test with its results."""

    name: str
    results: list[DeviceResult] = []
    test_summary: DeviceResult | None = None


class Category(Struct, frozen=True, kw_only=True):
    """Tests of one kind."""

    category: str
    tests: list[DiagnosticTest] = []


class Diagnostic(Struct, frozen=True, kw_only=True):
    """All tests, or why none ran."""

    test_categories: list[Category] = []
    runtime_error: str = ""


class Document(Struct, frozen=True, kw_only=True):
    """The document of DCGM 3 or DCGM 4."""

    version_3: Diagnostic | None = field(default=None, name="DCGM GPU Diagnostic")
    version_4: Diagnostic | None = field(default=None, name="DCGM Diagnostic")


class DiagnosticReport(Struct, frozen=True, kw_only=True):
    """Diagnostics that have found no fault: number of passed results of devices, and remarks on the configuration."""

    passed: int
    remarks: tuple[str, ...] = ()


def judge_diagnostics(output: ProgramOutput) -> DiagnosticReport:
    """The report of diagnostics that have found no fault.

    Raises:
        OrderFailedError: DEVICE_FAILED, with the first faults.
    """
    results = _read_results(output)
    bad = [(name, result) for _, name, result in results if result.status.casefold() in {"fail", "warn", "error"}]
    faults = [_show_result(name, result) for name, result in bad if not result.is_configuration]
    if faults:
        more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise _program_failure("; ".join(faults[:_SHOWN]) + more)
    remarks = tuple(dict.fromkeys(_show_result(name, result) for name, result in bad))
    if output.code != 0 and not remarks:
        raise _program_failure(
            f"the program ended with exit code {output.code}, and its report has no fault: {output.end}"
        )
    passed = sum(
        category != SOFTWARE_CATEGORY and result.status.casefold() == "pass" for category, _, result in results
    )
    if not passed:
        raise _program_failure("no test of a device has passed: all were skipped, or none is in the report")
    return DiagnosticReport(passed=passed, remarks=remarks)


def _program_failure(sentence: str) -> OrderFailedError:
    return OrderFailedError(Reason.DEVICE_FAILED, f"{DIAGNOSTICS}: {sentence}")


def _read_results(output: ProgramOutput) -> list[tuple[str, str, DeviceResult]]:
    """Category, test and result, for each result."""
    try:
        document = untrusted.decode_json(output.output, Document)
    except UnreadableError as error:
        ended = f"the program ended with exit code {output.code}"
        raise _program_failure(f"{ended}, its output is no report of `dcgmi diag -j` ({error}): {output.end}") from None
    diagnostic = document.version_4 or document.version_3
    if diagnostic is None:
        raise _program_failure("the report has neither `DCGM Diagnostic` nor `DCGM GPU Diagnostic`")
    if diagnostic.runtime_error:
        raise _program_failure(f"the diagnostics did not run: {diagnostic.runtime_error[:300]}")
    return list(_results_of(diagnostic.test_categories))


def _results_of(categories: Sequence[Category]) -> Iterator[tuple[str, str, DeviceResult]]:
    for category in categories:
        for test in category.tests:
            summary = [test.test_summary] if test.test_summary is not None and not test.results else []
            for result in (*test.results, *summary):
                yield category.category, test.name, result


def _show_result(name: str, result: DeviceResult) -> str:
    return f"{name}{result.device}: {result.reasons[:300] or result.status}"
