"""The cgroups of a box on version 1: one per controller, which its cgroup namespace takes as their roots."""

from collections.abc import Sequence
from pathlib import Path

from upgrader_dev.devcluster.cgroups import trees
from upgrader_dev.devcluster.cgroups.joining import join_words


class Separate:
    """Cgroups of one name in each hierarchy below `root`."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name

    def make(self) -> None:
        """Make them."""
        for folder in self._folders():
            folder.mkdir(exist_ok=True)
            if folder.parent.name == "cpuset":  # starts empty, and takes no process until it is filled
                for field in ("cpuset.cpus", "cpuset.mems"):
                    (folder / field).write_text((folder.parent / field).read_text())

    def entered(self, unshare: Sequence[str], first: Sequence[str]) -> list[str]:
        """Joined before `unshare -C`: its namespace takes them as its roots."""
        return [*join_words(self._folders()), *unshare, "-C", *first]

    def freeze(self) -> None:
        """Stop every process in them."""
        state = self._frozen / "freezer.state"

        def frozen() -> bool:
            state.write_text("FROZEN")  # once is not always enough: a process that was just starting may be missed
            return state.read_text().strip() == "FROZEN"

        trees.wait_frozen(self._frozen, frozen)

    def thaw(self) -> None:
        """End our freeze; containers that were frozen by others stay so."""
        (self._frozen / "freezer.state").write_text("THAWED")

    def strike(self) -> None:
        """End freezes below: a frozen process cannot even be killed. The box ends by its first process."""
        for state in self._frozen.rglob("freezer.state") if self._frozen.exists() else ():
            state.write_text("THAWED")

    def remove(self) -> None:
        """Remove them; DevClusterError while something runs in one."""
        for folder in self._folders():
            trees.remove_tree(folder)

    @property
    def _frozen(self) -> Path:
        return self._root / "freezer" / self._name

    def _folders(self) -> list[Path]:
        # a link to another (cpu → cpu,cpuacct) is no hierarchy of its own
        hierarchies = sorted(entry for entry in self._root.iterdir() if entry.is_dir() and not entry.is_symlink())
        return [hierarchy / self._name for hierarchy in hierarchies]
