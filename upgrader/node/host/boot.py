"""Whether a file of the node, by which an operand shows that it is done, was left on this boot and by one that lives.

The boot's id does not help here: which one the API server shows is the kubelet's word (`--boot-id-file`), and whoever
only waits does not see the kubelet.
"""

import os
import socket
import stat
from pathlib import Path

PROC = Path("/proc")
CONNECT_SECONDS = 2.0


def counts(file: Path, proc: Path = PROC) -> bool:
    """Whether a file shows something of this boot.

    A socket does while somebody listens behind it; any other file does if a reboot would have taken it away (tmpfs), or
    if it was written since.
    """
    try:
        facts = file.stat()
    except FileNotFoundError:
        return False
    if stat.S_ISSOCK(facts.st_mode):
        return _answers(file)
    return _forgotten_by_a_reboot(facts.st_dev, proc) or facts.st_mtime >= _began(proc)


def _began(proc: Path) -> int:
    """When this boot began, in seconds since the epoch by the present clock."""
    lines = (proc / "stat").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))


def _answers(file: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(CONNECT_SECONDS)
        try:
            client.connect(str(file))
        except OSError:
            return False
    return True


def _forgotten_by_a_reboot(device: int, proc: Path) -> bool:
    """Whether a device is a tmpfs, by the mounts of this container."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in (proc / "self/mountinfo").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if words[2] == number:
            return words[words.index("-") + 1] == "tmpfs"
    return False
