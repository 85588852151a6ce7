"""Digests of executables on a node."""

import hashlib
import os
from pathlib import Path

from upgrader.process.atomic_file import copy_executable


class Digests:
    """SHA-256 of files, each read once: the 80 MB of a kubelet are the fetched, the installed and the running file.

    A file is identified by device, inode, size and modification time, independent of its name.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], str] = {}

    def hex_digest(self, path: Path) -> str:
        """Hex digest of the contents of a file."""
        with path.open("rb") as file:
            key = _file_key(os.fstat(file.fileno()))
            if key not in self._known:
                self._known[key] = hashlib.file_digest(file, "sha256").hexdigest()
            return self._known[key]

    def copy_executable(self, source: Path, target: Path) -> None:
        """Copy an executable and store its digest for the copy; reading it back would only read the page cache."""
        digest = self.hex_digest(source)
        copy_executable(source, target)
        self._known[_file_key(target.stat())] = digest


def _file_key(facts: os.stat_result) -> tuple[int, int, int, int]:
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
