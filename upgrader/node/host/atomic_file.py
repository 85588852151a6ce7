"""Files that are whole after a power cut: written beside, synced, renamed over, and the folder synced too.

Seen without it: a node that lost power seconds after a pull keeps zero-length files ("exec format error", for ever).
"""

import hashlib
import os
import shutil
from pathlib import Path

EXECUTABLE = 0o755
PLAIN = 0o644


class Digests:
    """SHA-256 of files, each read once: an upgrade meets a kubelet's 80 MB as fetched, as installed and as what runs.

    A file is known by its inode, size and time of change, so that another name, or none, makes no difference.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int], str] = {}

    def of(self, path: Path) -> str:
        """Hex digest of a file's contents."""
        with path.open("rb") as file:
            key = _key(os.fstat(file.fileno()))
            if key not in self._known:
                self._known[key] = hashlib.file_digest(file, "sha256").hexdigest()
            return self._known[key]

    def copied(self, source: Path, target: Path) -> None:
        """`copy`; the copy's digest is known, because reading it back would read what was written from memory."""
        known = self.of(source)
        copy(source, target)
        self._known[_key(target.stat())] = known


def _key(facts: os.stat_result) -> tuple[int, int, int, int]:
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)


def sync(path: Path) -> None:
    """Until this returns, a power cut may take the file's contents or the folder's entries with it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put(target: Path, contents: bytes) -> None:
    """Contents into place, all or nothing; the folder is made where there is none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = _beside(target)
    beside.write_bytes(contents)
    _into_place(beside, target, PLAIN)


def copy(source: Path, target: Path) -> None:
    """An executable into place, all or nothing. What runs from the old file keeps it: a rename gives a new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = _beside(target)
    shutil.copyfile(source, beside)
    _into_place(beside, target, EXECUTABLE)


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.upgrader-new")  # one name: what a killed run left is written over


def _into_place(beside: Path, target: Path, mode: int) -> None:
    beside.chmod(mode)
    sync(beside)
    beside.replace(target)
    sync(target.parent)
