"""Upgrades that a stack orders without a plan: of nodes on which no work can be lost, or no GPU pod can run.

Pure. A failed upgrade is retried after a while, for as long as the node needs it: once a user has removed the cause
(a full disk, a registry), a later attempt succeeds without an order. Only the take-over of a node from another operator
is not: each attempt ends the operands of that operator, so that it waits for a user after a few failures.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from upgrader.core.driver_image.catalogue import NO_DRIVER, Catalogue
from upgrader.core.model.fleet import NodeFacts

RETRY = timedelta(minutes=15)
"""From the end of an upgrade to its next attempt. Longer than a preparation may take, so that a node that fails for
weeks costs little."""


class NodeNeed(StrEnum):
    """What a node needs from its stack."""

    INSTALL = "Install"
    REPAIR = "Repair"
    RELEASE = "Release"


class Attempt(Struct, frozen=True, kw_only=True):
    """A node upgrade that was ordered for the same need before."""

    number: int
    ended_at: datetime | None  # None while it is in progress


def find_need(node: NodeFacts, catalogue: Catalogue, *, orphaned: bool = False) -> NodeNeed | None:
    """What a node needs; None if it needs nothing, or a plan.

    `orphaned`: it is claimed by an upgrade that no longer exists, or that has released it. If that upgrade had changed
    nothing yet (it removes the revision first), only its claim and taint are removed; otherwise its progress is
    unknown, and the node is installed again.
    """
    if orphaned and (node.revision or not node.driver_key):
        return NodeNeed.RELEASE
    if not orphaned and node.driver_key == NO_DRIVER and catalogue.former_image(node) is not None:
        return NodeNeed.REPAIR
    if orphaned or node.driver_key in {"", NO_DRIVER}:
        return NodeNeed.INSTALL
    return NodeNeed.REPAIR if kernel_changed(node, catalogue) else None


def why_closed(node: NodeFacts, catalogue: Catalogue) -> str:
    """Why a node that no stack selects stays tainted after its upgrade was deleted; empty: its taint is removed.

    The taint is removed only if nothing was removed from the node: it runs what it ran before its upgrade, or it never
    had a driver.
    """
    if node.left_alone:
        return node.unreadable or "its labels exclude it, or another operator manages it"
    if not (node.driver_key or node.operands or node.revision or node.removed_driver):
        return ""
    if node.driver_key in {"", NO_DRIVER} or node.removed_driver is not None:
        return "its driver was switched off"
    if node.operands != "on":
        return "its operands are not switched on"
    if not node.revision:
        return "its driver was switched on and was not validated"
    return f"its driver is not for its kernel {node.kernel}" if kernel_changed(node, catalogue) else ""


def kernel_changed(node: NodeFacts, catalogue: Catalogue) -> bool:
    """Whether the driver that the node's label names is for another kernel than it runs."""
    image = catalogue.image_of(node)
    return image is not None and bool(node.kernel) and image.kernel != node.kernel


def is_adoption(node: NodeFacts) -> bool:
    """Whether the next upgrade of a node takes it over from another operator."""
    return node.adopted and bool(node.foreign_labels)


def next_attempt(before: Iterable[Attempt], now: datetime, *, most: int | None = None) -> int | None:
    """Number of the attempt that is due; None while an attempt is in progress, or ended too recently, or is the last.

    `most`: number of attempts; None: any number.
    """
    last = max(before, key=lambda attempt: attempt.number, default=None)
    if last is None:
        return 1
    if last.ended_at is None or now < last.ended_at + RETRY or (most is not None and last.number >= most):
        return None
    return last.number + 1
