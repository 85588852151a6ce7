"""The kubelet among the processes of the node, found by the path of its executable."""

import os
import signal
from pathlib import Path

from msgspec import Struct

from upgrader.node.host.host import Host

_DELETED = " (deleted)"


class RunningKubelet(Struct, frozen=True, kw_only=True):
    """A running kubelet.

    `sha256` is that of its executable, also if the file was replaced; `started` is in seconds since the epoch;
    `arguments` do not contain the program.
    """

    pid: int
    started: float
    sha256: str
    arguments: tuple[str, ...]

    def option(self, name: str, default: str = "") -> str:
        """The value of `--name value` or `--name=value`; the last one wins, as in the kubelet."""
        value = default
        for position, argument in enumerate(self.arguments):
            if argument.startswith(f"--{name}="):
                value = argument.partition("=")[2]
            elif argument == f"--{name}" and position + 1 < len(self.arguments):
                value = self.arguments[position + 1]
        return value


class KubeletProcesses:
    """Processes of the node with one executable and a kubeconfig: one kubelet, or two during a restart.

    Without the path of the executable, every executable with the name `kubelet` counts.
    """

    def __init__(self, host: Host, binary: str) -> None:
        self._host = host
        self._binary = binary

    def running(self) -> tuple[RunningKubelet, ...]:
        """The running kubelets, the oldest first."""
        paths = {self._binary, self._host.on_node(self._host.path(self._binary))} if self._binary else set[str]()
        candidates = (
            self._read_kubelet(Path(entry.path), paths) for entry in os.scandir(self._host.proc) if entry.name.isdigit()
        )
        kubelets = [kubelet for kubelet in candidates if kubelet is not None]
        pids = {kubelet.pid for kubelet, _ in kubelets}
        # A forked child of the kubelet has the same executable until it executes its program.
        return tuple(
            sorted((kubelet for kubelet, parent in kubelets if parent not in pids), key=lambda kubelet: kubelet.started)
        )

    def signal(self, kubelet: RunningKubelet, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has ended."""
        try:
            os.kill(kubelet.pid, number)
        except ProcessLookupError:
            return

    def _read_kubelet(self, process: Path, paths: set[str]) -> tuple[RunningKubelet, int] | None:
        """A kubelet and the PID of its parent; None for another process."""
        try:
            executable = str((process / "exe").readlink()).removesuffix(_DELETED)
            if executable not in paths and (paths or Path(executable).name != "kubelet"):
                return None
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")[1:]
            # Fields of stat after the name, which may contain spaces and parentheses (proc(5)).
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            kubelet = RunningKubelet(
                pid=int(process.name),
                started=self._boot_time() + int(fields[19]) / os.sysconf("SC_CLK_TCK"),
                sha256=self._host.digests.hex_digest(
                    process / "exe"
                ),  # the executable itself, also if the file was replaced
                arguments=tuple(arguments),
            )
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return None  # a kernel thread, a process that ended in the meantime, or one of another security domain
        return (kubelet, int(fields[1])) if kubelet.option("kubeconfig") else None

    def _boot_time(self) -> int:
        lines = (self._host.proc / "stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("btime "))
