"""Errors as failures of a cell: the class says whether the same inputs would fail again."""

from upgrader.core.driver_build.driver_builds import Failure, FailureClass
from upgrader.core.errors import ConfigurationError, UnverifiedError, UpgraderError
from upgrader.images.debian.errors import ArchiveError
from upgrader.images.drivers.builder.sandbox import SandboxError
from upgrader.images.drivers.publish.bundle_registry import NoBundleError


def of_cell(error: UpgraderError | OSError) -> Failure:
    """What came up while a cell was defined or built, or while its bundle of packages was opened."""
    if isinstance(error, ArchiveError):
        return error.failure()
    return _failure(_kind(error), error)


def of_machine(error: UpgraderError | OSError) -> Failure:
    """What came up before any cell was looked at, a key that cannot be used among it: it says nothing about one."""
    return _failure(FailureClass.TRANSIENT, error)


def _kind(error: UpgraderError | OSError) -> FailureClass:
    """A recipe, source or bundle that cannot be used as it is makes no such driver, until one of them changes.

    All else (a full disk, a program that ended, a sandbox or a bundle that is no more) says nothing about the cell.
    """
    if isinstance(error, UnverifiedError):
        return FailureClass.SIGNATURE
    unusable = isinstance(error, ConfigurationError) and not isinstance(error, SandboxError | NoBundleError)
    return FailureClass.UNSUPPORTED if unusable else FailureClass.TRANSIENT


def _failure(kind: FailureClass, error: UpgraderError | OSError) -> Failure:
    return Failure(kind=kind, first_error=str(error).partition("\n")[0])
