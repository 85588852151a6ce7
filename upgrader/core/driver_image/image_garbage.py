"""Which driver images may be deleted: none that a node, a node upgrade or a plan could still ask for. Pure.

An image is kept while its kernel runs on any node, is about to run on one, or ran there before: that is what a node
comes back with after a reboot, and what a rollback needs. All of a kernel's images are kept, whatever their driver.
Objects tell of the kernels that upgrades installed; a node that was rebooted into a new one by somebody else leaves no
trace of the old one, so what each sweep saw running is remembered with when, and counts as before for a window.
What nobody needs is marked first and deleted when it has been so for the whole grace period, so that one odd look at a
cluster deletes nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec import Struct

from upgrader.core.node_protocol.node_features import label_value


class StoredImage(Struct, frozen=True, kw_only=True, order=True):
    """An image in a store: the kernel that it is for, and its pinned name (`name@sha256:...`)."""

    kernel: str
    image: str

    @property
    def digest(self) -> str:
        """`sha256:...`: the same bytes elsewhere are the same image."""
        return self.image.rpartition("@")[2]


class Uses(Struct, frozen=True, kw_only=True):
    """What clusters show that is needed: kernels, and digests (`sha256:...`) that an object names.

    Kernels that run, and those that ran before, may be as labels have them. `wanted` are kernels of the matrix: what an
    archive offers may be booted tomorrow.
    """

    running: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    previous: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()

    def union(self, other: "Uses") -> "Uses":
        """What either needs."""
        return Uses(**{name: getattr(self, name) | getattr(other, name) for name in self.__struct_fields__})


class Marks(Struct, frozen=True, kw_only=True):
    """What one sweep leaves for the next.

    `unused`: since when a digest has been needed by nobody; `seen`: when a node was last seen to run a kernel, in any
    of the clusters.
    """

    unused: dict[str, datetime] = {}
    seen: dict[str, datetime] = {}


class Fate(StrEnum):
    """What becomes of an image."""

    KEPT = "kept"
    MARKED = "marked"
    DELETED = "deleted"


class ImageFate(Struct, frozen=True, kw_only=True):
    """An image, what becomes of it, and why. `unused_since` is set where nobody needs it."""

    image: StoredImage
    fate: Fate
    reason: str
    unused_since: datetime | None = None


def sweep(
    images: Sequence[StoredImage], uses: Uses, marks: Mapping[str, datetime], now: datetime, grace: timedelta
) -> tuple[ImageFate, ...]:
    """The fate of each image; `marks` says since when a digest has been unused, by earlier sweeps.

    Without any running kernel nothing is deleted: a fleet without nodes is a fleet that was not seen.
    Bytes of two names are kept for either.
    """
    needed = {one.digest: why for one in sorted(images) if (why := _needed(one, uses))}
    seen = bool(uses.running)
    return tuple(
        _fate(one, _needed(one, uses) or needed.get(one.digest, ""), marks, now, grace, seen=seen)
        for one in sorted(images)
    )


def remembering(uses: Uses, marks: Marks, now: datetime, window: timedelta) -> Uses:
    """What is needed, with the kernels that an earlier sweep saw running within the window as previous ones."""
    recent = {kernel for kernel, at in marks.seen.items() if now - at < window}
    return msgspec.structs.replace(uses, previous=uses.previous | recent)


def marks_after(unused: Mapping[str, datetime], uses: Uses, marks: Marks, now: datetime, window: timedelta) -> Marks:
    """What the next sweep has to know; `unused` is since when each digest is that nobody needs now.

    An image that is needed again loses its mark, and one that is no longer there too; a kernel is forgotten when it was
    last seen before the window.
    """
    recent = {kernel: at for kernel, at in marks.seen.items() if now - at < window}
    return Marks(unused=dict(unused), seen={**recent, **dict.fromkeys(uses.running, now)})


def marks_looked(unused: Mapping[str, datetime], uses: Uses, marks: Marks, now: datetime) -> Marks:
    """What a look that deletes nothing leaves for the next sweep: only what keeps images.

    Nobody's grace period begins by a look. But an image that is needed now was not unused for all of it, and a kernel
    that a node runs now is one that it ran before.
    """
    still = {digest: since for digest, since in marks.unused.items() if digest in unused}
    return Marks(unused=still, seen={**marks.seen, **dict.fromkeys(uses.running, now)})


def aged(digest: str, marks: Mapping[str, datetime], now: datetime, grace: timedelta) -> tuple[Fate, datetime]:
    """What becomes of something that nobody needs now, and since when that has been so."""
    since = min(marks.get(digest, now), now)
    outlived = digest in marks and now - since >= grace
    return (Fate.DELETED if outlived else Fate.MARKED), since


def _fate(
    image: StoredImage, needed: str, marks: Mapping[str, datetime], now: datetime, grace: timedelta, *, seen: bool
) -> ImageFate:
    if needed:
        return ImageFate(image=image, fate=Fate.KEPT, reason=needed)
    fate, since = aged(image.digest, marks, now, grace)
    if not seen:
        return ImageFate(
            image=image, fate=Fate.KEPT, reason="no node was seen, so nothing is known", unused_since=since
        )
    said = f"no node runs, ran or is to run {image.kernel}, since {since:%Y-%m-%d}"
    if fate is Fate.MARKED:
        said = f"nobody needs {image.kernel}; deleted from {since + grace:%Y-%m-%d} on if that stays so"
    return ImageFate(image=image, fate=fate, reason=said, unused_since=since)


def _needed(image: StoredImage, uses: Uses) -> str:
    """Why an image is kept; empty where nothing needs it."""
    return "an object of a cluster names it" if image.digest in uses.named else why_kernel(image.kernel, uses)


def why_kernel(release: str, uses: Uses) -> str:
    """Why what is for a kernel is kept; empty where nothing needs it."""
    if _among(release, uses.running):
        return f"nodes run {release}"
    if release in uses.pending:
        return f"nodes are to run {release}"
    if _among(release, uses.previous):
        return f"nodes ran {release} before"
    if release in uses.wanted:
        return f"the matrix has {release}"
    return ""


def _among(kernel: str, seen: frozenset[str]) -> bool:
    """Whether a kernel was seen, by its name or by a label, which has it escaped."""
    return kernel in seen or label_value(kernel) in seen
