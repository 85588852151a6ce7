"""The node's file system and processes as a pod on it sees them."""

from pathlib import Path

from upgrader.core.node_protocol.node_places import HOST_ROOT, RUN_DIRECTORY, STATE_DIRECTORY
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.atomic_file import Digests
from upgrader.node.host.task_result import OrderFailedError

MOST_LINKS = 40
"""As the kernel: more symbolic links on one path are taken for a loop."""


class Host:
    """Paths of the node, below the mount of its root; `proc` shows the node's processes (hostPID)."""

    def __init__(self, root: Path = Path(HOST_ROOT), proc: Path = Path("/proc")) -> None:
        self.root = root
        self.proc = proc
        self.digests = Digests()

    @property
    def state(self) -> Path:
        """STATE_DIRECTORY of the node."""
        return self.path(STATE_DIRECTORY)

    @property
    def run(self) -> Path:
        """RUN_DIRECTORY of the node."""
        return self.path(RUN_DIRECTORY)

    def path(self, on_node: str) -> Path:
        """Where a path of the node is in this container.

        Symbolic links are followed as the node would: an absolute one starts at the node's root, not at ours (the
        kubelet's client certificate is such a link).

        Raises:
            OrderFailedError: the links go round in circles.
        """
        todo = [part for part in reversed(on_node.split("/")) if part not in {"", "."}]
        here, links = self.root, 0
        while todo:
            part = todo.pop()
            if part == "..":
                here = here.parent if here != self.root else here
                continue
            step = here / part
            if not step.is_symlink():
                here = step
                continue
            links += 1
            if links > MOST_LINKS:
                raise OrderFailedError(Reason.MISSING, f"{on_node} on the node is a loop of symbolic links")
            target = str(step.readlink())
            here = self.root if target.startswith("/") else here
            todo += [piece for piece in reversed(target.split("/")) if piece not in {"", "."}]
        return here

    def on_node(self, path: Path) -> str:
        """The node's name for a path of this container below the node's root."""
        return str(Path("/") / path.relative_to(self.root))

    def kernel(self) -> str:
        """The running kernel's release, as in `uname -r`."""
        return (self.root / "proc/sys/kernel/osrelease").read_text(encoding="utf-8").strip()

    def boot_id(self) -> str:
        """The id of this boot, another one after each."""
        return (self.root / "proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
