"""The report of a run over the matrix, in the format for programs: build/nightly-report.json."""

from collections.abc import Sequence

from msgspec import Struct, field

from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import CheckName
from upgrader.core.driver_build.driver_matrix import UnmatchedSelector

_CHECKS = (CheckName.VERMAGIC, CheckName.CRC, CheckName.SIGNATURE, CheckName.BOOT)


class ReportedFailure(Struct, frozen=True, kw_only=True):
    """Why a cell is red."""

    kind: str = field(name="class")
    symbol: str
    first_error: str


class ReportedCell(Struct, frozen=True, kw_only=True):
    """A cell. `checks` are true or false, null for a check that was not made; `seconds` is 0 if nothing was built."""

    vendor: str
    driver: str
    flavour: str
    kernel: str
    os: str
    state: CellState
    failure: ReportedFailure | None
    alternatives: tuple[str, ...]
    digest: str
    build_key: str
    seconds: float
    checks: dict[str, bool | None]
    image: str


class MatrixReport(Struct, frozen=True, kw_only=True):
    """All cells of a run, and selectors of the matrix that selected nothing."""

    cells: tuple[ReportedCell, ...]
    unmatched: tuple[str, ...]
    seconds: float


def build_report(
    results: Sequence[BuildResult], unmatched: Sequence[UnmatchedSelector], seconds: float
) -> MatrixReport:
    """The report of a run that took this many seconds."""
    lost = (f"{selection.selector} of {selection.wanted.recipe} for {selection.wanted.os}" for selection in unmatched)
    return MatrixReport(cells=tuple(map(report_cell, results)), unmatched=tuple(lost), seconds=round(seconds, 1))


def _reported_failure(result: BuildResult) -> ReportedFailure | None:
    failure = result.failure
    if failure is None:
        return None
    return ReportedFailure(kind=failure.kind.value, symbol=failure.symbol, first_error=failure.first_error)


def report_cell(result: BuildResult) -> ReportedCell:
    """One cell of a report."""
    identity = result.identity
    passed = {verdict.check: verdict.passed for verdict in result.checks}
    return ReportedCell(
        vendor=identity.vendor,
        driver=identity.driver,
        flavour=identity.flavour,
        kernel=identity.kernel,
        os=identity.os,
        state=result.state,
        failure=_reported_failure(result),
        alternatives=result.alternatives,
        digest=result.digest.rpartition("@")[2],
        build_key=result.build_key,
        seconds=round(result.seconds, 1),
        checks={check.value: passed.get(check) for check in _CHECKS},
        image=result.digest if "@" in result.digest else "",
    )
