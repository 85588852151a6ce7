"""The result of an all-reduce over all GPUs of a node, compared with the highest one that the node has reached before.

The report is that of NVIDIA's nccl-tests (source: the README and src/common.cu of that project, versions 2.13 to 2.17):
a line for each rank, a table with the bandwidths and the number of wrong values, and the average bus bandwidth.
"""

import math
import re
from pathlib import Path

from msgspec import Struct, json

from upgrader.core import untrusted
from upgrader.core.errors import UnreadableError
from upgrader.core.node_protocol.node_places import ALL_REDUCE
from upgrader.core.node_protocol.orders import AllReduceCheck, Reason
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.program_results import ProgramOutput
from upgrader.process.atomic_file import write_file

MOST_RECORDS = 16
"""Programs whose highest result is kept."""

_RANK = re.compile(r"#\s+Rank\s+([0-9]{1,6})\b")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\S+)\s*")
_OUT_OF_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\S+)\s.*")
_COLUMNS = 13
_WRONG_COLUMNS = (8, 12)
"""Of a row of the table: out of place, and in place."""


class AllReduceReport(Struct, frozen=True, kw_only=True):
    """What an all-reduce has measured.

    Args:
        ranks: GPUs that took part.
        bus_bandwidth: average over all sizes, in GB/s (10^9 bytes).
        wrong: number of values that differ from the expected ones; None if the program has not compared them.
    """

    ranks: int
    bus_bandwidth: float
    wrong: int | None


class Record(Struct, frozen=True, kw_only=True):
    """The highest bus bandwidth of a program on a node, in GB/s."""

    program: str
    gpus: int
    bus_bandwidth: float


def parse_all_reduce(text: str) -> AllReduceReport:
    """The report of an all-reduce.

    Raises:
        UnreadableError: a part is missing.
    """
    lines = [line.strip() for line in text.splitlines()]
    averages = [match[1] for line in lines if (match := _AVERAGE.fullmatch(line))]
    bandwidth = _read_float(averages[0]) if len(averages) == 1 else None
    if bandwidth is None:
        raise UnreadableError("it has not exactly one line `Avg bus bandwidth` with a number")
    rows = [columns for line in lines if len(columns := line.split()) == _COLUMNS and columns[0].isdecimal()]
    if not rows:
        raise UnreadableError(f"its table has no row of {_COLUMNS} columns")
    return AllReduceReport(
        ranks=len({match[1] for line in lines if (match := _RANK.match(line))}),
        bus_bandwidth=bandwidth,
        wrong=_count_wrong(rows, lines),
    )


def _read_float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _count_wrong(rows: list[list[str]], lines: list[str]) -> int | None:
    counts = [untrusted.parse_whole(row[column]) for row in rows for column in _WRONG_COLUMNS]
    counts += [untrusted.parse_whole(match[1]) for line in lines if (match := _OUT_OF_BOUNDS.fullmatch(line))]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def judge_all_reduce(output: ProgramOutput, check: AllReduceCheck, records: tuple[Record, ...]) -> AllReduceReport:
    """The report of an all-reduce without a fault.

    Args:
        output: of the program.
        check: the expected result.
        records: highest results of the node so far, of any program.

    Raises:
        OrderFailedError: DEVICE_FAILED, with all faults.
    """
    if output.code != 0:
        raise _program_failure(f"the program ended with exit code {output.code}: {output.end}")
    try:
        report = parse_all_reduce(output.output)
    except UnreadableError as error:
        raise _program_failure(
            f"the output cannot be read as a report of nccl-tests: {error}; it ends with {output.end}"
        ) from None
    if faults := [fault for fault in _find_faults(report, check, records) if fault]:
        raise _program_failure("; ".join(faults))
    return report


def _program_failure(sentence: str) -> OrderFailedError:
    return OrderFailedError(Reason.DEVICE_FAILED, f"{ALL_REDUCE}: {sentence}")


def _find_faults(report: AllReduceReport, check: AllReduceCheck, records: tuple[Record, ...]) -> tuple[str, ...]:
    measured, least = f"the bus bandwidth is {report.bus_bandwidth:.2f} GB/s", check.min_bus_bandwidth
    highest = find_record(records, check)
    allowed = highest * (100 - check.tolerance_percent) / 100 if highest is not None else None
    return (
        f"{report.ranks} GPUs took part, {check.gpus} are expected" if report.ranks != check.gpus else "",
        "the program has not compared its results: omit its option -c 0" if report.wrong is None else "",
        f"{report.wrong} values are wrong" if report.wrong else "",
        f"{measured}, at least {least:g} is required" if least is not None and report.bus_bandwidth < least else "",
        f"{measured}, more than {check.tolerance_percent} % below the highest one of this node, {highest:.2f} GB/s"
        if allowed is not None and report.bus_bandwidth < allowed
        else "",
    )


def find_record(records: tuple[Record, ...], check: AllReduceCheck) -> float | None:
    """The highest bus bandwidth of the same program over as many GPUs."""
    values = [
        record.bus_bandwidth for record in records if (record.program, record.gpus) == (check.program, check.gpus)
    ]
    return max(values, default=None)


def read_records(path: Path) -> tuple[Record, ...]:
    """The highest results of the node so far.

    Raises:
        OrderFailedError: DEVICE_FAILED: the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    try:
        return untrusted.decode_json(content, tuple[Record, ...])
    except UnreadableError as error:
        raise _program_failure(
            f"earlier results on the node, {path.name}, cannot be read ({error}): remove the file"
        ) from error


def update_records(records: tuple[Record, ...], check: AllReduceCheck, report: AllReduceReport) -> tuple[Record, ...]:
    """The highest results with this one, if it is higher; the program that was measured last is the last one."""
    highest = max(report.bus_bandwidth, find_record(records, check) or 0.0)
    others = [record for record in records if (record.program, record.gpus) != (check.program, check.gpus)]
    own = Record(program=check.program, gpus=check.gpus, bus_bandwidth=highest)
    return (*others[-(MOST_RECORDS - 1) :], own)


def write_records(path: Path, records: tuple[Record, ...]) -> None:
    """Write the highest results to the disk of the node."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.encode(records))
