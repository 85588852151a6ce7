"""Reports of nccl-tests become values, and are compared with the highest one of the node."""

import math
import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.nccl_reports import render_all_reduce
from upgrader.core.errors import UnreadableError
from upgrader.core.node_protocol.orders import AllReduceCheck, OrderResult, ProgramsOrder, Reason
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.validation.all_reduce import (
    MOST_RECORDS,
    AllReduceReport,
    Record,
    parse_all_reduce,
    read_records,
    update_records,
)
from upgrader.node.validation.program_results import LONGEST_OUTPUT
from upgrader.node.validation.programs import RECORDS, validate_programs

CHECK = AllReduceCheck(program="p", gpus=8, tolerance_percent=5)
BANDWIDTHS = st.floats(min_value=0, max_value=10_000, allow_nan=False)


class Run:
    """Files of a validation pod and of its node."""

    def __init__(self, folder):
        self.results, self.state = folder / "results", folder / "state" / "validation"
        self.results.mkdir()
        self.record(render_all_reduce())

    def record(self, output, *, errors="", code="0\n"):
        for suffix, text in (("out", output), ("err", errors), ("code", code)):
            (self.results / f"all-reduce.{suffix}").write_text(text)

    def validate(self, **check):
        order = ProgramsOrder(all_reduce=msgspec.structs.replace(CHECK, **check))
        return validate_programs(order, results=self.results, state=self.state)

    def fault(self, **check):
        with pytest.raises(OrderFailedError) as caught:
            self.validate(**check)
        assert caught.value.reason is Reason.DEVICE_FAILED
        return str(caught.value)

    def highest(self):
        return [(record.gpus, record.bus_bandwidth) for record in read_records(self.state / RECORDS)]


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_a_report_of_eight_gpus():
    assert parse_all_reduce(render_all_reduce()) == AllReduceReport(ranks=8, bus_bandwidth=478.125, wrong=0)


def test_a_report_before_groups_were_printed_and_one_without_a_comparison():
    assert parse_all_reduce(render_all_reduce(groups=False, gpus=2)).ranks == 2
    assert parse_all_reduce(render_all_reduce(wrong="N/A")).wrong is None


@pytest.mark.parametrize("line", ["Avg bus bandwidth", "float"])
def test_a_report_without_a_part_is_unreadable(line):
    text = "\n".join(shown for shown in render_all_reduce().splitlines() if line not in shown)
    with pytest.raises(UnreadableError):
        parse_all_reduce(text)


@pytest.mark.parametrize("bandwidth", ["nan", "inf", "-1", "much"])
def test_a_bandwidth_that_is_no_number_is_unreadable(bandwidth):
    with pytest.raises(UnreadableError):
        parse_all_reduce(render_all_reduce(average=bandwidth))


@given(text=st.text(max_size=400))
def test_any_other_text_is_one_error(text):
    with pytest.raises(UnreadableError):
        parse_all_reduce(text)


@given(average=BANDWIDTHS, gpus=st.integers(1, 16), wrong=st.integers(0, 9))
def test_what_is_printed_is_read(average, gpus, wrong):
    report = parse_all_reduce(render_all_reduce(average=f"{average:.6g}", gpus=gpus, wrong=str(wrong)))
    assert (report.ranks, report.wrong) == (gpus, 3 * wrong)
    assert math.isclose(report.bus_bandwidth, average, rel_tol=1e-5, abs_tol=1e-9)


@given(values=st.lists(BANDWIDTHS, min_size=1, max_size=20))
def test_the_highest_result_is_kept(values):
    records = ()
    for value in values:
        records = update_records(records, CHECK, AllReduceReport(ranks=8, bus_bandwidth=value, wrong=0))
    assert records == (Record(program="p", gpus=8, bus_bandwidth=max(values)),)


def test_the_first_result_is_recorded_and_the_second_compared(run):
    assert run.validate() == OrderResult(
        reason=Reason.DONE,
        message="all-reduce: 478.12 GB/s bus bandwidth over 8 GPUs (the first result of this node)",
        facts={"all-reduce bus bandwidth": "478.12 GB/s"},
    )
    run.record(render_all_reduce(average="455"))
    assert "highest one before: 478.12" in run.validate().message
    assert run.highest() == [(8, 478.125)]


def test_a_node_that_became_slower_is_not_valid_and_its_record_stays(run):
    run.validate()
    run.record(render_all_reduce(average="454"))
    assert run.fault() == (
        "all-reduce: the bus bandwidth is 454.00 GB/s, more than 5 % below the highest one of this node, 478.12 GB/s"
    )
    assert run.highest() == [(8, 478.125)]
    run.validate(tolerance_percent=6)


def test_another_program_or_number_of_gpus_is_not_compared(run):
    run.validate()
    run.record(render_all_reduce(average="10"))
    run.validate(program="another")
    run.record(render_all_reduce(average="10", gpus=4))
    run.validate(gpus=4)
    assert sorted(run.highest()) == [(4, 10.0), (8, 10.0), (8, 478.125)]


def test_a_node_has_a_limited_number_of_records(run):
    for number in range(MOST_RECORDS + 3):
        run.validate(program=f"p{number}")
    names = [record.program for record in read_records(run.state / RECORDS)]
    assert names == [f"p{number}" for number in range(3, MOST_RECORDS + 3)]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"gpus": 7}, "7 GPUs took part, 8 are expected"),
        ({"wrong": "2"}, "6 values are wrong"),
        ({"wrong": "N/A"}, "the program has not compared its results: omit its option -c 0"),
    ],
)
def test_a_report_with_a_fault(run, changes, fault):
    run.record(render_all_reduce(**changes))
    assert run.fault() == f"all-reduce: {fault}"


def test_a_bandwidth_below_the_minimum(run):
    assert run.fault(min_bus_bandwidth=480.0).endswith("the bus bandwidth is 478.12 GB/s, at least 480 is required")


def test_a_program_that_failed_or_was_killed(run):
    run.record("", errors="NCCL WARN\n Cuda failure 'out of memory'\n", code="2\n")
    assert run.fault() == ("all-reduce: the program ended with exit code 2: NCCL WARN Cuda failure 'out of memory'")
    run.record("", code="")
    assert "has left no exit code" in run.fault()
    (run.results / "all-reduce.code").unlink()
    assert "has left no exit code" in run.fault()
    run.record("all is well\n")
    assert "cannot be read as a report of nccl-tests" in run.fault()


def test_an_endless_output_is_not_read(run):
    run.record("x" * (LONGEST_OUTPUT + 1))
    assert run.fault() == f"all-reduce.out cannot be read: longer than {LONGEST_OUTPUT} bytes"


def test_an_output_that_is_no_file_is_neither_waited_for_nor_followed(run):
    output = run.results / "all-reduce.out"
    output.unlink()
    os.mkfifo(output)
    assert run.fault() == "all-reduce.out cannot be read: not a regular file"
    output.unlink()
    output.symlink_to("/etc/hostname")
    assert run.fault() == "all-reduce.out cannot be read: Too many levels of symbolic links"
    output.unlink()
    output.mkdir()
    assert run.fault() == "all-reduce.out cannot be read: not a regular file"


def test_damaged_records_are_named(run):
    run.validate()
    (run.state / RECORDS).write_text("{")
    assert "remove the file" in run.fault()
