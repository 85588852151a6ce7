"""The machine's cgroups, as they are mounted: looked at, made ready for boxes, and a box's own among them."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from upgrader_dev.devcluster.cgroups import choice
from upgrader_dev.devcluster.cgroups.choice import Choice, Seen, Version
from upgrader_dev.devcluster.cgroups.version1 import Separate
from upgrader_dev.devcluster.cgroups.version2 import Unified, enable_controllers

ROOT = Path("/sys/fs/cgroup")


class Cgroups(Protocol):
    """The cgroups of one box, of either version."""

    def make(self) -> None:
        """Before its first process is started."""
        ...

    def entered(self, unshare: Sequence[str], first: Sequence[str]) -> list[str]:
        """The words that start `first` in them, in a cgroup namespace and in what `unshare` makes."""
        ...

    def freeze(self) -> None:
        """Stop every process, and come back when all have stopped."""
        ...

    def thaw(self) -> None:
        """End the freeze."""
        ...

    def strike(self) -> None:
        """Nothing is to be in the way of the end of all processes."""
        ...

    def remove(self) -> None:
        """When all processes have ended; DevClusterError while one has not."""
        ...


def read_host(root: Path = ROOT) -> Seen:
    """What is mounted at `root`."""
    unified = (root / "cgroup.controllers").exists()
    return Seen(
        separate=(root / "memory").is_dir(),
        controllers=_read_words(root / "cgroup.controllers") if unified else None,
        given=_read_words(root / "cgroup.subtree_control") if unified else (),
        topmost=not (root / "cgroup.type").exists(),
        occupied=unified and bool(_read_words(root / "cgroup.procs")),
        writable=not os.statvfs(root).f_flag & os.ST_RDONLY,
    )


def mounted_version(root: Path = ROOT) -> Version:
    """Which version is mounted at `root`; DevClusterError when none is."""
    return choice.choose_version(read_host(root))


def require_support(root: Path = ROOT) -> Choice:
    """What boxes get here; DevClusterError, with the reason, where they cannot be had."""
    return choice.choose_support(read_host(root))


def delegate_controllers(root: Path = ROOT) -> None:
    """Let the cgroups below `root` have the controllers that a kubelet needs; version 1 has them everywhere."""
    chosen = require_support(root)
    if chosen.enable:
        enable_controllers(root, chosen.enable)


def of_box(name: str, root: Path = ROOT) -> Cgroups:
    """The cgroups of the box of this name, there or not."""
    return Unified(root, name) if mounted_version(root) == 2 else Separate(root, name)


def _read_words(file: Path) -> tuple[str, ...]:
    return tuple(file.read_text().split())
