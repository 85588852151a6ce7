"""`validate-programs`: judges the results of the programs that have run on all GPUs of the node."""

from collections.abc import Sequence
from pathlib import Path

from upgrader.core.node_protocol.node_places import PROGRAM_RESULTS, VALIDATION_FOLDER
from upgrader.core.node_protocol.orders import OrderResult, ProgramsOrder
from upgrader.node.commands.order import run_order
from upgrader.node.validation.programs import validate_programs


def main(arguments: Sequence[str]) -> int:
    """Execute the order; returns the exit code."""
    return run_order("validate-programs", arguments, ProgramsOrder, _validate_programs)


def _validate_programs(order: ProgramsOrder) -> OrderResult:
    return validate_programs(order, results=Path(PROGRAM_RESULTS), state=Path(VALIDATION_FOLDER))
