"""Removing cgroups, and waiting for what they report."""

from collections.abc import Callable
from pathlib import Path

import tenacity

from upgrader.core.errors import DevClusterError
from upgrader.process.waiting import wait_until_true

_REMOVE_SECONDS = 15.0
_FREEZE_SECONDS = 20.0


def remove_tree(folder: Path, seconds: float = _REMOVE_SECONDS) -> None:
    """Remove a cgroup, with those below; its processes have been killed and may take a moment to be gone.

    Raises:
        DevClusterError: something still runs in one of them.
    """
    trying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(OSError),
        wait=tenacity.wait_fixed(0.05),
        stop=tenacity.stop_after_delay(seconds),
    )
    try:
        trying(_remove_now, folder)
    except tenacity.RetryError as error:
        left = "\n".join(sorted(f"{path.parent}: {path.read_text().split()}" for path in folder.rglob("cgroup.procs")))
        raise DevClusterError(f"cgroup {folder} cannot be removed", details=f"Still in it:\n{left}") from error


def wait_frozen(folder: Path, frozen: Callable[[], bool], seconds: float = _FREEZE_SECONDS) -> None:
    """Until the kernel has stopped every process below.

    Raises:
        DevClusterError: one cannot be stopped.
    """
    if not wait_until_true(frozen, seconds=seconds, every=0.02):
        raise DevClusterError(f"cgroup {folder} does not freeze within {seconds:g} s")


def _remove_now(folder: Path) -> None:
    if not folder.exists():
        return
    for below in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        below.rmdir()
    folder.rmdir()
