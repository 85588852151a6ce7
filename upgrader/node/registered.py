"""Which kubelet a device plugin is registered with, for the readiness probe: a process that should cost little.

Without gRPC it starts three times faster, and every node asks it every few seconds.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

KUBELET_SOCKET = "kubelet.sock"


class Identity(Struct, frozen=True, kw_only=True):
    """Which kubelet.sock: inode numbers alone are used again."""

    inode: int
    changed_ns: int


def identity(folder: Path) -> Identity | None:
    """The kubelet.sock that is there now; None where none is."""
    try:
        facts = (folder / KUBELET_SOCKET).stat()
    except FileNotFoundError:
        return None
    return Identity(inode=facts.st_ino, changed_ns=facts.st_ctime_ns)


def note(kubelet: Identity, state: Path) -> None:
    """Write down that this kubelet has been sent our devices."""
    state.write_bytes(msgspec.json.encode(kubelet))


def is_registered(folder: Path, state: Path) -> bool:
    """Whether the kubelet that runs now has been sent our devices."""
    if not state.exists():
        return False
    return msgspec.json.decode(state.read_bytes(), type=Identity) == identity(folder)
