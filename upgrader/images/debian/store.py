"""Packages by SHA-256, kept until they are swept: archives drop old kernels, and no package is fetched twice.

<folder>/sha256/ab/ab12...      a package, read-only; its contents always have that digest
<folder>/partial/ab12...        an incomplete download, which the next attempt continues
<folder>/locks/ab12...          held while one process fetches it
<folder>/locks/users            shared by all builds, held exclusively by a sweep
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
from upgrader.process.places import Progress, hold_lock

_DIGEST = re.compile(r"[0-9a-f]{64}")


class PackageSource(Protocol):
    """A source of packages, such as an archive through apt. It may create a link."""

    def download(self, archive: str, path: str, sha256: str, target: Path) -> None:
        """Download a file of an archive. An existing file at `target` is its beginning."""


class PackageStore:
    """Packages in a folder. Missing packages are downloaded from `source`; without a source they are an error."""

    def __init__(self, folder: Path, source: PackageSource | None = None) -> None:
        self.folder = folder
        self._source = source

    def package_path(self, package: Package) -> Path:
        """The path of a package, whether it exists or not."""
        return self.digest_path(package.sha256)

    def has_package(self, package: Package) -> bool:
        """Whether the file exists. Its contents are verified by `fetch`."""
        return self.package_path(package).is_file()

    def fetch(self, package: Package) -> Path:
        """The path of a package whose contents were just verified. A missing package is downloaded.

        Raises:
            MissingPackageError: neither the store nor the archive has it.
            HashMismatchError: the archive sent other contents.
            DiskFullError, UnreachableArchiveError: as their descriptions.
        """
        target = self.package_path(package)
        if _is_intact(target, package):
            return target
        with hold_lock(self.folder / "locks" / package.sha256):
            if not _is_intact(target, package):
                self._download(package, target)
        return target

    def fetch_all(self, packages: Iterable[Package]) -> tuple[Path, ...]:
        """As `fetch`, in sequence, since archives ask clients not to open many connections."""
        return tuple(self.fetch(package) for package in packages)

    def add(self, package: Package, file: Path) -> Path:
        """Copy a package from a file, unless the store has it.

        Raises:
            HashMismatchError: the file has other contents; it is not added.
            DiskFullError: no space left.
        """
        target = self.package_path(package)
        if _is_intact(target, package):
            return target
        with hold_lock(self.folder / "locks" / package.sha256):
            beside = self._partial_path(package)
            beside.unlink(missing_ok=True)
            with self._clean_up_when_full(package, beside):
                shutil.copyfile(file, beside)
                self._store_verified(package, beside, target)
        return target

    @contextmanager
    def in_use(self, progress: Progress = lambda _line: None) -> Iterator[None]:
        """No package is deleted during the context. If a sweep is running, wait for it and report that."""
        waiting = f"waiting for a sweep of the packages in {self.folder}"
        with hold_lock(self.folder / "locks/users", lambda: progress(waiting), shared=True):
            yield

    @contextmanager
    def exclusive_use(self) -> Iterator[None]:
        """No build uses the packages during the context.

        Raises:
            PackagesInUseError: a build uses them.
        """

        def refuse() -> None:
            raise PackagesInUseError(self.folder)

        with hold_lock(self.folder / "locks/users", refuse):
            yield

    def stored_sizes(self) -> dict[str, int]:
        """Sizes in bytes by SHA-256 of all packages, incomplete downloads included."""
        sizes: dict[str, int] = {}
        for path in (*self.folder.glob("sha256/??/*"), *self.folder.glob("partial/*")):
            if _DIGEST.fullmatch(path.name) and path.is_file():
                sizes[path.name] = sizes.get(path.name, 0) + path.stat().st_size
        return sizes

    def digest_path(self, sha256: str) -> Path:
        """The path of the package with this digest, whether it exists or not."""
        digest = names.check_sha256(sha256)
        return self.folder / "sha256" / digest[:2] / digest

    def remove(self, sha256: str) -> None:
        """Delete a package and its incomplete download; only inside `exclusive_use`."""
        self.digest_path(sha256).unlink(missing_ok=True)
        (self.folder / "partial" / sha256).unlink(missing_ok=True)

    def link_to(self, package: Package, name: Path) -> Path:
        """Fetch a package and create `name` as a hard link to it, or else as a copy. The file must not be changed."""
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
                resolution="Provide the packages as an image, or configure an archive.",
            )
        beside = self._partial_path(package)
        resumed = beside.exists()
        with self._clean_up_when_full(package, beside):
            try:
                self._download_once(self._source, package, beside, target)
            except HashMismatchError:
                beside.unlink(missing_ok=True)
                if not resumed:
                    raise
                # the incomplete download was not the beginning of this package
                self._download_once(self._source, package, beside, target)

    def _download_once(self, source: PackageSource, package: Package, beside: Path, target: Path) -> None:
        source.download(package.archive, package.path, package.sha256, beside)
        if beside.is_symlink():
            original = beside.readlink()
            beside.unlink()
            shutil.copyfile(original, beside)
        self._store_verified(package, beside, target)

    def _partial_path(self, package: Package) -> Path:
        place = self.folder / "partial" / package.sha256
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _store_verified(self, package: Package, beside: Path, target: Path) -> None:
        got = _file_digest(beside)
        if got != package.sha256:
            beside.unlink()
            raise HashMismatchError(str(package), wanted=package.sha256, got=got)
        beside.chmod(0o444)
        target.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("rb") as file:
            os.fsync(file.fileno())  # after a power cut, the name must not refer to an empty file
        beside.replace(target)

    @contextmanager
    def _clean_up_when_full(self, package: Package, beside: Path) -> Iterator[None]:
        """Remove incomplete files if the disk is full."""
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


def _is_intact(path: Path, package: Package) -> bool:
    """Whether the file is this package. A file whose contents changed counts as absent and is replaced."""
    return path.is_file() and path.stat().st_size == package.size and _file_digest(path) == package.sha256


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
