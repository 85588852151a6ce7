"""Garbage collection of driver images: no image that a node, a node upgrade or a plan may need is deleted. Pure.

Also here: needs, fates and records, which package_garbage.py uses too.

An image is kept while its kernel runs on any node, is about to run on one, or ran there before: a node needs it after a
reboot, and a rollback needs it. All images of a kernel are kept, of any driver. Objects record the kernels that
upgrades installed; a node that others reboot into a new kernel leaves no record of the old one, so that each sweep
records the running kernels with a time, and they count as previous ones for a window. An unneeded image is recorded
first, and deleted after it has been unneeded for the whole grace period, so that one wrong read of a cluster deletes
nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.node_features import label_value


class StoredImage(Struct, frozen=True, kw_only=True, order=True):
    """An image in a store: its kernel, and its pinned name (`name@sha256:...`)."""

    kernel: str
    image: str

    @property
    def digest(self) -> str:
        """`sha256:...`: the same bytes under another name are the same image."""
        return self.image.rpartition("@")[2]


class Uses(Struct, frozen=True, kw_only=True):
    """Needs of clusters: kernels, and digests (`sha256:...`) that an object names.

    Running and previous kernels may be in the form of label values. `wanted` are kernels of the matrix: a node may boot
    a kernel that an archive offers.
    """

    running: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    previous: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()

    def union(self, other: "Uses") -> "Uses":
        """The needs of both."""
        return Uses(**{name: getattr(self, name) | getattr(other, name) for name in self.__struct_fields__})


class UsageRecord(Struct, frozen=True, kw_only=True):
    """The record that one sweep leaves for the next.

    `unused`: since when a digest has been unneeded; `seen`: when a node last ran a kernel, in any of the clusters.
    """

    unused: dict[str, datetime] = {}
    seen: dict[str, datetime] = {}


class Fate(StrEnum):
    """What happens to an image or a package."""

    KEPT = "kept"
    UNUSED = "unused"
    DELETED = "deleted"


class Stored(Protocol):
    """An image or a package of a store."""

    @property
    def digest(self) -> str:
        """The key in the record."""


Item = TypeVar("Item", bound=Stored)


class ItemFate(Struct, Generic[Item], frozen=True, kw_only=True):
    """An image or a package, what happens to it, and why. `unused_since` is set if it is unneeded."""

    item: Item
    fate: Fate
    reason: str
    unused_since: datetime | None = None


def judge_images(
    images: Sequence[StoredImage], uses: Uses, unused: Mapping[str, datetime], now: datetime, grace: timedelta
) -> tuple[ItemFate[StoredImage], ...]:
    """The fate of each image; `unused`: since when a digest has been unused, by earlier sweeps.

    Without any running kernel nothing is deleted: a fleet without nodes is a failed read.
    Bytes with two names are kept if either name is needed.
    """
    needed = {image.digest: why for image in sorted(images) if (why := _explain_need(image, uses))}
    seen = bool(uses.running)
    return tuple(
        _judge_image(image, _explain_need(image, uses) or needed.get(image.digest, ""), unused, now, grace, seen=seen)
        for image in sorted(images)
    )


def with_earlier_kernels(uses: Uses, record: UsageRecord, now: datetime, window: timedelta) -> Uses:
    """The needs, with the kernels that ran at an earlier sweep within the window as previous ones."""
    recent = {kernel for kernel, at in record.seen.items() if now - at < window}
    return msgspec.structs.replace(uses, previous=uses.previous | recent)


def record_after_sweep(
    unused: Mapping[str, datetime], uses: Uses, record: UsageRecord, now: datetime, window: timedelta
) -> UsageRecord:
    """The record for the next sweep; `unused`: since when each digest that is unneeded now has been so.

    Images that are needed again or deleted are removed from the record, and so is a kernel that last ran before the
    window.
    """
    recent = {kernel: at for kernel, at in record.seen.items() if now - at < window}
    return UsageRecord(unused=dict(unused), seen={**recent, **dict.fromkeys(uses.running, now)})


def record_after_dry_run(unused: Mapping[str, datetime], uses: Uses, record: UsageRecord, now: datetime) -> UsageRecord:
    """The record that a dry run leaves for the next sweep: only entries that keep images.

    A dry run starts no grace period. But an image that is needed now was not unused for all of its grace period, and a
    kernel that a node runs now counts as previous later.
    """
    still = {digest: since for digest, since in record.unused.items() if digest in unused}
    return UsageRecord(unused=still, seen={**record.seen, **dict.fromkeys(uses.running, now)})


def judge_unneeded(
    item: Item, reasons: tuple[str, str], unused: Mapping[str, datetime], now: datetime, grace: timedelta
) -> ItemFate[Item]:
    """The fate of an unneeded item; `reasons` state why, in the grace period and after it."""
    since = min(unused.get(item.digest, now), now)
    if item.digest in unused and now - since >= grace:
        fate, reason = Fate.DELETED, f"{reasons[1]}, since {since:%Y-%m-%d}"
    else:
        fate, reason = Fate.UNUSED, f"{reasons[0]}; deleted from {since + grace:%Y-%m-%d} on if it remains so"
    return ItemFate(item=item, fate=fate, reason=reason, unused_since=since)


def _judge_image(
    image: StoredImage, needed: str, unused: Mapping[str, datetime], now: datetime, grace: timedelta, *, seen: bool
) -> ItemFate[StoredImage]:
    if needed:
        return ItemFate(item=image, fate=Fate.KEPT, reason=needed)
    reasons = (f"{image.kernel} is not needed", f"no node runs, ran or is to run {image.kernel}")
    judged = judge_unneeded(image, reasons, unused, now, grace)
    if seen:
        return judged
    return msgspec.structs.replace(judged, fate=Fate.KEPT, reason="no node was read, so the use of images is not known")


def _explain_need(image: StoredImage, uses: Uses) -> str:
    """Why an image is kept; empty if it is unneeded."""
    return "an object of a cluster names it" if image.digest in uses.named else why_kernel(image.kernel, uses)


def why_kernel(release: str, uses: Uses) -> str:
    """Why images and packages for a kernel are kept; empty if they are unneeded."""
    if _is_among(release, uses.running):
        return f"nodes run {release}"
    if release in uses.pending:
        return f"nodes are to run {release}"
    if _is_among(release, uses.previous):
        return f"nodes ran {release} before"
    if release in uses.wanted:
        return f"the matrix has {release}"
    return ""


def _is_among(kernel: str, seen: frozenset[str]) -> bool:
    """Whether a kernel is among those seen, by its name or by a label value, which contains it escaped."""
    return kernel in seen or label_value(kernel) in seen
