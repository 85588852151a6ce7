"""`validate`: from inside a pod that asked for GPUs."""

import os
from collections.abc import Sequence
from pathlib import Path

from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.core.node_protocol.orders import OrderResult, ValidateOrder
from upgrader.node.commands.order import answered
from upgrader.node.driver.validate import validate


def main(arguments: Sequence[str]) -> int:
    """Exit code of the command."""
    return answered("validate", arguments, ValidateOrder, _validate)


def _validate(order: ValidateOrder) -> OrderResult:
    return validate(order, run=Path(RUN_DIRECTORY), devices=Path("/dev"), environment=os.environ)
