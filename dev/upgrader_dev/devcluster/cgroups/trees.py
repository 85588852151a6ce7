"""Removing and freezing cgroups."""

from collections.abc import Callable
from pathlib import Path

import tenacity

from upgrader.core.errors import DevClusterError
from upgrader.process.waiting import wait_until_true

_REMOVE_SECONDS = 15.0
_FREEZE_SECONDS = 20.0


def remove_tree(folder: Path, seconds: float = _REMOVE_SECONDS) -> None:
    """Remove a cgroup and its children; killed processes may need some time to end.

    Raises:
        DevClusterError: a process still runs in it.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(OSError),
        wait=tenacity.wait_fixed(0.05),
        stop=tenacity.stop_after_delay(seconds),
    )
    try:
        retrying(_remove_now, folder)
    except tenacity.RetryError as error:
        processes = "\n".join(
            sorted(f"{path.parent}: {path.read_text().split()}" for path in folder.rglob("cgroup.procs"))
        )
        raise DevClusterError(f"cgroup {folder} cannot be removed", details=f"Still in it:\n{processes}") from error


def wait_frozen(folder: Path, is_frozen: Callable[[], bool], seconds: float = _FREEZE_SECONDS) -> None:
    """Wait until the kernel has frozen every process of a cgroup.

    Raises:
        DevClusterError: a process cannot be frozen.
    """
    if not wait_until_true(is_frozen, seconds=seconds, every=0.02):
        raise DevClusterError(f"cgroup {folder} did not freeze within {seconds:g} s")


def _remove_now(folder: Path) -> None:
    if not folder.exists():
        return
    for child in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        child.rmdir()
    folder.rmdir()
