"""Unpacked packages as file trees that are shared between builds: made once, by the digests of what is in them."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from upgrader.core.driver_build.driver_builds import digits
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import Package
from upgrader.images.drivers.builder.extraction import extract
from upgrader.process import run
from upgrader.process.places import Progress, locked

_MERGED = ("bin", "sbin", "lib", "lib64")
_SECONDS = 300.0


class Trees:
    """Trees in a folder. Nobody writes to one that is finished."""

    def __init__(self, folder: Path, packages: PackageStore, progress: Progress) -> None:
        self._folder = folder
        self._packages = packages
        self._progress = progress

    def tree(self, name: str, packages: Sequence[Package], finish: Callable[[Path], None] = lambda _root: None) -> Path:
        """The tree of these packages, with /bin and others leading to /usr as on every Debian today.

        Scripts of the packages are not run; `finish` does to the tree what is needed of them.

        Raises:
            ArchiveError: a package cannot be had.
            ProcessError: a package cannot be unpacked.
        """
        target = self._folder / f"{name}-{digits(sorted(one.sha256 for one in packages), 16)}"
        if target.is_dir():
            return target
        with locked(
            self._folder / f".{target.name}.lock", lambda: self._progress(f"{name}: unpacked by another build")
        ):
            if not target.is_dir():
                beside = self._folder / f".{target.name}.new"
                shutil.rmtree(beside, ignore_errors=True)
                self._progress(f"{name}: unpacking {len(packages)} packages")
                make_root(beside)
                for path in self._packages.fetch_all(packages):
                    unpack(path, beside)
                finish(beside)
                beside.rename(target)
        return target


def make_root(folder: Path) -> None:
    """An empty root."""
    folder.mkdir(parents=True)
    for name in _MERGED:
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")


def unpack(package: Path, root: Path) -> None:
    """Unpack a package over what is there; links to folders stay links, which dpkg-deb --extract would not leave so.

    Raises:
        ProcessError: it is no package, the disk is full, or it goes through a link that leads out of the root.
    """
    files = run(["dpkg-deb", "--fsys-tarfile", package], timeout=_SECONDS).stdout
    extract(["--preserve-permissions"], root, timeout=_SECONDS, stdin=files)
