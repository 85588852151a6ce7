"""`validate`: checks the devices of a pod that requests GPUs."""

import os
from collections.abc import Sequence
from pathlib import Path

from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.core.node_protocol.orders import OrderResult, ValidateOrder
from upgrader.node.commands.order import run_order
from upgrader.node.validation.validate import validate_devices


def main(arguments: Sequence[str]) -> int:
    """Execute the order; returns the exit code."""
    return run_order("validate", arguments, ValidateOrder, _validate_devices)


def _validate_devices(order: ValidateOrder) -> OrderResult:
    return validate_devices(order, run=Path(RUN_DIRECTORY), devices=Path("/dev"), environment=os.environ)
