"""The cgroup of a box in version 2, which is the root of its cgroup namespace.

A cgroup that delegates controllers to children cannot contain processes, and the root of a namespace is no exception.
So the processes of the box are in a child, next to those that its kubelet creates for pods.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.cgroups import trees
from upgrader_dev.devcluster.cgroups.joining import join_words

LEAF = "init"
"""The child with the processes of the box; containers with a cgroup namespace use this name too."""


class UnifiedCgroups:
    """The cgroup of one name below `root`."""

    def __init__(self, root: Path, name: str) -> None:
        self._folder = root / name

    def create(self) -> None:
        """Create it again: one that a previous box left behind accepts no processes."""
        self.kill_all()
        self.remove()
        self._folder.mkdir()
        (self._folder / LEAF).mkdir()

    def enter_command(self, unshare: Sequence[str], first: Sequence[str]) -> list[str]:
        """It is joined before `unshare -C`, which makes it the root, and left for LEAF before other programs start."""
        return [*join_words([self._folder]), unshare[0], "-C", *join_words([self._folder / LEAF]), *unshare, *first]

    def freeze(self) -> None:
        """Freeze every process in it."""
        (self._folder / "cgroup.freeze").write_text("1")
        trees.wait_frozen(self._folder, lambda: "frozen 1" in (self._folder / "cgroup.events").read_text().splitlines())

    def thaw(self) -> None:
        """Thaw it; frozen containers remain frozen."""
        (self._folder / "cgroup.freeze").write_text("0")

    def kill_all(self) -> None:
        """Send SIGKILL to all processes at the same time, including frozen ones.

        Linux before 5.14 does not have this file; there the box ends with its first process, as in version 1.
        """
        kill = self._folder / "cgroup.kill"
        if kill.exists():
            kill.write_text("1")

    def remove(self) -> None:
        """Remove it; DevClusterError if a process still runs in it."""
        trees.remove_tree(self._folder)


def enable_controllers(root: Path, controllers: Iterable[str]) -> None:
    """Enable controllers for the children of `root`; enabled controllers stay enabled.

    Raises:
        DevClusterError: the kernel refuses; with its message.
    """
    requested = " ".join(f"+{controller}" for controller in controllers)
    try:
        (root / "cgroup.subtree_control").write_text(requested)
    except OSError as error:
        raise DevClusterError(f"{requested} cannot be enabled for cgroups below {root}", details=str(error)) from error
