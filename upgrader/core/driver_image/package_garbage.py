"""Which packages of the local store may be deleted: none that something wanted could still be built of. Pure.

What an archive still has can be fetched again and is kept all the same, as long as the catalog names it. A kernel that
the archive has lost is kept as its images are: while a node runs it, is to run it or ran it before, the matrix has it,
or the store of images has one for it; then an old kernel's image can still be built. All else is marked first, and
deleted when nothing has needed it for the whole grace period.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from upgrader.core.driver_image.image_garbage import Fate, Uses, aged, why_kernel


class StoredPackage(Struct, frozen=True, kw_only=True, order=True):
    """A package in the store, whole or what was fetched of it so far. `name` is for people; `size` in bytes."""

    name: str
    sha256: str
    size: int


class KernelPackages(Struct, frozen=True, kw_only=True):
    """A kernel of the catalog, and the SHA-256 of each package that is needed to build for it and to boot it."""

    release: str
    in_archive: bool
    packages: frozenset[str]


class Known(Struct, frozen=True, kw_only=True):
    """What this machine knows of packages, by their SHA-256.

    `drivers` and `toolchains` are those that the catalog names, `shipped` what the images of the store were made of,
    `shelved` the kernels that they are for.
    """

    kernels: Sequence[KernelPackages] = ()
    toolchains: frozenset[str] = frozenset()
    drivers: frozenset[str] = frozenset()
    shipped: frozenset[str] = frozenset()
    shelved: frozenset[str] = frozenset()


class PackageFate(Struct, frozen=True, kw_only=True):
    """A package, what becomes of it, and why. `unused_since` is set where nothing needs it."""

    package: StoredPackage
    fate: Fate
    reason: str
    unused_since: datetime | None = None


def sweep_packages(
    packages: Sequence[StoredPackage],
    known: Known,
    uses: Uses,
    marks: Mapping[str, datetime],
    now: datetime,
    grace: timedelta,
) -> tuple[PackageFate, ...]:
    """The fate of each package; `marks` says since when a SHA-256 has been unused, by earlier sweeps.

    Without any running kernel, or any kernel of an archive, nothing is deleted: then nothing is known.
    """
    doubt = "" if uses.running and known.kernels else "no node, or no kernel of an archive, was seen"
    needed = _needed(known, uses)
    return tuple(_fate(one, needed.get(one.sha256, doubt), marks, now, grace) for one in sorted(packages))


def _fate(
    package: StoredPackage, why: str, marks: Mapping[str, datetime], now: datetime, grace: timedelta
) -> PackageFate:
    if why:
        return PackageFate(package=package, fate=Fate.KEPT, reason=why)
    fate, since = aged(package.sha256, marks, now, grace)
    said = f"nothing that is wanted is built of it, since {since:%Y-%m-%d}"
    if fate is Fate.MARKED:
        said = f"nothing that is wanted is built of it; deleted from {since + grace:%Y-%m-%d} on if that stays so"
    return PackageFate(package=package, fate=fate, reason=said, unused_since=since)


def _needed(known: Known, uses: Uses) -> dict[str, str]:
    """Why each package is kept that is; of several reasons that of the kernel it belongs to."""
    needed = dict.fromkeys(known.shipped, "an image of the store was made of it")
    needed |= dict.fromkeys(known.drivers, "the catalog has it for a driver")
    needed |= dict.fromkeys(known.toolchains, "a toolchain has it")
    for kernel in known.kernels:
        if why := _why(kernel, known, uses):
            needed |= dict.fromkeys(kernel.packages, why)
    return needed


def _why(kernel: KernelPackages, known: Known, uses: Uses) -> str:
    if why := why_kernel(kernel.release, uses):
        return why
    if kernel.release in known.shelved:
        return f"the store has an image for {kernel.release}"
    return f"the archive has {kernel.release}" if kernel.in_archive else ""
