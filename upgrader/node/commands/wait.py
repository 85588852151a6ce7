"""`wait`: waits for an operand of this node."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from upgrader.node.host.clock import MonotonicClock
from upgrader.node.host.waiting import wait_for_operand


def main(arguments: Sequence[str]) -> int:
    """Return 0 when the operand is done."""
    parser = argparse.ArgumentParser(prog="upgrader.node wait", description="wait for an operand of this node")
    parser.add_argument("--for", dest="operand", required=True, help="name of the operand, for the log")
    parser.add_argument(
        "--file", type=Path, action="append", required=True, help="file that exists when the operand is done"
    )
    options = parser.parse_args(arguments)
    wait_for_operand(options.operand, options.file, MonotonicClock())
    return 0
