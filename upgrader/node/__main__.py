"""`python -m upgrader.node COMMAND`: the program of all pods on nodes.

Orders come from the environment, and results go to the termination message; see docs/reference/node-contract.md.
"""

import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

COMMANDS = (
    "prepare",
    "upgrade",
    "validate-driver",
    "validate",
    "device-plugin",
    "exporter",
    "gpu-features",
    "node-labels",
    "runtime",
    "wait",
)


def main(arguments: Sequence[str]) -> int:
    """Run a command, which is the function `main` of its module in `commands`; returns its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    _handle_sigterm()
    if not arguments or arguments[0] not in COMMANDS:
        sys.stderr.write(f"usage: python -m upgrader.node {'|'.join(COMMANDS)}\n")
        return _bad_order_code()
    command = importlib.import_module(f"upgrader.node.commands.{arguments[0].replace('-', '_')}")
    code: int = command.main(arguments[1:])
    return code


def _handle_sigterm() -> None:
    """Exit on SIGTERM: an upgrade waits for the end of operands, and process 1 ignores unhandled signals."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def _bad_order_code() -> int:
    # imports take a quarter of a second on an emulated node, and several commands do not need them
    from upgrader.core.node_protocol.orders import Reason  # noqa: PLC0415
    from upgrader.node.host.task_result import EXIT_CODES  # noqa: PLC0415

    return EXIT_CODES[Reason.BAD_ORDER]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
