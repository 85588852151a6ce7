"""State and cache directories (XDG), lock files, and atomic writes."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Progress = Callable[[str], None]
"""Receives a line of text for each step."""


def state_root() -> Path:
    """The state directory, with a folder for each development cluster."""
    return _base_directory("XDG_STATE_HOME", ".local/state") / "upgrader"


def cache_root() -> Path:
    """The cache directory, whose contents can be created again."""
    return _base_directory("XDG_CACHE_HOME", ".cache") / "upgrader"


def _base_directory(variable: str, usual: str) -> Path:
    # relative paths in these variables are ignored (XDG base directory specification)
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / usual


@contextmanager
def hold_lock(path: Path, waiting: Callable[[], None] = lambda: None, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock file `path`, exclusively or shared.

    `waiting` is called once if another process holds the lock; an exception of it ends the wait.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, kind)
        yield


def last_lines(log: Path, count: int = 8) -> str:
    """The path and the last lines of a log; empty if it does not exist."""
    if not log.exists():
        return ""
    return "\n".join([f"{log}:", *log.read_text(errors="replace").splitlines()[-count:]])


def write_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file atomically: readers see the old or the new contents, also after a power failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.chmod(mode)
    temporary.replace(path)
