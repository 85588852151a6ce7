"""A box: network, mount, pid, uts and cgroup namespaces that belong to one `unshare` process and are not pinned.

Killing that process ends every process, mount, network namespace and link of the box; only its cgroups remain to be
removed.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from upgrader.core.errors import DevClusterError
from upgrader.process import FinishedProgram, run
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
    """A box of a cluster. `folder` is its disk on the host; `token` marks its processes."""

    def __init__(self, folder: Path, token: str, addresses: Addresses, last_octet: int) -> None:
        self.folder = folder
        self._mark = f"--mark={token}:{folder.name}"
        self._token = token
        self._addresses = addresses
        self._last_octet = last_octet
        self._dying: list[int] = []

    @property
    def cgroup(self) -> str:
        """The name of its cgroups on the host."""
        return f"{self._addresses.link}-{self.folder.name}"

    @property
    def _cgroups(self) -> cgroups.Cgroups:
        return cgroups.box_cgroups(self.cgroup)

    def start(self, module: str, *words: str | Path) -> None:
        """Power on: `python -m MODULE --mark=… WORDS` becomes process 1 in new namespaces, with a cable plugged in.

        Raises:
            DevClusterError: it runs already, or its first process did not start.
        """
        if self.find_holder() is not None:
            raise DevClusterError(f"{self.folder.name} is already running")
        if not self._addresses.namespaced:
            start_daemon([sys.executable, "-m", module, self._mark, *words], log=self.folder / "init.log")
            return
        box_cgroups = self._cgroups
        box_cgroups.create()
        (self.folder / "network").write_text(network.interface_commands(self._addresses, self._last_octet))
        first_process = [sys.executable, "-m", module, self._mark, *(str(word) for word in words)]
        # by its path: a busybox shell has its own, smaller `unshare`
        unshare = shutil.which("unshare") or "unshare"
        pid = start_daemon(
            box_cgroups.enter_command([unshare, *_NAMESPACES], first_process), log=self.folder / "init.log"
        )
        self._wait_for(lambda: self._is_unshared(pid), _START_SECONDS, "has no separate network namespace")
        network.plug_cable(self._addresses, self._last_octet, pid)

    def find_holder(self) -> int | None:
        """The pid of the process that the whole box belongs to, if the box is on: `unshare`, or process 1 itself."""
        for pid in find_processes(self._mark):
            if not self._addresses.namespaced:
                return pid
            if Path((command_line(pid) or ("",))[0]).name in {"unshare", "sh"}:
                return pid
        return None

    def first_process(self) -> int | None:
        """The host's pid of process 1 of the box."""
        find_holder = self.find_holder()
        if not self._addresses.namespaced:
            return find_holder
        started = child_pids(find_holder) if find_holder is not None else []
        return started[0] if started else None

    def kill(self) -> None:
        """Power off: all processes end immediately. The disk remains. Nothing happens if the box is off."""
        self.send_kill()
        self.remove_leftovers()

    def send_kill(self) -> None:
        """Send SIGKILL to all processes, without waiting; several boxes are killed before the first is awaited."""
        find_holder = self.find_holder()
        if find_holder is None:
            return
        if self._addresses.namespaced:
            self._dying = [find_holder, *child_pids(find_holder)]
            self._cgroups.kill_all()
            send_signal(find_holder, signal.SIGKILL, self._mark)
        else:  # it has its own session, and its children are in its process group
            self._dying = [find_holder]
            os.killpg(find_holder, signal.SIGKILL)

    def remove_leftovers(self) -> None:
        """Wait for the end of the killed processes, and remove what is outside the namespaces: cable and cgroups."""
        self._wait_for(self._has_ended, _END_SECONDS, "does not end")
        if self._addresses.namespaced:
            network.remove_cable(self._addresses, self._last_octet)
            self._cgroups.remove()

    def freeze(self) -> None:
        """Freeze all processes until `thaw`."""
        self._cgroups.freeze()

    def thaw(self) -> None:
        """Continue all processes."""
        self._cgroups.thaw()

    def is_connected(self) -> bool:
        """Whether its cable is plugged in."""
        return bool(network.is_connected(self._addresses, self._last_octet))

    def set_connected(self, *, up: bool) -> None:
        """Unplug or plug in its cable."""
        network.set_connected(self._addresses, self._last_octet, up=up)

    def enter(self, words: Sequence[str | Path], timeout: float, *, check: bool = True) -> FinishedProgram:
        """Run a program in all its namespaces."""
        first_process = self.first_process()
        if first_process is None:
            raise DevClusterError(f"{self.folder.name} is off")
        if not self._addresses.namespaced:
            raise DevClusterError(f"{self.folder.name} has no namespaces to enter: it was started without root")
        entering = ["nsenter", f"--target={first_process}", "-n", "-m", "-p", "-u", "-C"]
        return run([*entering, *words], timeout=timeout, check=check)

    def find_process(self, name: str) -> int | None:
        """The host's pid of a program that process 1 of the box started, by its file name."""
        first_process = self.first_process()
        for pid in child_pids(first_process) if first_process is not None else []:
            if Path((command_line(pid) or ("",))[0]).name == name:
                return pid
        return None

    def _is_unshared(self, pid: int) -> bool:
        if not is_alive(pid):
            reap_child(pid)
            log = (self.folder / "init.log").read_text(errors="replace")
            raise DevClusterError(f"{self.folder.name} could not be started", details=log.strip()[-2000:])
        return not Path(f"/proc/{pid}/ns/net").samefile("/proc/self/ns/net")

    def _has_ended(self) -> bool:
        for pid in self._dying:
            reap_child(pid)
        return not any(is_alive(pid) for pid in self._dying)

    def _wait_for(self, condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
        if not wait_until_true(condition, seconds=seconds, every=0.01):
            raise DevClusterError(f"{self.folder.name} {otherwise} after {seconds:g} s")
