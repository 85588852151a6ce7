"""Validation by programs that use all GPUs of a node at the same time: an all-reduce, and NVIDIA's diagnostics."""

from pathlib import Path

from upgrader.core.node_protocol.node_places import ALL_REDUCE, DIAGNOSTICS
from upgrader.core.node_protocol.orders import AllReduceCheck, OrderResult, ProgramsOrder, Reason
from upgrader.node.validation.all_reduce import (
    find_record,
    judge_all_reduce,
    read_records,
    update_records,
    write_records,
)
from upgrader.node.validation.diagnostics import judge_diagnostics
from upgrader.node.validation.program_results import read_program

RECORDS = "all-reduce.json"


def validate_programs(order: ProgramsOrder, *, results: Path, state: Path) -> OrderResult:
    """Judge the results of the programs of an order.

    Args:
        order: the programs that have run.
        results: PROGRAM_RESULTS of the pod.
        state: VALIDATION_FOLDER of the node; only results of a node without a fault are recorded there.

    Raises:
        OrderFailedError: DEVICE_FAILED.
    """
    sentences, facts = [], {}
    if order.diagnostics:
        report = judge_diagnostics(read_program(results, DIAGNOSTICS))
        remarks = f" (configuration: {'; '.join(report.remarks)})" if report.remarks else ""
        sentences.append(f"{DIAGNOSTICS}: {report.passed} results of devices passed{remarks}")
    if order.all_reduce is not None:
        sentence, bandwidth = _measure_all_reduce(order.all_reduce, results, state)
        sentences.insert(0, sentence)
        facts["all-reduce bus bandwidth"] = f"{bandwidth:.2f} GB/s"
    return OrderResult(reason=Reason.DONE, message="; ".join(sentences), facts=facts)


def _measure_all_reduce(check: AllReduceCheck, results: Path, state: Path) -> tuple[str, float]:
    """The result in a sentence, and the bus bandwidth in GB/s."""
    records = read_records(state / RECORDS)
    report = judge_all_reduce(read_program(results, ALL_REDUCE), check, records)
    write_records(state / RECORDS, update_records(records, check, report))
    highest = find_record(records, check)
    before = "the first result of this node" if highest is None else f"highest one before: {highest:.2f}"
    sentence = f"{ALL_REDUCE}: {report.bus_bandwidth:.2f} GB/s bus bandwidth over {report.ranks} GPUs ({before})"
    return sentence, report.bus_bandwidth
