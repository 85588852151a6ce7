"""Errors as failures of a cell. The class determines whether the same inputs would fail again."""

from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass
from upgrader.core.errors import ConfigurationError, UnverifiedError, UpgraderError
from upgrader.images.debian.errors import ArchiveError
from upgrader.images.drivers.builder.sandbox import SandboxError
from upgrader.images.drivers.publish.bundle_registry import NoBundleError


def cell_failure(error: UpgraderError | OSError) -> BuildFailure:
    """The failure for an error during a cell's definition or build, or while its bundle was opened."""
    if isinstance(error, ArchiveError):
        return error.failure()
    return _make_failure(_failure_class(error), error)


def machine_failure(error: UpgraderError | OSError) -> BuildFailure:
    """The failure for an error before any cell was processed, such as an invalid key. It is no result about a cell."""
    return _make_failure(FailureClass.TRANSIENT, error)


def _failure_class(error: UpgraderError | OSError) -> FailureClass:
    """An invalid recipe, source or bundle fails until it changes.

    All other errors (a full disk, a program that ended, a missing sandbox or bundle) are no result about the cell.
    """
    if isinstance(error, UnverifiedError):
        return FailureClass.SIGNATURE
    unusable = isinstance(error, ConfigurationError) and not isinstance(error, SandboxError | NoBundleError)
    return FailureClass.UNSUPPORTED if unusable else FailureClass.TRANSIENT


def _make_failure(kind: FailureClass, error: UpgraderError | OSError) -> BuildFailure:
    return BuildFailure(kind=kind, first_error=str(error).partition("\n")[0])
