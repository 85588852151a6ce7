"""How an order ends: an OrderResult, an exit code of its own for each reason, and the termination message.

docs/reference/node-contract.md lists the codes; a test keeps both equal.
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
}
"""1 is Python's own for a fault in our code; the scripts of a driver image use the same numbers."""

LONGEST_MESSAGE = 4096
"""What the kubelet keeps of a termination message, in bytes."""


class OrderFailedError(UpgraderError):
    """An order cannot be carried out; `reason` tells the controller, the message tells people."""

    def __init__(self, reason: Reason, message: str, *, facts: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.facts = facts or {}


def termination_message(result: OrderResult) -> bytes:
    """JSON of at most LONGEST_MESSAGE bytes; where it would be longer, facts go first and then the message's end."""
    text = msgspec.json.encode(result)
    if len(text) <= LONGEST_MESSAGE:
        return text
    bare = msgspec.structs.replace(result, facts={})
    text = msgspec.json.encode(bare)
    # A character takes at most twelve bytes of JSON (a surrogate pair's escapes), so this ends soon.
    while len(text) > LONGEST_MESSAGE:
        excess = len(text) - LONGEST_MESSAGE
        bare = msgspec.structs.replace(bare, message=bare.message[: -max(1, excess // 12) - 1] + "…")
        text = msgspec.json.encode(bare)
    return text


def leave_message(result: OrderResult, path: Path) -> None:
    """Write the termination message where the kubelet looks for it; where no kubelet mounted such a file, nowhere."""
    leave_text(termination_message(result), path)


def leave_text(text: bytes, path: Path) -> None:
    """The same of what is a message already."""
    if path.exists():
        path.write_bytes(text)
