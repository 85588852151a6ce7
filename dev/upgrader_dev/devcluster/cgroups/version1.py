"""The cgroups of a box in version 1: one per controller, which are the roots of its cgroup namespace."""

from collections.abc import Sequence
from pathlib import Path

from upgrader_dev.devcluster.cgroups import trees
from upgrader_dev.devcluster.cgroups.joining import join_words


class SeparateCgroups:
    """Cgroups of the same name in each hierarchy below `root`."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name

    def create(self) -> None:
        """Create them."""
        for folder in self._folders():
            folder.mkdir(exist_ok=True)
            if folder.parent.name == "cpuset":  # initially empty; accepts no process until it is filled
                for field in ("cpuset.cpus", "cpuset.mems"):
                    (folder / field).write_text((folder.parent / field).read_text())

    def enter_command(self, unshare: Sequence[str], first: Sequence[str]) -> list[str]:
        """They are joined before `unshare -C`, so that they become the roots of the namespace."""
        return [*join_words(self._folders()), *unshare, "-C", *first]

    def freeze(self) -> None:
        """Freeze every process in them."""
        state = self._frozen / "freezer.state"

        def is_frozen() -> bool:
            state.write_text("FROZEN")  # may have to be repeated: a process that was just starting can be missed
            return state.read_text().strip() == "FROZEN"

        trees.wait_frozen(self._frozen, is_frozen)

    def thaw(self) -> None:
        """Thaw them; frozen containers remain frozen."""
        (self._frozen / "freezer.state").write_text("THAWED")

    def kill_all(self) -> None:
        """Thaw everything: a frozen process cannot be killed. The box ends with its first process."""
        for state in self._frozen.rglob("freezer.state") if self._frozen.exists() else ():
            state.write_text("THAWED")

    def remove(self) -> None:
        """Remove them; DevClusterError if a process still runs in one."""
        for folder in self._folders():
            trees.remove_tree(folder)

    @property
    def _frozen(self) -> Path:
        return self._root / "freezer" / self._name

    def _folders(self) -> list[Path]:
        # a link to another hierarchy (cpu → cpu,cpuacct) is not a separate hierarchy
        hierarchies = sorted(entry for entry in self._root.iterdir() if entry.is_dir() and not entry.is_symlink())
        return [hierarchy / self._name for hierarchy in hierarchies]
