"""`python -m upgrader.node COMMAND`: the program of all pods on nodes.

Orders come from the environment, and results go to the termination message; see docs/reference/node-contract.md.
"""

import sys
from collections.abc import Sequence

from upgrader.node.commands.command_line import run_command

COMMANDS = (
    *("prepare", "survey", "record", "upgrade", "restore-power-limits", "validate-driver", "validate-programs"),
    *("validate", "node-labels", "wait"),
)


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code."""
    return run_command("upgrader.node", COMMANDS, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
