"""`python -m upgrader_dev.node COMMAND`: the program of the operands of simulated GPUs."""

import sys
from collections.abc import Sequence

from upgrader.node.commands.command_line import run_command

COMMANDS = ("device-plugin", "exporter", "gpu-features", "runtime")


def run_operand(arguments: Sequence[str]) -> int:
    """Run the program of an operand; returns its exit code."""
    return run_command("upgrader_dev.node", COMMANDS, arguments)


if __name__ == "__main__":
    sys.exit(run_operand(sys.argv[1:]))
