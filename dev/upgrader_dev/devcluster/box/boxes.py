"""A box: network, mount, pid, uts and cgroup namespaces that belong to one `unshare` process and are pinned nowhere.

So killing that one process ends every process, mount, network namespace and link of the box, with no order to get
wrong; only its cgroups remain to be removed.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from upgrader.core.errors import DevClusterError
from upgrader.process import Finished, run
from upgrader.process.daemon import (
    child_pids,
    command_line,
    find_processes,
    is_alive,
    reap_child,
    send_signal,
    start_daemon,
)
from upgrader.process.waiting import wait_until_true
from upgrader_dev.devcluster import cgroups
from upgrader_dev.devcluster.base import network
from upgrader_dev.devcluster.base.addresses import Addresses

_START_SECONDS = 20.0
_END_SECONDS = 20.0
_NAMESPACES = ("-n", "-m", "-p", "-f", "-u", "--mount-proc", "--kill-child=SIGKILL")


class Box:
    """One box of a cluster. `folder` is its disk on the host; `token` marks its processes."""

    def __init__(self, folder: Path, token: str, addresses: Addresses, last: int) -> None:
        self.folder = folder
        self._mark = f"--mark={token}:{folder.name}"
        self._token = token
        self._addresses = addresses
        self._last = last
        self._dying: list[int] = []

    @property
    def cgroup(self) -> str:
        """The name of its cgroups on the host."""
        return f"{self._addresses.link}-{self.folder.name}"

    @property
    def _cgroups(self) -> cgroups.Cgroups:
        return cgroups.of_box(self.cgroup)

    def start(self, module: str, *words: str | Path) -> None:
        """Power on: `python -m MODULE --mark=… WORDS` becomes process 1 in new namespaces, with a cable plugged in.

        Raises:
            DevClusterError: it runs already, or its first process did not come up.
        """
        if self.holder() is not None:
            raise DevClusterError(f"{self.folder.name} is up already")
        if not self._addresses.namespaced:
            start_daemon([sys.executable, "-m", module, self._mark, *words], log=self.folder / "init.log")
            return
        own = self._cgroups
        own.make()
        (self.folder / "network").write_text(network.commands_inside(self._addresses, self._last))
        first = [sys.executable, "-m", module, self._mark, *(str(word) for word in words)]
        # by its path: where the shell is busybox, it has a lesser `unshare` of its own
        unshare = shutil.which("unshare") or "unshare"
        pid = start_daemon(own.entered([unshare, *_NAMESPACES], first), log=self.folder / "init.log")
        self._wait(lambda: self._unshared(pid), _START_SECONDS, "has no network namespace of its own")
        network.plug_cable(self._addresses, self._last, pid)

    def holder(self) -> int | None:
        """The pid of the process that all of the box belongs to, when the box is on: `unshare`, or process 1 itself."""
        for pid in find_processes(self._mark):
            if not self._addresses.namespaced:
                return pid
            if Path((command_line(pid) or ("",))[0]).name in {"unshare", "sh"}:
                return pid
        return None

    def first(self) -> int | None:
        """Process 1 of the box as the host sees it."""
        holder = self.holder()
        if not self._addresses.namespaced:
            return holder
        started = child_pids(holder) if holder is not None else []
        return started[0] if started else None

    def kill(self) -> None:
        """Power off: everything in it ends at once. The disk stays. Nothing happens when it is off."""
        self.strike()
        self.clear()

    def strike(self) -> None:
        """SIGKILL to all of it; several boxes are struck before the first is waited for."""
        holder = self.holder()
        if holder is None:
            return
        if self._addresses.namespaced:
            self._dying = [holder, *child_pids(holder)]
            self._cgroups.strike()
            send_signal(holder, signal.SIGKILL, self._mark)
        else:  # it has a session of its own, and what it started is in its process group
            self._dying = [holder]
            os.killpg(holder, signal.SIGKILL)

    def clear(self) -> None:
        """Wait for the end of what was struck, and remove what is outside the namespaces: cable and cgroups."""
        self._wait(self._ended, _END_SECONDS, "does not end")
        if self._addresses.namespaced:
            network.remove_cable(self._addresses, self._last)
            self._cgroups.remove()

    def freeze(self) -> None:
        """Stop all of it: no process of it gets a turn until `thaw`."""
        self._cgroups.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self._cgroups.thaw()

    def connected(self) -> bool:
        """Whether its cable is plugged in."""
        return bool(network.is_connected(self._addresses, self._last))

    def set_connected(self, *, up: bool) -> None:
        """Pull its cable or plug it in."""
        network.set_connected(self._addresses, self._last, up=up)

    def enter(self, words: Sequence[str | Path], timeout: float, *, check: bool = True) -> Finished:
        """Run a program in all its namespaces."""
        first = self.first()
        if first is None:
            raise DevClusterError(f"{self.folder.name} is off")
        if not self._addresses.namespaced:
            raise DevClusterError(f"{self.folder.name} has no namespaces to enter: it was started without root")
        entering = ["nsenter", f"--target={first}", "-n", "-m", "-p", "-u", "-C"]
        return run([*entering, *words], timeout=timeout, check=check)

    def process(self, name: str) -> int | None:
        """The host's pid of a program that process 1 of the box has started, by the name of its file."""
        first = self.first()
        for pid in child_pids(first) if first is not None else []:
            if Path((command_line(pid) or ("",))[0]).name == name:
                return pid
        return None

    def _unshared(self, pid: int) -> bool:
        if not is_alive(pid):
            reap_child(pid)
            said = (self.folder / "init.log").read_text(errors="replace")
            raise DevClusterError(f"{self.folder.name} could not be started", details=said.strip()[-2000:])
        return not Path(f"/proc/{pid}/ns/net").samefile("/proc/self/ns/net")

    def _ended(self) -> bool:
        for pid in self._dying:
            reap_child(pid)
        return not any(is_alive(pid) for pid in self._dying)

    def _wait(self, condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
        if not wait_until_true(condition, seconds=seconds, every=0.01):
            raise DevClusterError(f"{self.folder.name} {otherwise} after {seconds:g} s")
