"""The result of an order: an OrderResult, an exit code for each reason, and the termination message.

docs/reference/node-contract.md lists the codes; a test compares both.
"""

from pathlib import Path

import msgspec

from upgrader.core.errors import UpgraderError
from upgrader.core.node_protocol.orders import OrderResult, Reason

EXIT_CODES: dict[Reason, int] = {
    Reason.DONE: 0,
    Reason.KERNEL_MISMATCH: 10,
    Reason.DRIVER_MISMATCH: 11,
    Reason.CHECKSUM_MISMATCH: 12,
    Reason.DISK_FULL: 13,
    Reason.MISSING: 14,
    Reason.BUSY: 15,
    Reason.KUBELET_RESTORED: 16,
    Reason.KUBELET_LOST: 17,
    Reason.DEVICE_FAILED: 18,
    Reason.BAD_ORDER: 19,
    Reason.NOT_REBOOTED: 20,
    Reason.OCCUPIED: 21,
    Reason.UNSUITABLE: 22,
    Reason.DEGRADED: 23,
}
"""1 is that of Python for an unhandled exception. The scripts of driver images use the same codes."""

LONGEST_MESSAGE = 4096
"""Limit of the kubelet for a termination message, in bytes."""


class OrderFailedError(UpgraderError):
    """An order failed; `reason` is for the controller, the message for users."""

    def __init__(self, reason: Reason, message: str, *, facts: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.facts = facts or {}


def termination_message(result: OrderResult) -> bytes:
    """The result as JSON of at most LONGEST_MESSAGE bytes: first the facts and then the message are shortened."""
    text = msgspec.json.encode(result)
    if len(text) <= LONGEST_MESSAGE:
        return text
    bare = msgspec.structs.replace(result, facts={})
    text = msgspec.json.encode(bare)
    # A character has at most twelve bytes in JSON (the escapes of a surrogate pair), so this ends soon.
    while len(text) > LONGEST_MESSAGE:
        excess = len(text) - LONGEST_MESSAGE
        bare = msgspec.structs.replace(bare, message=bare.message[: -max(1, excess // 12) - 1] + "…")
        text = msgspec.json.encode(bare)
    return text


def write_message(result: OrderResult, path: Path) -> None:
    """Write a result as termination message, if the file exists: the kubelet mounts it."""
    write_text(termination_message(result), path)


def write_text(text: bytes, path: Path) -> None:
    """Write a text as termination message, if the file exists."""
    if path.exists():
        path.write_bytes(text)
