"""Where things are kept: clusters under the state directory, binaries under the cache directory (XDG)."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Progress = Callable[[str], None]
"""Gets one line for people per step."""


def state_root() -> Path:
    """Holds one directory per cluster."""
    return _base("XDG_STATE_HOME", ".local/state") / "upgrader"


def cache_root() -> Path:
    """Holds what can be made again."""
    return _base("XDG_CACHE_HOME", ".cache") / "upgrader"


def _base(variable: str, usual: str) -> Path:
    # a relative path in these variables is to be ignored (XDG base directory specification)
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path.home() / usual


@contextmanager
def locked(path: Path, waiting: Callable[[], None] = lambda: None, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock file `path`, alone or with others that share it.

    `waiting` is called once when somebody else has it; what it raises is raised, and nobody waits.
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
    """The end of a log, under its name; empty when there is none."""
    if not log.exists():
        return ""
    return "\n".join([f"{log}:", *log.read_text(errors="replace").splitlines()[-count:]])


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part; not even after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.chmod(mode)
    beside.replace(path)
