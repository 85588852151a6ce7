"""What a stack does to a node by itself, without a plan: where nothing runs that could be lost, or nothing can run.

Pure. An upgrade that failed is tried again after a while, for as long as the node needs it: what a person repairs (a
full disk, a registry) is then found repaired without anybody saying so.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from upgrader.core.driver_image.catalogue import NO_DRIVER, Catalogue
from upgrader.core.model.fleet import NodeFacts

RETRY = timedelta(minutes=15)
"""From the end of an upgrade to the next attempt at the same. Longer than a preparation may take, so that a node that
fails for weeks costs little."""


class Need(StrEnum):
    """What a node needs of its stack."""

    INSTALL = "Install"
    REPAIR = "Repair"
    UNMARK = "Unmark"


class Attempt(Struct, frozen=True, kw_only=True):
    """A node upgrade that was ordered for the same need before."""

    number: int
    ended_at: datetime | None  # None while it is under way


def need(node: NodeFacts, catalogue: Catalogue, *, orphaned: bool = False) -> Need | None:
    """What a node needs; None where it needs nothing, or a plan.

    `orphaned`: it is claimed by an upgrade that is no more, or that gave it back. Where that one had changed nothing
    yet (it takes the revision away first), only its marks go; otherwise nobody knows how far it came, and the node is
    installed anew.
    """
    if orphaned and (node.revision or not node.driver_key):
        return Need.UNMARK
    if not orphaned and node.driver_key == NO_DRIVER and catalogue.had(node) is not None:
        return Need.REPAIR
    if orphaned or node.driver_key in {"", NO_DRIVER}:
        return Need.INSTALL
    return Need.REPAIR if kernel_changed(node, catalogue) else None


def why_closed(node: NodeFacts, catalogue: Catalogue) -> str:
    """Why a node whose upgrade is no more stays closed where no stack selects it, to install it anew; empty: it opens.

    It opens only where nothing was taken away from it: it runs what it had before its upgrade, or nothing of ours ever.
    """
    if node.left_alone:
        return node.unreadable or "a person or another operator wants it left alone"
    if not (node.driver_key or node.operands or node.revision or node.removed_driver):
        return ""
    if node.driver_key in {"", NO_DRIVER} or node.removed_driver is not None:
        return "its driver was switched off"
    if node.operands != "on":
        return "its operands are not switched on"
    if not node.revision:
        return "its driver was switched on, and nobody knows whether it works"
    return f"its driver is not for its kernel {node.kernel}" if kernel_changed(node, catalogue) else ""


def kernel_changed(node: NodeFacts, catalogue: Catalogue) -> bool:
    """Whether the driver that the node's label names is for another kernel than it runs."""
    image = catalogue.of(node)
    return image is not None and bool(node.kernel) and image.kernel != node.kernel


def next_attempt(before: Iterable[Attempt], now: datetime) -> int | None:
    """Number of the attempt that is due; None while one is under way, or ended too short a time ago."""
    last = max(before, key=lambda one: one.number, default=None)
    if last is None:
        return 1
    if last.ended_at is None or now < last.ended_at + RETRY:
        return None
    return last.number + 1
