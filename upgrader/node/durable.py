"""Files that are whole after a power cut: written beside, synced, renamed over, and the folder synced too.

Seen without it: a node that lost power seconds after a pull keeps zero-length files ("exec format error", for ever).
"""

import hashlib
import os
import shutil
from pathlib import Path

EXECUTABLE = 0o755
PLAIN = 0o644


def sha256(path: Path) -> str:
    """Hex digest of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
