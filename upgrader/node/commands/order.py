"""Common part of the commands that execute an order: it comes from the environment, the result goes to the kubelet."""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from upgrader.core.node_protocol.orders import ORDER_VARIABLE, TERMINATION_LOG, OrderResult, Reason
from upgrader.node.host.task_result import EXIT_CODES, OrderFailedError, write_message

Order = TypeVar("Order")


def run_order(command: str, arguments: Sequence[str], kind: type[Order], act: Callable[[Order], OrderResult]) -> int:
    """Execute an order, print its result and write it as the termination message; returns the exit code."""
    if arguments:
        raise SystemExit(
            f"`{command}` reads its order from {ORDER_VARIABLE} and has no arguments, not {' '.join(arguments)!r}"
        )
    result = _execute_order(command, kind, act)
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    write_message(result, Path(TERMINATION_LOG))
    return EXIT_CODES[result.reason]


def _execute_order(command: str, kind: type[Order], act: Callable[[Order], OrderResult]) -> OrderResult:
    """The result of an order, including failures that have a reason."""
    try:
        order = msgspec.json.decode(os.environ.get(ORDER_VARIABLE, ""), type=kind)
    except msgspec.DecodeError as error:
        return OrderResult(
            reason=Reason.BAD_ORDER, message=f"{ORDER_VARIABLE} is not a valid order for {command}: {error}"
        )
    try:
        return act(order)
    except OrderFailedError as error:
        return OrderResult(reason=error.reason, message=str(error), facts=error.facts)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return OrderResult(reason=Reason.DISK_FULL, message=f"the disk of the node is full: {error}")
