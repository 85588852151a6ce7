"""The file system and processes of the node, from a pod."""

from pathlib import Path

from upgrader.core.node_protocol.node_places import HOST_ROOT, RUN_DIRECTORY, STATE_DIRECTORY
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.digests import Digests
from upgrader.node.host.task_result import OrderFailedError

MAX_LINKS = 40
"""Limit of symbolic links in a path, as in the kernel; more are a loop."""


class Host:
    """Paths of the node, below the mount of its root; `proc` has the processes of the node (hostPID)."""

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
        """The path in this container of a path of the node.

        Symbolic links are resolved as on the node: an absolute link starts at the root of the node, not at that of the
        container (the client certificate of the kubelet is such a link).

        Raises:
            OrderFailedError: the links are a loop.
        """
        remaining = [part for part in reversed(on_node.split("/")) if part not in {"", "."}]
        current, links = self.root, 0
        while remaining:
            part = remaining.pop()
            if part == "..":
                current = current.parent if current != self.root else current
                continue
            step = current / part
            if not step.is_symlink():
                current = step
                continue
            links += 1
            if links > MAX_LINKS:
                raise OrderFailedError(Reason.MISSING, f"{on_node} on the node is a loop of symbolic links")
            target = str(step.readlink())
            current = self.root if target.startswith("/") else current
            remaining += [piece for piece in reversed(target.split("/")) if piece not in {"", "."}]
        return current

    def on_node(self, path: Path) -> str:
        """The path on the node of a path in this container; the inverse of `path`."""
        return str(Path("/") / path.relative_to(self.root))

    def kernel(self) -> str:
        """The release of the running kernel, as in `uname -r`."""
        return (self.root / "proc/sys/kernel/osrelease").read_text(encoding="utf-8").strip()

    def boot_id(self) -> str:
        """The ID of this boot by the kernel."""
        return (self.root / "proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
