"""Failures of driver images as errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from upgrader.core.driver_build.build_results import BuildRefusal, BuildResult, CellState, termination_message
from upgrader.core.driver_build.driver_builds import BuildFailure
from upgrader.core.errors import UpgraderError


class NoImageError(UpgraderError):
    """There is no image for a driver and a kernel."""


def refuse_red(result: BuildResult) -> None:
    """Raise an error if a cell has no image.

    Raises:
        NoImageError: with the class of the failure, the first error, and drivers that build for the kernel.
    """
    failure = result.failure
    if result.state is not CellState.RED or failure is None:
        return
    about = f" ({failure.symbol})" if failure.symbol else ""
    known = ", ".join(result.alternatives)
    ways = f"Drivers that build for {result.identity.kernel}: {known}." if known else ""
    again = "" if failure.final else "The failure may be temporary: try again."
    raise NoImageError(
        f"no image for {result.identity}: {failure.kind}{about}",
        details=failure.first_error,
        resolution=" ".join(part for part in (again, ways) if part),
    )


@contextmanager
def leaving_word(message: Path | None, filed: Callable[[UpgraderError | OSError], BuildFailure]) -> Iterator[None]:
    """Write the reason why a build did not start to the termination message; the error is raised unchanged.

    Args:
        message: file of the termination message, if any.
        filed: returns the class of an error.
    """
    try:
        yield
    except (UpgraderError, OSError) as error:
        if message is not None:
            message.write_bytes(termination_message(BuildRefusal(failure=filed(error))))
        raise
