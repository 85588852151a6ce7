"""Sparse disks compared: eight GiB of zeros are not read, and what differs is named by the file that it belongs to."""

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from upgrader.process import run
from upgrader_dev.devcluster.virtual.disk import FIRST_SECTOR, SECTOR

CHUNK = 2**16
BLOCK = 4096
SHOWN = 20


def differing(first: Path, second: Path) -> list[int]:
    """Places where two sparse files are not the same, in steps of a file system's block."""
    mine, found = dict(_chunks(first)), list[int]()
    for place, data in _chunks(second):
        before = mine.pop(place, b"")
        if before != data:
            found += _blocks(place, before, data)
    for place, data in mine.items():
        found += _blocks(place, data, b"")
    return sorted(found)


def named(disk: Path, places: Iterable[int]) -> list[str]:
    """Files of the disk's partition whose contents are at these places; what is in none is tables: modes, times."""
    start = FIRST_SECTOR * SECTOR
    blocks = [(place - start) // BLOCK for place in places][:SHOWN]
    found = []
    for block in blocks:
        inode = _last(disk, f"icheck {block}")
        path = _last(disk, f"ncheck {inode}") if inode.isdigit() else ""
        found.append(path if path.startswith("/") else f"block {block} (in no file)")
    return list(dict.fromkeys(found))


def _last(disk: Path, order: str) -> str:
    said = run(["debugfs", "-R", order, f"{disk}?offset={FIRST_SECTOR * SECTOR}"], timeout=60).text
    return said.splitlines()[-1].rpartition("\t")[2] if said else ""


def _blocks(place: int, one: bytes, other: bytes) -> Iterator[int]:
    for at in range(0, CHUNK, BLOCK):
        if one[at : at + BLOCK].rstrip(b"\0") != other[at : at + BLOCK].rstrip(b"\0"):
            yield place + at


def _chunks(sparse: Path) -> Iterator[tuple[int, bytes]]:
    place = 0
    with sparse.open("rb") as file:
        while (at := _next_data(file.fileno(), place)) is not None:
            data = os.pread(file.fileno(), CHUNK, at)
            if data.strip(b"\0"):
                yield at, data
            place = at + CHUNK


def _next_data(file: int, place: int) -> int | None:
    try:
        return os.lseek(file, place, os.SEEK_DATA) // CHUNK * CHUNK
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None  # a hole up to the end
