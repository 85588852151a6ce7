"""The cgroup of a box on version 2: one, which its cgroup namespace takes as its root.

No process may be in a cgroup that gives controllers to those below, and the root of a namespace is no exception. So the
box's own processes are in a cgroup below it, beside those that its kubelet makes for pods.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.cgroups import trees
from upgrader_dev.devcluster.cgroups.joining import join_words

LEAF = "init"
"""What the box's own processes are in, as containers with a cgroup namespace of their own have it."""


class Unified:
    """The cgroup of one name below `root`."""

    def __init__(self, root: Path, name: str) -> None:
        self._folder = root / name

    def make(self) -> None:
        """Make it anew: one that a box has left behind takes no process any more."""
        self.strike()
        self.remove()
        self._folder.mkdir()
        (self._folder / LEAF).mkdir()

    def entered(self, unshare: Sequence[str], first: Sequence[str]) -> list[str]:
        """Joined before `unshare -C`, which takes it as its root, and left for LEAF before anything else is started."""
        return [*join_words([self._folder]), unshare[0], "-C", *join_words([self._folder / LEAF]), *unshare, *first]

    def freeze(self) -> None:
        """Stop every process in it."""
        (self._folder / "cgroup.freeze").write_text("1")
        trees.wait_frozen(self._folder, lambda: "frozen 1" in (self._folder / "cgroup.events").read_text().splitlines())

    def thaw(self) -> None:
        """End our freeze; containers that were frozen by others stay so."""
        (self._folder / "cgroup.freeze").write_text("0")

    def strike(self) -> None:
        """SIGKILL to all in it at once, the frozen ones too.

        Linux before 5.14 has no such file, and there the box ends by its first process, as on version 1.
        """
        kill = self._folder / "cgroup.kill"
        if kill.exists():
            kill.write_text("1")

    def remove(self) -> None:
        """Remove it; DevClusterError while something runs in it."""
        trees.remove_tree(self._folder)


def enable_controllers(root: Path, controllers: Iterable[str]) -> None:
    """Let the cgroups below `root` have controllers; those that they have already stay.

    Raises:
        DevClusterError: the kernel refuses; its own words are in the error.
    """
    wanted = " ".join(f"+{one}" for one in controllers)
    try:
        (root / "cgroup.subtree_control").write_text(wanted)
    except OSError as error:
        raise DevClusterError(f"cgroups below {root} are not given {wanted}", details=str(error)) from error
