"""`wait`: for an operand of this node."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from upgrader.node.host.clock import SystemClock
from upgrader.node.host.waiting import wait_for


def main(arguments: Sequence[str]) -> int:
    """0, once the operand has done its work."""
    parser = argparse.ArgumentParser(prog="upgrader.node wait", description="wait for an operand of this node")
    parser.add_argument("--for", dest="operand", required=True, help="its name, for the log")
    parser.add_argument("--file", type=Path, action="append", required=True, help="there once it has done its work")
    options = parser.parse_args(arguments)
    wait_for(options.operand, options.file, SystemClock())
    return 0
