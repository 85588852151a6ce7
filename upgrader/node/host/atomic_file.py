"""Files that are complete after a power failure: written to a temporary file, synced, renamed, and the folder synced.

Without it, a node that loses power seconds after a pull keeps files of length zero ("exec format error").
"""

import hashlib
import os
import shutil
from pathlib import Path

EXECUTABLE_MODE = 0o755
FILE_MODE = 0o644


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


def sync_to_disk(path: Path) -> None:
    """Sync the contents of a file or the entries of a folder to disk; before, a power failure may lose them."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(target: Path, contents: bytes) -> None:
    """Write a file atomically; its folder is created if it does not exist."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_path(target)
    temporary.write_bytes(contents)
    _rename_over(temporary, target, FILE_MODE)


def copy_executable(source: Path, target: Path) -> None:
    """Copy an executable atomically. Processes that run the old file keep it, since a rename creates a new inode."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_path(target)
    shutil.copyfile(source, temporary)
    _rename_over(temporary, target, EXECUTABLE_MODE)


def _temporary_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.upgrader-new")  # a fixed name: the file of a killed run is overwritten


def _rename_over(temporary: Path, target: Path, mode: int) -> None:
    temporary.chmod(mode)
    sync_to_disk(temporary)
    temporary.replace(target)
    sync_to_disk(target.parent)
