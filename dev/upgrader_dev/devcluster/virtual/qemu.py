"""QEMU's command line for one virtual node, and its disks. Pure."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.images.boot import machine

SHARED_TAG = "shared"
"""The 9p file system that the node mounts at /var/lib/shared."""

# The buffer of translated code is outside the machine's memory, and grows as required. A buffer of 256 MiB was full
# every minute, and all code was translated again: a pod required a quarter more processor time. The disabled features
# only cost time under emulation: with ERMS, Linux copies with REP MOVSB, which is a loop of single bytes; with LA57,
# page tables have a fifth level; with SMAP, each copy to or from a program ends a block of translated code. With a
# single processor, programs require no atomic instructions of the host, and the kernel requires no locks: the same pods
# use a sixth less processor time on one machine, and a third less on two.
_ACCELERATION = {
    machine.KVM: ("-accel", "kvm", "-cpu", "host", "-smp", "2"),
    machine.EMULATED: ("-accel", "tcg,tb-size=1024", "-cpu", "max,-erms,-la57,-smap,-smep", "-smp", "1"),
}
# Code at a fixed address stays translated. Each high-resolution timer is a separate interrupt; with timers on the tick
# (4 ms) there are a quarter of the interrupts, and half of the context switches.
_KERNEL_ARGUMENTS = "norandmaps highres=off"


class Machine(Struct, frozen=True, kw_only=True):
    """The configuration of a machine.

    Args:
        mark: a unique word of its command line.
        accelerator: machine.KVM or machine.EMULATED.
        folder: for its sockets and logs.
        disk: its own writable disk.
        seed: the second disk, a tar archive.
        images: the third disk, with container images; None if there is none.
        shared: a folder of the host that it shares with other nodes.
        tap: the link on the host.
        mac: of its network card.
        memory_mib: of the machine; QEMU uses some hundred MiB more.
    """

    mark: str
    accelerator: str
    folder: Path
    disk: Path
    seed: Path
    images: Path | None = None
    shared: Path
    tap: str
    mac: str
    memory_mib: int

    @property
    def console(self) -> Path:
        """The output of its serial port, over all boots."""
        return self.folder / "console.log"

    @property
    def monitor(self) -> Path:
        """The QMP socket."""
        return self.folder / "qmp.sock"

    @property
    def agent(self) -> Path:
        """The socket of the guest agent."""
        return self.folder / "agent.sock"


def machine_command(configuration: Machine) -> list[str]:
    """The command that starts a machine. It boots from its disk, also after a reset.

    `cache=unsafe` omits the host's flushes: synced data of the node survives its power cuts (QMP quit), but not a
    crash of the host.
    """
    return [
        *(
            "qemu-system-x86_64",
            "-name",
            configuration.mark,
            "-machine",
            "q35",
            *_ACCELERATION[configuration.accelerator],
        ),
        *("-nodefaults", "-no-user-config", "-display", "none", "-rtc", "base=utc"),
        *("-m", str(configuration.memory_mib)),
        *("-drive", f"file={_escape_path(configuration.disk)},format=qcow2,if=none,id=root,cache=unsafe"),
        *("-device", "virtio-blk-pci,drive=root,bootindex=0"),
        *("-drive", f"file={_escape_path(configuration.seed)},format=raw,if=none,id=seed,readonly=on"),
        *("-device", "virtio-blk-pci,drive=seed,bootindex=1"),
        *_disk_arguments(configuration),
        *("-netdev", f"tap,id=net,ifname={configuration.tap},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,netdev=net,mac={configuration.mac},romfile="),
        *(
            "-chardev",
            ",".join(
                (
                    "socket,id=console",
                    _socket_argument(configuration.folder / "console.sock"),
                    _log_argument(configuration.console),
                )
            ),
        ),
        *("-serial", "chardev:console"),
        *("-qmp", f"unix:{_escape_path(configuration.monitor)},server=on,wait=off"),
        *("-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,{_socket_argument(configuration.agent)}"),
        *("-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"),
        "-virtfs",
        f"local,path={_escape_path(configuration.shared)},mount_tag={SHARED_TAG},security_model=passthrough,multidevs=remap",
    ]


def seed_disk(files: Mapping[str, bytes]) -> bytes:
    """The second disk: a tar archive of files by path, readable by root only."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def boot_order(number: str, entry: str) -> bytes:
    """A GRUB setting that boots an entry from now on, unless it was applied already; see files/grub.cfg."""
    return f"set order={number}\nset wanted={entry}\n".encode()


def kernel_facts(counter: str) -> dict[str, bytes]:
    """Kernel arguments of an emulated machine, as a file of the second disk; see files/grub.cfg.

    `counter` is the result of tsc.kernel_argument().
    """
    return {"machine.cfg": f'set machine="{f"{_KERNEL_ARGUMENTS} {counter}".strip()}"\n'.encode()}


def _disk_arguments(configuration: Machine) -> tuple[str, ...]:
    if configuration.images is None:
        return ()
    drive = f"file={_escape_path(configuration.images)},format=qcow2,if=none,id=images,cache=unsafe"
    return ("-drive", drive, "-device", "virtio-blk-pci,drive=images")


def _socket_argument(path: Path) -> str:
    return f"path={_escape_path(path)},server=on,wait=off"


def _log_argument(path: Path) -> str:
    return f"logfile={_escape_path(path)},logappend=on"


def _escape_path(path: Path) -> str:
    return str(path).replace(",", ",,")
