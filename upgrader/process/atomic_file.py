"""Files that are complete after a power failure: written to a temporary file, synced, renamed, and the folder synced.

Without it, a node that loses power seconds after a pull keeps files of length zero ("exec format error").
"""

import os
import shutil
from pathlib import Path

EXECUTABLE_MODE = 0o755
FILE_MODE = 0o644


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
