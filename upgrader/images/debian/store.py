"""Packages by their SHA-256, kept until they are swept: archives drop old kernels, and nothing is fetched twice.

<folder>/sha256/ab/ab12...      a package, read-only; only what has that digest is ever there
<folder>/partial/ab12...        what was fetched of one so far; the next attempt goes on from there
<folder>/locks/ab12...          held while one process fetches it
<folder>/locks/users            shared by all that build of packages, held alone by who deletes some
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from upgrader.images.debian import names
from upgrader.images.debian.errors import DiskFullError, HashMismatchError, MissingPackageError, PackagesInUseError
from upgrader.images.debian.values import Package
from upgrader.process.places import Progress, locked

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Source(Protocol):
    """Something that has packages: an archive through apt. It may leave a link."""

    def download(self, archive: str, path: str, sha256: str, target: Path) -> None:
        """Fetch a file of an archive; what is at `target` already is its beginning."""


class PackageStore:
    """Packages in a folder. `source` is asked for what is not there; without one that is an error."""

    def __init__(self, folder: Path, source: Source | None = None) -> None:
        self.folder = folder
        self._source = source

    def path(self, package: Package) -> Path:
        """Where a package is, or would be."""
        return self.file(package.sha256)

    def holds(self, package: Package) -> bool:
        """Whether it is there; its contents are read when it is fetched."""
        return self.path(package).is_file()

    def fetch(self, package: Package) -> Path:
        """The file of a package, its contents just compared with its digest; from the source where it is not there.

        Raises:
            MissingPackageError: neither the store nor the archive has it.
            HashMismatchError: the archive sent something else.
            DiskFullError, UnreachableArchiveError: as they say.
        """
        target = self.path(package)
        if _intact(target, package):
            return target
        with locked(self.folder / "locks" / package.sha256):
            if not _intact(target, package):
                self._download(package, target)
        return target

    def fetch_all(self, packages: Iterable[Package]) -> tuple[Path, ...]:
        """As `fetch`, one after the other: archives ask their clients not to open many connections."""
        return tuple(self.fetch(package) for package in packages)

    def add(self, package: Package, file: Path) -> Path:
        """Take a package from a file, which stays; nothing is done when it is there.

        Raises:
            HashMismatchError: the file is another; nothing enters.
            DiskFullError: no space left.
        """
        target = self.path(package)
        if _intact(target, package):
            return target
        with locked(self.folder / "locks" / package.sha256):
            beside = self._partial(package)
            beside.unlink(missing_ok=True)
            with self._room(package, beside):
                shutil.copyfile(file, beside)
                self._enter(package, beside, target)
        return target

    @contextmanager
    def in_use(self, progress: Progress = lambda _line: None) -> Iterator[None]:
        """As long as this lasts, no package is deleted. Waits where some are deleted right now, and says so."""
        said = f"waiting, as packages of {self.folder} are swept"
        with locked(self.folder / "locks/users", lambda: progress(said), shared=True):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """As long as this lasts, nobody builds of what is here.

        Raises:
            PackagesInUseError: somebody does.
        """

        def refuse() -> None:
            raise PackagesInUseError(self.folder)

        with locked(self.folder / "locks/users", refuse):
            yield

    def sizes(self) -> dict[str, int]:
        """All that is here, with what was fetched only in part: bytes by SHA-256."""
        found: dict[str, int] = {}
        for path in (*self.folder.glob("sha256/??/*"), *self.folder.glob("partial/*")):
            if _DIGEST.fullmatch(path.name) and path.is_file():
                found[path.name] = found.get(path.name, 0) + path.stat().st_size
        return found

    def file(self, sha256: str) -> Path:
        """Where a package of this digest is, or would be."""
        digest = names.sha256(sha256)
        return self.folder / "sha256" / digest[:2] / digest

    def remove(self, sha256: str) -> None:
        """Delete a package, and what was fetched of it; only inside `alone`."""
        self.file(sha256).unlink(missing_ok=True)
        (self.folder / "partial" / sha256).unlink(missing_ok=True)

    def place(self, package: Package, name: Path) -> Path:
        """Fetch a package and put it at `name`, as a hard link where that is possible. It is not to be written to."""
        path = self.fetch(package)
        name.unlink(missing_ok=True)
        try:
            name.hardlink_to(path)
        except OSError as error:
            if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK}:
                raise
            shutil.copyfile(path, name)
        return name

    def _download(self, package: Package, target: Path) -> None:
        if self._source is None:
            raise MissingPackageError(
                f"{package} is not in {self.folder}",
                name=package.name,
                details=f"SHA-256 {package.sha256}",
                resolution="Give it the packages as an image, or let it ask an archive.",
            )
        beside = self._partial(package)
        resumed = beside.exists()
        with self._room(package, beside):
            try:
                self._attempt(self._source, package, beside, target)
            except HashMismatchError:
                beside.unlink(missing_ok=True)
                if not resumed:
                    raise
                # what an earlier attempt has left was not the beginning of this package
                self._attempt(self._source, package, beside, target)

    def _attempt(self, source: Source, package: Package, beside: Path, target: Path) -> None:
        source.download(package.archive, package.path, package.sha256, beside)
        if beside.is_symlink():
            original = beside.readlink()
            beside.unlink()
            shutil.copyfile(original, beside)
        self._enter(package, beside, target)

    def _partial(self, package: Package) -> Path:
        place = self.folder / "partial" / package.sha256
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _enter(self, package: Package, beside: Path, target: Path) -> None:
        got = _digest(beside)
        if got != package.sha256:
            beside.unlink()
            raise HashMismatchError(str(package), wanted=package.sha256, got=got)
        beside.chmod(0o444)
        target.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("rb") as file:
            os.fsync(file.fileno())  # a name that outlives a power cut must not have an empty file behind it
        beside.replace(target)

    @contextmanager
    def _room(self, package: Package, beside: Path) -> Iterator[None]:
        """Where the disk is full, nothing half written stays."""
        try:
            yield
        except DiskFullError:
            beside.unlink(missing_ok=True)
            raise
        except OSError as error:
            beside.unlink(missing_ok=True)
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise DiskFullError(self.folder, str(package)) from error


def _intact(path: Path, package: Package) -> bool:
    """Whether the very package is there; one whose contents have changed since counts as absent and is replaced."""
    return path.is_file() and path.stat().st_size == package.size and _digest(path) == package.sha256


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
