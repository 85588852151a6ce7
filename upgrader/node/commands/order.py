"""What commands that carry out an order share: it comes from the environment, the answer goes to the kubelet."""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from upgrader.core.node_protocol.orders import ORDER_VARIABLE, TERMINATION_LOG, OrderResult, Reason
from upgrader.node.host.task_result import EXIT_CODES, OrderFailedError, leave_message

Order = TypeVar("Order")


def answered(command: str, arguments: Sequence[str], kind: type[Order], act: Callable[[Order], OrderResult]) -> int:
    """Exit code of an order's command; its result is printed, and left as the termination message."""
    if arguments:
        raise SystemExit(f"`{command}` takes its order from {ORDER_VARIABLE}, not {' '.join(arguments)!r}")
    result = _carry_out(command, kind, act)
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    leave_message(result, Path(TERMINATION_LOG))
    return EXIT_CODES[result.reason]


def _carry_out(command: str, kind: type[Order], act: Callable[[Order], OrderResult]) -> OrderResult:
    """The result of an order, also where it failed in one of the ways that have a reason."""
    try:
        order = msgspec.json.decode(os.environ.get(ORDER_VARIABLE, ""), type=kind)
    except msgspec.DecodeError as error:
        return OrderResult(reason=Reason.BAD_ORDER, message=f"{ORDER_VARIABLE} is no order to {command}: {error}")
    try:
        return act(order)
    except OrderFailedError as error:
        return OrderResult(reason=error.reason, message=str(error), facts=error.facts)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return OrderResult(reason=Reason.DISK_FULL, message=f"the node's disk is full: {error}")
