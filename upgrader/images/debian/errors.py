"""What can go wrong between an archive and the store; each has the class that a cell's failure is filed under."""

from upgrader.core.driver_build.driver_builds import Failure, FailureClass
from upgrader.core.errors import UpgraderError

_ROLES = {
    "linux-headers-": FailureClass.HEADERS_MISSING,
    "linux-kbuild-": FailureClass.HEADERS_MISSING,
    "linux-image-": FailureClass.HEADERS_MISSING,
    "linux-compiler-": FailureClass.TOOLCHAIN_MISSING,
    "gcc-": FailureClass.TOOLCHAIN_MISSING,
}


class ArchiveError(UpgraderError):
    """`kind`: the class of failure of every cell that needed the answer."""

    kind = FailureClass.TRANSIENT

    def failure(self) -> Failure:
        """As a cell's result; its first error is one line."""
        return Failure(kind=self.kind, first_error=self.brief)


class UnreachableArchiveError(ArchiveError):
    """No answer from an archive, or not in time: nothing is known, so nothing is decided."""


class UntrustedArchiveError(ArchiveError):
    """An index is not signed, signed by somebody else, expired, or not what was signed. None of it was read.

    Filed as transient: it says nothing about any driver or kernel, and is asked again; it never turns into "absent".
    """


class MissingPackageError(ArchiveError):
    """A kernel, or a package in a version, that no archive has (any more) and that is not in the store either."""

    def __init__(self, brief: str, *, name: str, details: str = "", resolution: str = "") -> None:
        super().__init__(brief, details=details, resolution=resolution)
        self.name = name
        found = [kind for start, kind in _ROLES.items() if name.startswith(start)]
        self.kind = found[0] if found else FailureClass.UNSUPPORTED


class HashMismatchError(ArchiveError):
    """A package is not what the signed index says. It did not enter the store."""

    def __init__(self, name: str, *, wanted: str, got: str) -> None:
        super().__init__(
            f"{name} is not what the signed index of its archive says; it was thrown away",
            details=f"wanted SHA-256 {wanted}\ngot    SHA-256 {got}",
            resolution="A mirror in the middle of an update heals by itself; otherwise use another mirror.",
        )
        self.wanted = wanted
        self.got = got


class DiskFullError(ArchiveError):
    """No space left where packages are kept; nothing half written was left there."""

    def __init__(self, place: object, doing: str) -> None:
        super().__init__(f"no space left in {place} for {doing}", resolution="Free some, or give another folder.")


class PackagesInUseError(UpgraderError):
    """Somebody builds of the packages that were to be swept. None was deleted."""

    def __init__(self, place: object) -> None:
        super().__init__(
            f"a build uses the packages in {place}, so none was deleted", resolution="Run it again when that has ended."
        )
