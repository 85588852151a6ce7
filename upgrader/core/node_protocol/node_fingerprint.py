"""What a node has before a reboot and must have after it: the fingerprint, and what is less than before. Pure.

Only a loss matters: a node that has more than before is well.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

SHOWN_LOSSES = 10
"""Losses that a sentence lists; it has the number of the others."""

SHOWN_NAME = 120
"""Characters of a name in such a sentence: a mount point may have 4096."""


class Trait(StrEnum):
    """A property of a node; the value is its name in sentences."""

    MODULE = "out-of-tree kernel module"
    LINK = "network link"
    INFINIBAND = "InfiniBand port"
    VIRTUAL_FUNCTIONS = "virtual functions of"
    MOUNT = "mount"
    PCI_LANES = "PCIe lanes of"
    PCI_SPEED = "PCIe speed of"


class NodeFingerprint(Struct, frozen=True, kw_only=True):
    """The properties of a node on one boot.

    `values` has a number for each name of a trait: Mb/s of a link or port, MT/s of a lane, a number of lanes or of
    virtual functions, 1 of a module or mount. 0 means that the number is unknown. `unread`: traits that could not be
    read, with the reason; nothing is known of them.
    """

    values: dict[Trait, dict[str, int]]
    unread: dict[Trait, str] = {}

    @property
    def summary(self) -> str:
        """The number of names of each trait, for the facts of a result."""
        return ", ".join(f"{trait.removesuffix(' of')}: {len(names)}" for trait, names in self.values.items() if names)


class NodeLoss(Struct, frozen=True, kw_only=True):
    """Something that is less than before; `after` is None if it is missing, or if the trait cannot be read (`why`)."""

    trait: Trait
    name: str = ""
    before: int = 0
    after: int | None = None
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return f"{self.trait}: cannot be read ({self.why})"
        name = self.name if len(self.name) <= SHOWN_NAME else f"{self.name[:SHOWN_NAME]}…"
        after = _GONE.get(self.trait, "missing") if self.after is None else _value_text(self.trait, self.after)
        return f"{self.trait} {name}: {_value_text(self.trait, self.before)} → {after}"


_GONE = {Trait.LINK: "not up", Trait.INFINIBAND: "not active", Trait.VIRTUAL_FUNCTIONS: "0"}
"""What a name that is not in the fingerprint is, if it need not be missing."""

_PRESENT = {Trait.MODULE: "loaded", Trait.MOUNT: "mounted"}
_UNITS = {Trait.LINK: "Gb/s", Trait.INFINIBAND: "Gb/s", Trait.PCI_SPEED: "GT/s"}


def _value_text(trait: Trait, value: int) -> str:
    if trait in _PRESENT:
        return _PRESENT[trait]
    if not value:
        return "unknown"
    return f"{value / 1000:g} {_UNITS[trait]}" if trait in _UNITS else str(value)


def find_losses(before: NodeFingerprint, after: NodeFingerprint) -> tuple[NodeLoss, ...]:
    """What is less than before, in the order of the traits and of the names.

    A trait that could not be read before is not compared; one that could be read before and cannot now is a loss.
    """
    losses = []
    for trait, names in before.values.items():
        if not names:
            continue
        if trait in after.unread:
            losses.append(NodeLoss(trait=trait, why=after.unread[trait]))
            continue
        present = after.values.get(trait, {})
        losses += [
            NodeLoss(trait=trait, name=name, before=value, after=present.get(name))
            for name, value in sorted(names.items())
            if name not in present or present[name] < value
        ]
    return tuple(losses)


def describe_losses(losses: Sequence[NodeLoss]) -> str:
    """The losses as a part of a sentence, each with its value before and after; empty if there is none."""
    shown = "; ".join(str(loss) for loss in losses[:SHOWN_LOSSES])
    more = len(losses) - SHOWN_LOSSES
    return f"{shown}; and {more} more" if more > 0 else shown
