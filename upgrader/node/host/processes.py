"""The kubelet among the node's processes: found by the file it runs from, never by its name alone."""

import os
import signal
from pathlib import Path

from msgspec import Struct

from upgrader.node.host.host import Host

_DELETED = " (deleted)"


class Running(Struct, frozen=True, kw_only=True):
    """A kubelet that runs.

    `sha256` is of the file it was started from, even if that name holds another file now; `started` in seconds since
    the epoch; `arguments` without the program itself.
    """

    pid: int
    started: float
    sha256: str
    arguments: tuple[str, ...]

    def option(self, name: str, default: str = "") -> str:
        """The value of `--name value` or `--name=value`; the last one counts, as in the kubelet."""
        value = default
        for position, argument in enumerate(self.arguments):
            if argument.startswith(f"--{name}="):
                value = argument.partition("=")[2]
            elif argument == f"--{name}" and position + 1 < len(self.arguments):
                value = self.arguments[position + 1]
        return value


class Kubelets:
    """Processes of the node that run from one file and were given a kubeconfig: a kubelet, or two while one starts."""

    def __init__(self, host: Host, binary: str) -> None:
        self._host = host
        self._binary = binary

    def running(self) -> tuple[Running, ...]:
        """Those that run now, the longest-running first."""
        names = {self._binary, self._host.on_node(self._host.path(self._binary))}
        seen = (self._look(Path(entry.path), names) for entry in os.scandir(self._host.proc) if entry.name.isdigit())
        found = [one for one in seen if one is not None]
        pids = {kubelet.pid for kubelet, _ in found}
        # A program that the kubelet is about to start looks like the kubelet until it is loaded.
        return tuple(sorted((one for one, parent in found if parent not in pids), key=lambda one: one.started))

    def signal(self, kubelet: Running, number: signal.Signals) -> None:
        """Send a signal; a process that is gone already is fine."""
        try:
            os.kill(kubelet.pid, number)
        except ProcessLookupError:
            return

    def _look(self, process: Path, names: set[str]) -> tuple[Running, int] | None:
        """A kubelet and the pid of its parent."""
        try:
            if str((process / "exe").readlink()).removesuffix(_DELETED) not in names:
                return None
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")[1:]
            # Fields of stat, counted behind the name, which may hold blanks and brackets (proc(5)).
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            kubelet = Running(
                pid=int(process.name),
                started=self._booted() + int(fields[19]) / os.sysconf("SC_CLK_TCK"),
                sha256=self._host.digests.of(process / "exe"),  # of the very file, also where its name is gone
                arguments=tuple(arguments),
            )
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return None  # a kernel thread, one that ended while we looked, or one of another security domain
        return (kubelet, int(fields[1])) if kubelet.option("kubeconfig") else None

    def _booted(self) -> int:
        lines = (self._host.proc / "stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("btime "))
