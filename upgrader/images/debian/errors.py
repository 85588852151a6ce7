"""Errors between an archive and the store, each with its class of failure for a cell."""

from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass
from upgrader.core.errors import UpgraderError

_ROLES = {
    "linux-headers-": FailureClass.HEADERS_MISSING,
    "linux-kbuild-": FailureClass.HEADERS_MISSING,
    "linux-image-": FailureClass.HEADERS_MISSING,
    "linux-compiler-": FailureClass.TOOLCHAIN_MISSING,
    "gcc-": FailureClass.TOOLCHAIN_MISSING,
}


class ArchiveError(UpgraderError):
    """`kind` is the class of failure of every cell that depends on the answer."""

    kind = FailureClass.TRANSIENT

    def failure(self) -> BuildFailure:
        """The error as a cell's failure, with its first line."""
        return BuildFailure(kind=self.kind, first_error=self.brief)


class UnreachableArchiveError(ArchiveError):
    """An archive did not answer, or not in time. Nothing is known, so nothing is decided."""


class UntrustedArchiveError(ArchiveError):
    """An index is unsigned, signed by another key, expired, or differs from what was signed. None of it was read.

    The failure is transient: it does not describe any driver or kernel, and the request is repeated. It never means
    "absent".
    """


class MissingPackageError(ArchiveError):
    """A kernel, or a version of a package, that neither an archive nor the store has."""

    def __init__(self, brief: str, *, name: str, details: str = "", resolution: str = "") -> None:
        super().__init__(brief, details=details, resolution=resolution)
        self.name = name
        kinds = [kind for start, kind in _ROLES.items() if name.startswith(start)]
        self.kind = kinds[0] if kinds else FailureClass.UNSUPPORTED


class HashMismatchError(ArchiveError):
    """A package differs from the signed index. It was not added to the store."""

    def __init__(self, name: str, *, wanted: str, got: str) -> None:
        super().__init__(
            f"{name} differs from the signed index of its archive; it was discarded",
            details=f"expected SHA-256 {wanted}\nreceived SHA-256 {got}",
            resolution="A mirror recovers after its update; otherwise use another mirror.",
        )
        self.wanted = wanted
        self.got = got


class DiskFullError(ArchiveError):
    """No space left in the package folder. No incomplete file was left there."""

    def __init__(self, place: object, doing: str) -> None:
        super().__init__(f"no space left in {place} for {doing}", resolution="Free some space, or use another folder.")


class PackagesInUseError(UpgraderError):
    """A build uses the packages that were to be deleted. None was deleted."""

    def __init__(self, place: object) -> None:
        super().__init__(
            f"a build uses the packages in {place}, so none was deleted",
            resolution="Run the command again when the build has ended.",
        )
