"""QEMU's command line for one virtual node, and its disks. Pure."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.images.boot import machine

SHARED_TAG = "shared"
"""The 9p file system that the node mounts at /var/lib/shared."""

# Translated code is kept in a buffer beside the machine's own memory. It grows to what is needed; one of 256 MiB was
# full every minute, and all was translated anew: a pod took a quarter more processor time. What is left out costs an
# emulated machine time and gives it nothing: ERMS makes Linux copy with REP MOVSB, which is a loop of single bytes;
# with LA57 every walk through page tables has a fifth level; for SMAP each copy to or from a program ends a block of
# translated code. One that has a single processor needs no atomic instructions of the host for those of its programs,
# and its kernel no locks: the same pods take it a sixth less processor time alone, and a third less beside another one.
_HOW = {
    machine.KVM: ("-accel", "kvm", "-cpu", "host", "-smp", "2"),
    machine.EMULATED: ("-accel", "tcg,tb-size=1024", "-cpu", "max,-erms,-la57,-smap,-smep", "-smp", "1"),
}
# Code that stays at its address stays translated. A timer to the microsecond is an interrupt of its own each time; with
# those of the tick (4 ms) there are a quarter as many, and half the switches.
_TOLD = "norandmaps highres=off"


class Machine(Struct, frozen=True, kw_only=True):
    """What a machine is made of.

    Args:
        mark: a word of its command line that nobody else's has.
        accelerator: machine.KVM or machine.EMULATED.
        folder: for its sockets and logs.
        disk: its own, written to.
        seed: the second disk, a tar archive.
        images: the third, with container images; None where it has none.
        shared: a folder of the host's that it shares with other nodes.
        tap: the host's link.
        mac: of its network card.
        memory_mib: of the machine; QEMU takes some hundred MiB more.
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
        """All that its serial port ever said, over all boots."""
        return self.folder / "console.log"

    @property
    def monitor(self) -> Path:
        """QMP's socket."""
        return self.folder / "qmp.sock"

    @property
    def agent(self) -> Path:
        """The guest agent's socket."""
        return self.folder / "agent.sock"


def machine_command(made: Machine) -> list[str]:
    """The words that start a machine. It boots from its disk, also when it resets itself.

    `cache=unsafe` leaves out the host's own flushes: what the node has synced survives its power cuts (QMP quit), but
    not a crash of the host.
    """
    return [
        *("qemu-system-x86_64", "-name", made.mark, "-machine", "q35", *_HOW[made.accelerator]),
        *("-nodefaults", "-no-user-config", "-display", "none", "-rtc", "base=utc"),
        *("-m", str(made.memory_mib)),
        *("-drive", f"file={_escape_path(made.disk)},format=qcow2,if=none,id=root,cache=unsafe"),
        *("-device", "virtio-blk-pci,drive=root,bootindex=0"),
        *("-drive", f"file={_escape_path(made.seed)},format=raw,if=none,id=seed,readonly=on"),
        *("-device", "virtio-blk-pci,drive=seed,bootindex=1"),
        *_disk_arguments(made),
        *("-netdev", f"tap,id=net,ifname={made.tap},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,netdev=net,mac={made.mac},romfile="),
        *(
            "-chardev",
            f"socket,id=console,{_socket_argument(made.folder / 'console.sock')},{_log_argument(made.console)}",
        ),
        *("-serial", "chardev:console"),
        *("-qmp", f"unix:{_escape_path(made.monitor)},server=on,wait=off"),
        *("-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,{_socket_argument(made.agent)}"),
        *("-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"),
        "-virtfs",
        f"local,path={_escape_path(made.shared)},mount_tag={SHARED_TAG},security_model=passthrough,multidevs=remap",
    ]


def seed_disk(files: Mapping[str, bytes]) -> bytes:
    """The second disk: a tar archive of files by their path, which root alone may read."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def boot_order(number: str, entry: str) -> bytes:
    """Tells GRUB to boot an entry from now on, unless it has taken this very order already; see files/grub.cfg."""
    return f"set order={number}\nset wanted={entry}\n".encode()


def kernel_facts(counter: str) -> dict[str, bytes]:
    """What an emulated machine's kernel is told of it, as a file of the second disk; see files/grub.cfg.

    `counter` is what tsc.argument() gives.
    """
    return {"machine.cfg": f'set machine="{f"{_TOLD} {counter}".strip()}"\n'.encode()}


def _disk_arguments(made: Machine) -> tuple[str, ...]:
    if made.images is None:
        return ()
    drive = f"file={_escape_path(made.images)},format=qcow2,if=none,id=images,cache=unsafe"
    return ("-drive", drive, "-device", "virtio-blk-pci,drive=images")


def _socket_argument(path: Path) -> str:
    return f"path={_escape_path(path)},server=on,wait=off"


def _log_argument(path: Path) -> str:
    return f"logfile={_escape_path(path)},logappend=on"


def _escape_path(path: Path) -> str:
    return str(path).replace(",", ",,")
