"""Runs a command of a program of node pods; programs of other distributions have commands of this form too."""

import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence


def run_command(program: str, commands: Sequence[str], arguments: Sequence[str]) -> int:
    """Run a command, which is the function `main` of its module in the package `commands`; returns its exit code.

    Args:
        program: the package of the program, as in `python -m`.
        commands: names of its commands.
        arguments: the command and its arguments.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    _handle_sigterm()
    if not arguments or arguments[0] not in commands:
        sys.stderr.write(f"usage: python -m {program} {'|'.join(commands)}\n")
        return _bad_order_code()
    command = importlib.import_module(f"{program}.commands.{arguments[0].replace('-', '_')}")
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
