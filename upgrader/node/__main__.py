"""`python -m upgrader.node COMMAND`: what our pods on a node run.

Orders come from the environment and answers go to the termination message, see docs/reference/node-contract.md.
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
    """Exit code of the command, which is the function `main` of its module in `commands`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    _end_when_told()
    if not arguments or arguments[0] not in COMMANDS:
        sys.stderr.write(f"usage: python -m upgrader.node {'|'.join(COMMANDS)}\n")
        return _bad_order()
    command = importlib.import_module(f"upgrader.node.commands.{arguments[0].replace('-', '_')}")
    code: int = command.main(arguments[1:])
    return code


def _end_when_told() -> None:
    """An upgrade waits for the end of operands, and process 1 ignores signals that it does not handle."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def _bad_order() -> int:
    # what decodes orders takes an emulated node a quarter of a second to load, and several commands need none of it
    from upgrader.core.node_protocol.orders import Reason  # noqa: PLC0415
    from upgrader.node.host.task_result import EXIT_CODES  # noqa: PLC0415

    return EXIT_CODES[Reason.BAD_ORDER]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
