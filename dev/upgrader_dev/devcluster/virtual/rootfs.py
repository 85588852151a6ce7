"""The tree of a virtual node: unpacked Debian packages, two kernels, containerd, kubelets, and scripts."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from upgrader.images import base
from upgrader.images.debian.values import DebianKernel
from upgrader.images.drivers.builder.extraction import extract_archive
from upgrader.images.drivers.builder.trees import make_root
from upgrader.images.product import checkout_root
from upgrader.process import run
from upgrader_dev.devcluster.base.spec import Init
from upgrader_dev.devcluster.virtual import initramfs

PACKAGES = (
    "base-files",  # os-release
    "busybox-static",  # init, and all small programs
    "containernetworking-plugins",
    "grub-pc-bin",  # for the boot sector
    "grub2-common",  # grub-set-default, grub-reboot: the next kernel is set as on any Debian machine
    "iproute2",
    "iptables",
    "kmod",
    "mount",
    "qemu-guest-agent",
    "runc",
    "util-linux",
)
INIT_PACKAGES: Mapping[Init, Sequence[str]] = {
    "busybox": PACKAGES,
    "systemd": (*PACKAGES, "dash", "dbus", "dpkg", "systemd", "systemd-sysv", "udev"),
}
"""Packages of a node by its first process."""
FILES = Path(__file__).parent / "files"
BOOT_ARGUMENTS = (
    # reboot after a panic, as on a real node, and for a stuck kernel; the console shows where it was stuck
    "root=/dev/vda1 console=ttyS0 quiet loglevel=5 net.ifnames=0 panic=5 random.trust_cpu=on softlockup_panic=1"
    " softlockup_all_cpu_backtrace=1 mitigations=off nokaslr"
    " no_timer_check tsc=reliable nmi_watchdog=0 audit=0 apparmor=0 cryptomgr.notests rcupdate.rcu_expedited=1"
)

_LEFT_OUT = (*base.LEFT_OUT, "./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/perl*")
_UNWANTED = (
    # hardware that virtual machines do not have; the core of drivers/gpu/drm stays, since nvidia.ko imports from it
    *(
        f"drivers/{name}"
        for name in ("ata", "hid", "hwmon", "iio", "infiniband", "input", "isdn", "media", "mtd", "scsi")
    ),
    *(f"drivers/{name}" for name in ("staging", "usb", "net/can", "net/ethernet", "net/usb", "net/wireless")),
    *(f"drivers/gpu/drm/{name}" for name in ("amd", "gma500", "i915", "nouveau", "radeon", "vmwgfx")),
    "sound",
)
_SCRIPTS = ("agent", "containerd", "images", "kubelet", "start", "stop")
_FOLDERS = ("dev", "proc", "root", "run", "sys", "tmp", "var/lib/box", "var/log", "boot/grub", "etc/cdi", "etc/node")
_SECONDS = 300.0
_EPOCH = 1
_PROGRAM, _FILE = 0o755, 0o644


@contextmanager
def _fixed_modes() -> Iterator[None]:
    """Set a fixed umask, so that modes do not depend on the user, also for files of other programs."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@_fixed_modes()
def make_node_root(
    root: Path,
    archive: Path,
    kernels: Mapping[Path, DebianKernel],
    programs: Sequence[Path],
    kubelets: Mapping[str, Path],
    *,
    init: Init,
) -> None:
    """Create the tree.

    Args:
        root: the directory to create.
        archive: the output of mmdebstrap for the packages of `init`.
        kernels: by the tree of its unpacked packages.
        programs: containerd and its programs.
        kubelets: by version.
        init: the first process.

    Raises:
        ProcessError: an archive cannot be unpacked, or a program of the tree fails.
    """
    make_root(root)
    excluded = [f"--exclude={path}" for path in _LEFT_OUT]
    extract_archive(["--file", archive, *excluded], root, timeout=_SECONDS)
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    _link_busybox(root)
    _add_files(root)
    if init == "systemd":
        _configure_systemd(root)
    else:
        _make_busybox_init(root)
    for program in programs:
        _copy_file(program, root / "usr/bin" / program.name, _PROGRAM)
    for version, program in kubelets.items():
        (root / "opt/kubelet").mkdir(parents=True, exist_ok=True)
        _copy_file(program, root / "opt/kubelet" / version, _PROGRAM)
    for tree, kernel in kernels.items():
        _add_kernel(root, tree, kernel.release)
    _write_boot_menu(root, [kernel.release for kernel in kernels.values()])


def boot_kernel() -> Path:
    """The program by which an upgrade sets the next kernel: the example for nodes with GRUB."""
    return checkout_root() / "docs/examples/nodes/boot-kernel"


def finish_root(root: Path) -> None:
    """Remove files that only the build needs, and set fixed times."""
    shutil.rmtree(root / "usr/lib/grub")
    set_times(root)


def set_times(root: Path) -> None:
    """Set the modification time of everything in the tree to the same second of 1970."""
    for path in (root, *root.rglob("*")):
        os.utime(path, (_EPOCH, _EPOCH), follow_symlinks=False)


def _link_busybox(root: Path) -> None:
    """Link each command of busybox that is in no package."""
    for command in run(["chroot", root, "/bin/busybox", "--list"], timeout=_SECONDS).text.split():
        places = [root / folder / command for folder in ("usr/bin", "usr/sbin")]
        if not any(place.is_symlink() or place.exists() for place in places):
            places[0].symlink_to("busybox")


def _make_busybox_init(root: Path) -> None:
    _copy_file(FILES / "inittab", root / "etc/inittab", _FILE)
    for name in ("init", "reboot"):  # the usual paths
        for folder in ("usr/bin", "usr/sbin"):
            (root / folder / name).unlink(missing_ok=True)
        (root / "usr/sbin" / name).symlink_to("../bin/busybox")


def _configure_systemd(root: Path) -> None:
    """What the scripts of its packages do: users, an ID of the machine that is set at boot, and enabled units."""
    units = sorted((FILES / "systemd").iterdir())
    for unit in units:
        _copy_file(unit, root / "etc/systemd/system" / unit.name, _FILE)
    (root / "etc/machine-id").touch()  # without the file systemd would enable all units of the packages
    run(["chroot", root, "systemd-sysusers"], timeout=_SECONDS, env={"SOURCE_DATE_EPOCH": str(_EPOCH)})
    run(["chroot", root, "systemctl", "enable", *(unit.name for unit in units)], timeout=_SECONDS)


def _add_files(root: Path) -> None:
    # the results of the packages' scripts, as far as they are used here
    for name in ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"):
        (root / "usr/sbin" / name).unlink(missing_ok=True)
        (root / "usr/sbin" / name).symlink_to("xtables-nft-multi")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/mtab").unlink(missing_ok=True)
    (root / "etc/mtab").symlink_to("/proc/self/mounts")
    for name in _SCRIPTS:
        _copy_file(FILES / name, root / "etc/node" / name, _PROGRAM)
    (root / "usr/local/sbin").mkdir(parents=True, exist_ok=True)
    _copy_file(boot_kernel(), root / "usr/local/sbin/boot-kernel", _PROGRAM)


def _copy_file(source: Path, target: Path, mode: int) -> None:
    """Copy with a fixed mode: the mode of a checkout or a cached program depends on the user's umask."""
    shutil.copyfile(source, target)
    target.chmod(mode)


def _add_kernel(root: Path, tree: Path, release: str) -> None:
    target = root / "usr/lib/modules" / release
    source = next(
        folder for folder in (tree / "usr/lib/modules" / release, tree / "lib/modules" / release) if folder.is_dir()
    )
    unwanted = {source / "kernel" / name for name in _UNWANTED}

    def ignore_unwanted(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if Path(folder) / name in unwanted}

    shutil.copytree(source, target, symlinks=True, ignore=ignore_unwanted)
    for link in ("build", "source"):  # to headers that are not installed
        (target / link).unlink(missing_ok=True)
    run(["chroot", root, "depmod", release], timeout=_SECONDS)
    shutil.copy(tree / "boot" / f"vmlinuz-{release}", root / "boot")
    script = (FILES / "initramfs").read_bytes()
    (root / "boot" / f"initrd-{release}").write_bytes(initramfs.pack_initramfs(root, release, script))


def _write_boot_menu(root: Path, releases: Sequence[str]) -> None:
    (root / "boot/grub/grub.cfg").write_text((FILES / "grub.cfg").read_text() + boot_menu(releases))
    environment = "/boot/grub/grubenv"
    run(["chroot", root, "grub-editenv", environment, "create"], timeout=_SECONDS)
    run(
        ["chroot", root, "grub-editenv", environment, "set", f"saved_entry={grub_entry(releases[-1])}"],
        timeout=_SECONDS,
    )


def grub_entry(release: str) -> str:
    """The GRUB entry of a kernel, for grub-set-default; GRUB interprets a leading digit as an index."""
    return f"gnulinux-{release}"


def boot_menu(releases: Sequence[str]) -> str:
    """The menu entries of GRUB."""
    return "".join(
        f"menuentry 'Linux {release}' --id '{grub_entry(release)}' {{\n"
        f"  linux /boot/vmlinuz-{release} {BOOT_ARGUMENTS} $machine\n"
        f"  initrd /boot/initrd-{release}\n"
        "}\n"
        for release in releases
    )
