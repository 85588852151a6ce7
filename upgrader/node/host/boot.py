"""Whether the file by which an operand shows that it is done is of this boot.

The boot ID cannot be used: the API server has that of the kubelet (`--boot-id-file`), and a waiting container has no
access to the kubelet.
"""

import os
import socket
import stat
from pathlib import Path

PROC = Path("/proc")
CONNECT_SECONDS = 2.0


def is_of_this_boot(file: Path, proc: Path = PROC) -> bool:
    """Whether a file is of this boot.

    A socket is if it accepts connections; another file is if it is on tmpfs, which a reboot empties, or was written
    after the boot.
    """
    try:
        facts = file.stat()
    except FileNotFoundError:
        return False
    if stat.S_ISSOCK(facts.st_mode):
        return _accepts_connections(file)
    return _is_on_tmpfs(facts.st_dev, proc) or facts.st_mtime >= _boot_time(proc)


def _boot_time(proc: Path) -> int:
    """Start of this boot, in seconds since the epoch by the current clock."""
    lines = (proc / "stat").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))


def _accepts_connections(file: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(CONNECT_SECONDS)
        try:
            client.connect(str(file))
        except OSError:
            return False
    return True


def _is_on_tmpfs(device: int, proc: Path) -> bool:
    """Whether a device is a tmpfs, by the mounts of this container."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in (proc / "self/mountinfo").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if words[2] == number:
            return words[words.index("-") + 1] == "tmpfs"
    return False
