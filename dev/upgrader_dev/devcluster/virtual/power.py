"""A virtual machine of a cluster: started, found again by its command line, ended; with its tap and its disk."""

import signal
from collections.abc import Mapping
from pathlib import Path

from upgrader.core.errors import DevClusterError
from upgrader.images.boot import machine, tsc
from upgrader.process import run
from upgrader.process.daemon import find_processes, is_alive, reap_child, send_signal, start_daemon
from upgrader.process.places import last_lines, write_atomically
from upgrader.process.waiting import wait_until_true
from upgrader_dev.devcluster.base import network
from upgrader_dev.devcluster.base.addresses import Addresses, mac_address
from upgrader_dev.devcluster.base.record import Record, VmRecord
from upgrader_dev.devcluster.virtual import qemu
from upgrader_dev.devcluster.virtual.image import Image
from upgrader_dev.devcluster.virtual.json_lines import SilentError
from upgrader_dev.devcluster.virtual.monitor import Monitor
from upgrader_dev.devcluster.virtual.preloaded import Preloaded

SHARED = "shared"
"""The folder of the cluster that all its nodes see as /var/lib/shared."""
_START_SECONDS = 20.0
_QUIT_SECONDS = 20.0
_SECONDS = 60.0


class Power:
    """What of a virtual node is on this machine: QEMU, a tap on the cluster's bridge, a folder."""

    def __init__(self, cluster: Path, found: Record, vm: VmRecord) -> None:
        self.folder = cluster / vm.name
        self._addresses: Addresses = found.addresses
        self._last = found.addresses.last(vm.index)
        images = Preloaded(folder=Path(vm.container_images)) if vm.container_images else None
        self._image = Image(folder=Path(vm.image), kernels=vm.kernels, preloaded=images)
        self._shared = cluster / SHARED
        self._vm = vm
        self._mark = f"{found.token}:{vm.name}"
        self._dying: list[int] = []

    @property
    def machine(self) -> qemu.Machine:
        """What it is made of."""
        return qemu.Machine(
            mark=self._mark,
            accelerator=machine.choose_accelerator(self._image.kernel),
            folder=self.folder,
            disk=self.folder / "disk.qcow2",
            seed=self.folder / "seed.tar",
            images=self.folder / "images.qcow2" if self._image.preloaded else None,
            shared=self._shared,
            tap=self._addresses.cable(self._last),
            mac=mac_address(self._addresses.node(self._vm.index)),
            memory_mib=self._vm.memory_mib,
        )

    @property
    def monitor(self) -> Path:
        """QMP's socket."""
        return self.folder / "qmp.sock"

    def process(self) -> int | None:
        """QEMU's pid, when it is on."""
        return next(iter(find_processes(self._mark)), None)

    def start(self, files: Mapping[str, bytes]) -> None:
        """Power on, with these files on the second disk.

        Raises:
            DevClusterError: it is on already, or QEMU does not start.
        """
        if self.process() is not None:
            raise DevClusterError(f"{self.folder.name} is on already")
        made = self.machine
        self._shared.mkdir(exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        told = qemu.kernel_facts(tsc.kernel_argument()) if made.accelerator == machine.EMULATED else {}
        write_atomically(made.seed, qemu.seed_disk({**files, **told}), mode=0o600)
        self._check_images()
        _lay_over(self._image.disk, made.disk)
        if self._image.preloaded is not None and made.images is not None:
            _lay_over(self._image.preloaded.disk, made.images)
        self._image.used()
        network.plug_tap(self._addresses, self._last)
        for left in (made.monitor, made.agent):
            left.unlink(missing_ok=True)
        log = self.folder / "qemu.log"
        pid = start_daemon(qemu.machine_command(made), log=log)
        if not wait_until_true(
            lambda: made.monitor.exists() or not is_alive(pid), seconds=_START_SECONDS, every=0.02
        ) or (not is_alive(pid)):
            reap_child(pid)
            raise DevClusterError(f"QEMU of {self.folder.name} does not start", details=last_lines(log))

    def _check_images(self) -> None:
        there = self._image.preloaded
        if there is not None and not there.disk.is_file():
            raise DevClusterError(
                f"{there.disk}, over which the disk of {self.folder.name} lies, is gone",
                resolution="Take the cluster down and up again: it is made anew.",
            )

    def kill(self) -> None:
        """Pull the plug: what it has not synced is lost. Nothing happens when it is off."""
        self.strike()
        self.clear()

    def strike(self) -> None:
        """QEMU ends now. It writes out its own tables of the disk meanwhile, which SIGKILL would damage."""
        pid = self.process()
        if pid is None:
            return
        self._dying = [pid]
        try:
            with Monitor(self.monitor) as monitor:
                monitor.ask("quit")
        except SilentError:  # it hangs, or has ended meanwhile
            send_signal(pid, signal.SIGKILL, self._mark)

    def clear(self) -> None:
        """Wait for the end of what was struck, and remove its tap.

        Raises:
            DevClusterError: it does not end.
        """
        if not wait_until_true(self._ended, seconds=_QUIT_SECONDS, every=0.02):
            for pid in self._dying:
                send_signal(pid, signal.SIGKILL, self._mark)
            if not wait_until_true(self._ended, seconds=_QUIT_SECONDS, every=0.02):
                raise DevClusterError(f"QEMU of {self.folder.name} does not end")
        network.remove_cable(self._addresses, self._last)

    def connected(self) -> bool:
        """Whether it is on the network."""
        return bool(network.is_connected(self._addresses, self._last))

    def set_connected(self, *, up: bool) -> None:
        """Pull its cable or plug it in."""
        network.set_connected(self._addresses, self._last, up=up)

    def _ended(self) -> bool:
        if any(is_alive(pid) for pid in self._dying):
            return False
        for pid in self._dying:
            reap_child(pid)
        return True


def _lay_over(base: Path, disk: Path) -> None:
    """A disk of the machine's own over one that others use, too; once."""
    if disk.exists():
        return
    beside = disk.with_name(f".{disk.name}.new")
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, beside], timeout=_SECONDS)
    beside.rename(disk)
