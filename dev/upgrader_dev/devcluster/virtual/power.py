"""The virtual machine of a node: started, found by its command line, ended; with its tap and its disks."""

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
from upgrader_dev.devcluster.base.record import ClusterRecord, VmRecord
from upgrader_dev.devcluster.virtual import qemu
from upgrader_dev.devcluster.virtual.image import Image
from upgrader_dev.devcluster.virtual.json_lines import SilentError
from upgrader_dev.devcluster.virtual.monitor import Monitor
from upgrader_dev.devcluster.virtual.preloaded import PreloadedDisk

SHARED = "shared"
"""The folder of the cluster that all its nodes have as /var/lib/shared."""
_START_SECONDS = 20.0
_QUIT_SECONDS = 20.0
_SECONDS = 60.0


class Power:
    """The parts of a virtual node on this machine: QEMU, a tap on the cluster's bridge, a folder."""

    def __init__(self, cluster: Path, cluster_record: ClusterRecord, vm: VmRecord) -> None:
        self.folder = cluster / vm.name
        self._addresses: Addresses = cluster_record.addresses
        self._last_octet = cluster_record.addresses.last_octet(vm.index)
        images = PreloadedDisk(folder=Path(vm.container_images)) if vm.container_images else None
        self._image = Image(folder=Path(vm.image), kernels=vm.kernels, preloaded=images)
        self._shared = cluster / SHARED
        self._vm = vm
        self._mark = f"{cluster_record.token}:{vm.name}"
        self._dying: list[int] = []

    @property
    def machine(self) -> qemu.Machine:
        """The configuration of the machine."""
        return qemu.Machine(
            mark=self._mark,
            accelerator=machine.choose_accelerator(self._image.kernel),
            folder=self.folder,
            disk=self.folder / "disk.qcow2",
            seed=self.folder / "seed.tar",
            images=self.folder / "images.qcow2" if self._image.preloaded else None,
            shared=self._shared,
            tap=self._addresses.cable_name(self._last_octet),
            mac=mac_address(self._addresses.node_address(self._vm.index)),
            memory_mib=self._vm.memory_mib,
        )

    @property
    def monitor(self) -> Path:
        """The QMP socket."""
        return self.folder / "qmp.sock"

    def find_process(self) -> int | None:
        """The pid of QEMU, if it is on."""
        return next(iter(find_processes(self._mark)), None)

    def start(self, files: Mapping[str, bytes]) -> None:
        """Power on, with these files on the second disk.

        Raises:
            DevClusterError: it is on already, or QEMU does not start.
        """
        if self.find_process() is not None:
            raise DevClusterError(f"{self.folder.name} is on already")
        configuration = self.machine
        self._shared.mkdir(exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = qemu.kernel_facts(tsc.kernel_argument()) if configuration.accelerator == machine.EMULATED else {}
        write_atomically(configuration.seed, qemu.seed_disk({**files, **facts}), mode=0o600)
        self._check_images()
        _create_overlay(self._image.disk, configuration.disk)
        if self._image.preloaded is not None and configuration.images is not None:
            _create_overlay(self._image.preloaded.disk, configuration.images)
        self._image.record_use()
        network.plug_tap(self._addresses, self._last_octet)
        for socket in (configuration.monitor, configuration.agent):
            socket.unlink(missing_ok=True)
        log = self.folder / "qemu.log"
        pid = start_daemon(qemu.machine_command(configuration), log=log)
        if not wait_until_true(
            lambda: configuration.monitor.exists() or not is_alive(pid), seconds=_START_SECONDS, every=0.02
        ) or (not is_alive(pid)):
            reap_child(pid)
            raise DevClusterError(f"QEMU of {self.folder.name} does not start", details=last_lines(log))

    def _check_images(self) -> None:
        preloaded = self._image.preloaded
        if preloaded is not None and not preloaded.disk.is_file():
            raise DevClusterError(
                f"{preloaded.disk}, the base of the disk of {self.folder.name}, does not exist",
                resolution="Delete the cluster and start it again: the disk is created again.",
            )

    def kill(self) -> None:
        """Power off: unsynced data is lost. Nothing happens if it is off."""
        self.send_kill()
        self.remove_leftovers()

    def send_kill(self) -> None:
        """End QEMU, which writes its disk metadata; SIGKILL would damage it."""
        pid = self.find_process()
        if pid is None:
            return
        self._dying = [pid]
        try:
            with Monitor(self.monitor) as monitor:
                monitor.run_command("quit")
        except SilentError:  # it hangs, or has ended
            send_signal(pid, signal.SIGKILL, self._mark)

    def remove_leftovers(self) -> None:
        """Wait for the end of the killed process, and remove its tap.

        Raises:
            DevClusterError: it does not end.
        """
        if not wait_until_true(self._has_ended, seconds=_QUIT_SECONDS, every=0.02):
            for pid in self._dying:
                send_signal(pid, signal.SIGKILL, self._mark)
            if not wait_until_true(self._has_ended, seconds=_QUIT_SECONDS, every=0.02):
                raise DevClusterError(f"QEMU of {self.folder.name} does not end")
        network.remove_cable(self._addresses, self._last_octet)

    def is_connected(self) -> bool:
        """Whether it is connected to the network."""
        return bool(network.is_connected(self._addresses, self._last_octet))

    def set_connected(self, *, up: bool) -> None:
        """Unplug or plug in its cable."""
        network.set_connected(self._addresses, self._last_octet, up=up)

    def _has_ended(self) -> bool:
        if any(is_alive(pid) for pid in self._dying):
            return False
        for pid in self._dying:
            reap_child(pid)
        return True


def _create_overlay(base: Path, disk: Path) -> None:
    """Create an overlay of a shared disk, if it does not exist."""
    if disk.exists():
        return
    temporary = disk.with_name(f".{disk.name}.new")
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, temporary], timeout=_SECONDS)
    temporary.rename(disk)
