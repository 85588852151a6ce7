"""Unpacked packages as file trees that builds share. Each tree is created once per set of package digests."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from upgrader.core.driver_build.driver_builds import hash_facts
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import Package
from upgrader.images.drivers.builder.extraction import extract_archive
from upgrader.process import run
from upgrader.process.places import Progress, hold_lock

_MERGED = ("bin", "sbin", "lib", "lib64")
_SECONDS = 300.0


class Trees:
    """Trees in a folder. A finished tree is never changed."""

    def __init__(self, folder: Path, packages: PackageStore, progress: Progress) -> None:
        self._folder = folder
        self._packages = packages
        self._progress = progress

    def unpacked_tree(
        self, name: str, packages: Sequence[Package], finish: Callable[[Path], None] = lambda _root: None
    ) -> Path:
        """The tree of these packages, in which /bin and other folders are links to /usr as in current Debian releases.

        No maintainer script runs. `finish` replaces them as far as needed.

        Raises:
            ArchiveError: a package cannot be had.
            ProcessError: a package cannot be unpacked.
        """
        target = self._folder / f"{name}-{hash_facts(sorted(package.sha256 for package in packages), 16)}"
        if target.is_dir():
            return target
        with hold_lock(
            self._folder / f".{target.name}.lock",
            lambda: self._progress(f"{name}: waiting for another build that unpacks it"),
        ):
            if not target.is_dir():
                beside = self._folder / f".{target.name}.new"
                shutil.rmtree(beside, ignore_errors=True)
                self._progress(f"{name}: unpacking {len(packages)} packages")
                make_root(beside)
                for path in self._packages.fetch_all(packages):
                    unpack_package(path, beside)
                finish(beside)
                beside.rename(target)
        return target


def make_root(folder: Path) -> None:
    """Create an empty root."""
    folder.mkdir(parents=True)
    for name in _MERGED:
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")


def unpack_package(package: Path, root: Path) -> None:
    """Unpack a package over a tree. Links to folders stay links, in contrast to dpkg-deb --extract.

    Raises:
        ProcessError: the file is not a package, the disk is full, or a path leads through a link out of the root.
    """
    files = run(["dpkg-deb", "--fsys-tarfile", package], timeout=_SECONDS).stdout
    extract_archive(["--preserve-permissions"], root, timeout=_SECONDS, stdin=files)
