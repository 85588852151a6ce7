"""Which two kernels a virtual node has, and their packages."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from upgrader.core.errors import DevClusterError
from upgrader.images.debian.archives import Archives, configured_archives
from upgrader.images.debian.discovery import discover_kernels
from upgrader.images.debian.values import Kernel
from upgrader.images.debian.versions import Order, sort_key
from upgrader.process.places import Progress, cache_root, write_atomically

PINNED = ("6.1.0-47-amd64", "6.1.0-50-amd64")
"""Real modules of NVIDIA's are known to build for both."""
FLAVOUR = "amd64"
_COUNT = 2


def find_kernels(
    suite: str, progress: Progress, *, source: Archives | None = None, folder: Path | None = None
) -> list[Kernel]:
    """Two kernels of a distribution, oldest first: PINNED, or the newest that the archive has with headers.

    The archive is asked once; the answer is kept in `folder` (the user's cache), so that the image stays the same.

    Raises:
        DevClusterError: the archive has fewer than two.
        ArchiveError: it cannot be asked, or is not signed.
    """
    note = (folder or cache_root() / "vm") / f"kernels-{suite}.json"
    if not note.exists():
        progress(f"asking the archive for kernels of {suite}")
        suites = (suite, f"{suite}-security")
        chosen = choose_kernels(
            discover_kernels(suites, ["main"], source=source or configured_archives()).kernels, suite
        )
        write_atomically(note, msgspec.json.format(msgspec.json.encode(chosen)))
    return msgspec.json.decode(note.read_bytes(), type=list[Kernel])


def choose_kernels(offered: Iterable[Kernel], suite: str) -> list[Kernel]:
    """PINNED if both are there, else the two newest of the distribution's own series.

    Raises:
        DevClusterError: there are fewer than two.
    """
    ours = [one for one in offered if (one.os, one.flavour) == (suite, FLAVOUR)]
    pinned = [one for one in ours if one.release in PINNED]
    if len(pinned) == len(PINNED):
        return sorted(pinned, key=_age_key)
    found = sorted(ours, key=_age_key)[-_COUNT:]
    if len(found) < _COUNT:
        there = ", ".join(one.release for one in found) or "none"
        raise DevClusterError(
            f"virtual nodes need two kernels of {suite}, and its archive has {there}",
            resolution="Ask for box nodes instead: `upgrader dev up --boxes 2`.",
        )
    return found


def _age_key(kernel: Kernel) -> tuple[int, Order, Order]:
    return sort_key(kernel.release)
