"""The initramfs of a virtual node: busybox, the modules for its root disk, and a script."""

import lzma
from collections.abc import Mapping
from pathlib import Path

from upgrader.process import run

REQUIRED_MODULES = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic")
"""Modules in Debian's kernels; ext4 requests the last one by name, so it is not a dependency."""

_MAGIC = "070701"
_DIRECTORY, _PROGRAM, _FILE = 0o40755, 0o100755, 0o100644
_SECONDS = 60.0


def pack_initramfs(root: Path, release: str, script: bytes) -> bytes:
    """The archive for a kernel whose modules and modules.dep are in the tree `root`, with busybox."""
    files = {"busybox": ((root / "bin/busybox").read_bytes(), _PROGRAM), "init": (script, _PROGRAM)}
    order = []
    for path in needed_modules(root, release):
        order.append(path.name.removesuffix(".xz"))
        files[f"modules/{order[-1]}"] = (_read_module(path), _FILE)
    files["modules/order"] = ("".join(f"{name}\n" for name in order).encode(), _FILE)
    return make_cpio(files, folders=("dev", "modules", "proc", "root", "sys"))


def needed_modules(root: Path, release: str) -> list[Path]:
    """The files of NEEDED and their dependencies, in the order of loading."""
    command = ["modprobe", "--set-version", release, "--show-depends", "--all", *REQUIRED_MODULES]
    lines = run(["chroot", root, *command], timeout=_SECONDS).text.splitlines()
    names = dict.fromkeys(line.split()[1] for line in lines if line.startswith("insmod "))
    return [root / name.lstrip("/") for name in names]


def make_cpio(files: Mapping[str, tuple[bytes, int]], folders: tuple[str, ...]) -> bytes:
    """A cpio archive in the format that kernels unpack (newc); the same contents result in the same bytes.

    `files` are contents and mode by path.
    """
    entries = [(name, b"", _DIRECTORY) for name in folders]
    entries += [(name, data, mode) for name, (data, mode) in sorted(files.items())]
    entries.append(("TRAILER!!!", b"", 0))
    archive = bytearray()
    for number, (name, data, mode) in enumerate(entries, 1):
        links = 2 if mode == _DIRECTORY else 1
        # inode, mode, uid, gid, links, mtime, size, device (2), represented device (2), length of the name, checksum
        fields = (number, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        archive += _MAGIC.encode() + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        _align_data(archive)
        archive += data
        _align_data(archive)
    return bytes(archive)


def _align_data(archive: bytearray) -> None:
    archive += bytes(-len(archive) % 4)


def _read_module(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data
