"""`restore-power-limits`: sets the power limits of GPUs again that an upgrade kept before it unloaded the driver."""

from collections.abc import Sequence
from pathlib import Path

from upgrader.core.node_protocol.node_places import STATE_DIRECTORY
from upgrader.core.node_protocol.orders import OrderResult, RestoreOrder
from upgrader.node.commands.order import run_order
from upgrader.node.host.programs import SystemPrograms
from upgrader.node.validation.power_limits import restore_power_limits


def main(arguments: Sequence[str]) -> int:
    """Execute the order; returns the exit code."""
    return run_order("restore-power-limits", arguments, RestoreOrder, _restore_limits)


def _restore_limits(_order: RestoreOrder) -> OrderResult:
    return restore_power_limits(Path(STATE_DIRECTORY), SystemPrograms())
