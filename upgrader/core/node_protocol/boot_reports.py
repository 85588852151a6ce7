"""What pods report of their node, each of one boot: of several, the last one counts. Pure."""

from collections.abc import Iterable
from typing import Protocol, TypeVar


class BootReport(Protocol):
    """A report of one boot; `uptime`: seconds since then."""

    @property
    def boot_id(self) -> str:
        """The boot."""

    @property
    def uptime(self) -> float:
        """When in that boot it was made."""


R = TypeVar("R", bound=BootReport)


def newest(reports: Iterable[R], boot_id: str) -> R | None:
    """The last report of a boot, of several pods that were on a node during it."""
    return max((one for one in reports if one.boot_id == boot_id), key=lambda one: one.uptime, default=None)
