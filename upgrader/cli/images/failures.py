"""A driver image that cannot be had, as an error for people."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from upgrader.core.driver_build.build_results import BuildResult, CellState, Refusal, termination_message
from upgrader.core.driver_build.driver_builds import Failure
from upgrader.core.errors import UpgraderError


class NoImageError(UpgraderError):
    """There is no image for a driver on a kernel, and why."""


def refuse_red(result: BuildResult) -> None:
    """Raise where a cell has no image.

    Raises:
        NoImageError: with the class, the first error, and drivers that are known to build for the kernel.
    """
    failure = result.failure
    if result.state is not CellState.RED or failure is None:
        return
    about = f" ({failure.symbol})" if failure.symbol else ""
    known = ", ".join(result.alternatives)
    ways = f"Known to build for {result.identity.kernel}: {known}." if known else ""
    again = "" if failure.final else "It may be another time: try again."
    raise NoImageError(
        f"there is no image of {result.identity}: {failure.kind}{about}",
        details=failure.first_error,
        resolution=" ".join(part for part in (again, ways) if part),
    )


@contextmanager
def leaving_word(message: Path | None, filed: Callable[[UpgraderError | OSError], Failure]) -> Iterator[None]:
    """Leave why no build was begun where a kubelet reads it; the error goes on to people as it is.

    Args:
        message: file of the termination message, if there is to be one.
        filed: the class that an error has.
    """
    try:
        yield
    except (UpgraderError, OSError) as error:
        if message is not None:
            message.write_bytes(termination_message(Refusal(failure=filed(error))))
        raise
