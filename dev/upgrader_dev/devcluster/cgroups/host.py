"""The mounted cgroups of the machine: their state, their preparation for boxes, and the cgroups of a box."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from upgrader_dev.devcluster.cgroups import choice
from upgrader_dev.devcluster.cgroups.choice import Choice, RootState, Version
from upgrader_dev.devcluster.cgroups.version1 import SeparateCgroups
from upgrader_dev.devcluster.cgroups.version2 import UnifiedCgroups, enable_controllers

ROOT = Path("/sys/fs/cgroup")


class Cgroups(Protocol):
    """The cgroups of one box, in either version."""

    def create(self) -> None:
        """Create the cgroups, before the first process is started."""
        ...

    def enter_command(self, unshare: Sequence[str], first: Sequence[str]) -> list[str]:
        """The command that starts `first` in them, in a cgroup namespace and in the namespaces of `unshare`."""
        ...

    def freeze(self) -> None:
        """Freeze every process, and return when all are frozen."""
        ...

    def thaw(self) -> None:
        """Thaw the processes."""
        ...

    def kill_all(self) -> None:
        """Prepare the end of all processes."""
        ...

    def remove(self) -> None:
        """Remove the cgroups after all processes have ended; DevClusterError otherwise."""
        ...


def read_host(root: Path = ROOT) -> RootState:
    """The state of the cgroups at `root`."""
    unified = (root / "cgroup.controllers").exists()
    return RootState(
        separate=(root / "memory").is_dir(),
        controllers=_read_words(root / "cgroup.controllers") if unified else None,
        delegated=_read_words(root / "cgroup.subtree_control") if unified else (),
        topmost=not (root / "cgroup.type").exists(),
        occupied=unified and bool(_read_words(root / "cgroup.procs")),
        writable=not os.statvfs(root).f_flag & os.ST_RDONLY,
    )


def mounted_version(root: Path = ROOT) -> Version:
    """The version that is mounted at `root`; DevClusterError if there is none."""
    return choice.choose_version(read_host(root))


def require_support(root: Path = ROOT) -> Choice:
    """The cgroups for boxes; DevClusterError, with the reason, if boxes cannot have cgroups here."""
    return choice.choose_support(read_host(root))


def delegate_controllers(root: Path = ROOT) -> None:
    """Enable the controllers that a kubelet requires for the children of `root`; not necessary in version 1."""
    chosen = require_support(root)
    if chosen.enable:
        enable_controllers(root, chosen.enable)


def box_cgroups(name: str, root: Path = ROOT) -> Cgroups:
    """The cgroups of the box of this name, whether they exist or not."""
    return UnifiedCgroups(root, name) if mounted_version(root) == 2 else SeparateCgroups(root, name)


def _read_words(file: Path) -> tuple[str, ...]:
    return tuple(file.read_text().split())
