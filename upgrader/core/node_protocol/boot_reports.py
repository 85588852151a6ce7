"""Reports of pods on their node, each of one boot: of several, the last counts. Pure."""

from collections.abc import Iterable
from typing import Protocol, TypeVar


class BootReport(Protocol):
    """A report of one boot; `uptime`: seconds since then."""

    @property
    def boot_id(self) -> str:
        """The boot."""

    @property
    def uptime(self) -> float:
        """When it was created, in seconds since the boot."""


R = TypeVar("R", bound=BootReport)


def newest_report(reports: Iterable[R], boot_id: str) -> R | None:
    """The last report of a boot, of several pods that were on a node during it."""
    of_boot = (report for report in reports if report.boot_id == boot_id)
    return max(of_boot, key=lambda report: report.uptime, default=None)
