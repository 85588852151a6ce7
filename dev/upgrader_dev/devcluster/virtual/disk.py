"""The disk of a virtual node: GRUB before the only partition, as `grub-install` writes it, and ext4 made from a tree.

Nothing is mounted and no loop device is required. The same tree results in the same bytes.
"""

import struct
from pathlib import Path

from upgrader.core.errors import DevClusterError
from upgrader.process import run

SECTOR = 512
FIRST_SECTOR = 2048
"""Of the partition: GRUB uses the first MiB."""
SIZE = 8 * 1024**3
"""Bytes; the file is sparse, and each node writes to its own overlay."""

_UUID = "6b1a6f5e-0f2c-4a4e-9c55-7d0b6f0a4d10"
_EPOCH = "1"  # 0 means no value in e2fsprogs
_FIXED_TIMES = {"E2FSPROGS_FAKE_TIME": _EPOCH, "SOURCE_DATE_EPOCH": _EPOCH}
_SUPERBLOCK, _FIRST_INODE = 1024, 11
_GRUB = "usr/lib/grub/i386-pc"
# GRUB 2.06 cannot read metadata_csum_seed and orphan_file, which newer versions of mke2fs enable
_FEATURES = "^metadata_csum_seed,^orphan_file"
_MODULES = (
    *(
        "biosdisk",
        "part_msdos",
        "ext2",
        "tar",
        "normal",
        "configfile",
        "linux",
        "loadenv",
        "test",
        "serial",
        "terminal",
    ),
    *("echo", "reboot"),
)
_SECONDS = 300.0


def boot_area(root: Path) -> bytes:
    """The bytes before the partition: boot sector with the partition table, and GRUB's core from the next sector on.

    Raises:
        ProgramFailedError: GRUB's program fails.
    """
    output = "/tmp/core.img"  # noqa: S108 - inside the tree
    words = ["grub-mkimage", "--format=i386-pc", "--prefix=(hd0,msdos1)/boot/grub", f"--output={output}", *_MODULES]
    run(["chroot", root, *words], timeout=_SECONDS)
    core = (root / output.lstrip("/")).read_bytes()
    (root / output.lstrip("/")).unlink()
    return assemble_area((root / _GRUB / "boot.img").read_bytes(), core)


def assemble_area(boot: bytes, core: bytes) -> bytes:
    """GRUB's boot sector with a partition table, followed by its core in the next sector.

    Raises:
        DevClusterError: the core does not fit before the partition.
    """
    if SECTOR + len(core) > FIRST_SECTOR * SECTOR:
        raise DevClusterError(f"GRUB's core of {len(core)} bytes does not fit before the first partition")
    count = SIZE // SECTOR - FIRST_SECTOR
    # bootable, no cylinders (used until 1995), type 83 (Linux), first sector, sectors
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", FIRST_SECTOR, count)
    table = entry + bytes(3 * len(entry)) + b"\x55\xaa"
    return boot[: SECTOR - len(table)] + table + core


def make_disk(area: bytes, root: Path, target: Path) -> None:
    """Write a whole disk: the bytes before the partition, and the tree `root` in it.

    Raises:
        ProgramFailedError: mke2fs fails; with its message.
    """
    with target.open("wb") as file:
        file.write(area)
        file.truncate(SIZE)
    extended = f"offset={FIRST_SECTOR * SECTOR},hash_seed={_UUID},lazy_itable_init=1,lazy_journal_init=1"
    words = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-L", "root", "-U", _UUID, "-O", _FEATURES]
    words += ["-E", extended, "-d", str(root), str(target), f"{(SIZE - FIRST_SECTOR * SECTOR) // 1024}k"]
    run(words, timeout=_SECONDS, env=_FIXED_TIMES)
    _reset_change_times(target)


def _reset_change_times(disk: Path) -> None:
    """Set constant change times: mke2fs copies those of the tree, which are now and cannot be set."""
    start = FIRST_SECTOR * SECTOR
    with disk.open("rb") as file:
        file.seek(start + _SUPERBLOCK)
        count, _, _, _, free = struct.unpack("<5I", file.read(20))
    commands = "".join(
        f"set_inode_field <{inode}> ctime @{_EPOCH}\n" for inode in range(_FIRST_INODE, count - free + 1)
    )
    run(
        ["debugfs", "-w", "-f", "-", f"{disk}?offset={start}"],
        timeout=_SECONDS,
        env=_FIXED_TIMES,
        stdin=commands.encode(),
    )
