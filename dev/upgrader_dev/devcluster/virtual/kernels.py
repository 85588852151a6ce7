"""The two kernels of a virtual node, and their packages."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from upgrader.core.errors import DevClusterError
from upgrader.images.debian.archives import Archives, configured_archives
from upgrader.images.debian.discovery import discover_kernels
from upgrader.images.debian.values import DebianKernel
from upgrader.images.debian.versions import Order, sort_key
from upgrader.process.places import Progress, cache_root, write_atomically

PINNED = ("6.1.0-47-amd64", "6.1.0-50-amd64")
"""NVIDIA's modules are known to build for both."""
FLAVOUR = "amd64"
_COUNT = 2


def find_kernels(
    suite: str, progress: Progress, *, source: Archives | None = None, folder: Path | None = None
) -> list[DebianKernel]:
    """Two kernels of a distribution, oldest first: PINNED, or the newest in the archive with headers.

    The archive is read once; the result is stored in `folder` (the user's cache), so that the image does not change.

    Raises:
        DevClusterError: the archive has fewer than two.
        ArchiveError: the archive cannot be read, or is not signed.
    """
    file = (folder or cache_root() / "vm") / f"kernels-{suite}.json"
    if not file.exists():
        progress(f"reading the archive for kernels of {suite}")
        suites = (suite, f"{suite}-security")
        chosen = choose_kernels(
            discover_kernels(suites, ["main"], source=source or configured_archives()).kernels, suite
        )
        write_atomically(file, msgspec.json.format(msgspec.json.encode(chosen)))
    return msgspec.json.decode(file.read_bytes(), type=list[DebianKernel])


def choose_kernels(offered: Iterable[DebianKernel], suite: str) -> list[DebianKernel]:
    """PINNED if both are available, otherwise the two newest of the distribution's own series.

    Raises:
        DevClusterError: there are fewer than two.
    """
    matching = [kernel for kernel in offered if (kernel.os, kernel.flavour) == (suite, FLAVOUR)]
    pinned = [kernel for kernel in matching if kernel.release in PINNED]
    if len(pinned) == len(PINNED):
        return sorted(pinned, key=_age_key)
    newest = sorted(matching, key=_age_key)[-_COUNT:]
    if len(newest) < _COUNT:
        available = ", ".join(kernel.release for kernel in newest) or "none"
        raise DevClusterError(
            f"virtual nodes require two kernels of {suite}, and its archive has {available}",
            resolution="Start box nodes instead: `upgrader dev up --boxes 2`.",
        )
    return newest


def _age_key(kernel: DebianKernel) -> tuple[int, Order, Order]:
    return sort_key(kernel.release)
