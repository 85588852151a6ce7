"""Garbage collection of the local package store: no package that a wanted image may be built from is deleted. Pure.

Packages that an archive still has can be fetched again and are still kept, as long as the catalog names them. The
packages of a kernel that the archive no longer has are kept like its images: while a node runs it, is to run it or ran
it before, the matrix has it, or the image store has an image for it; so an old kernel's image can still be built. All
others are recorded first, and deleted after they have been unneeded for the whole grace period.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from upgrader.core.driver_image.image_garbage import Fate, ItemFate, Uses, judge_unneeded, why_kernel


class StoredPackage(Struct, frozen=True, kw_only=True, order=True):
    """A package in the store, whole or partly fetched. `name` is for messages; `size` in bytes."""

    name: str
    sha256: str
    size: int

    @property
    def digest(self) -> str:
        """The SHA-256 in hexadecimal."""
        return self.sha256


class KernelPackages(Struct, frozen=True, kw_only=True):
    """A kernel of the catalog, and the SHA-256 of each package that builds for it and its boot need."""

    release: str
    in_archive: bool
    packages: frozenset[str]


class KnownPackages(Struct, frozen=True, kw_only=True):
    """The packages that this machine has records of, by their SHA-256.

    `drivers` and `toolchains` are packages that the catalog names, `shipped` the packages that the images of the store
    were built from, `shelved` the kernels of those images.
    """

    kernels: Sequence[KernelPackages] = ()
    toolchains: frozenset[str] = frozenset()
    drivers: frozenset[str] = frozenset()
    shipped: frozenset[str] = frozenset()
    shelved: frozenset[str] = frozenset()


def judge_packages(
    packages: Sequence[StoredPackage],
    known: KnownPackages,
    uses: Uses,
    unused: Mapping[str, datetime],
    now: datetime,
    grace: timedelta,
) -> tuple[ItemFate[StoredPackage], ...]:
    """The fate of each package; `unused`: since when a SHA-256 has been unused, by earlier sweeps.

    Without any running kernel, or any kernel of an archive, nothing is deleted: the needs are unknown.
    """
    doubt = "" if uses.running and known.kernels else "no node, or no kernel of an archive, was seen"
    needed = _needed_packages(known, uses)
    return tuple(
        ItemFate(item=package, fate=Fate.KEPT, reason=why)
        if (why := needed.get(package.sha256, doubt))
        else judge_unneeded(package, (_UNNEEDED, _UNNEEDED), unused, now, grace)
        for package in sorted(packages)
    )


_UNNEEDED = "no required image is built from it"


def _needed_packages(known: KnownPackages, uses: Uses) -> dict[str, str]:
    """Why each kept package is kept; of several reasons, that of its kernel."""
    needed = dict.fromkeys(known.shipped, "an image of the store was built from it")
    needed |= dict.fromkeys(known.drivers, "the catalog has it for a driver")
    needed |= dict.fromkeys(known.toolchains, "a toolchain has it")
    for kernel in known.kernels:
        if why := _explain_kernel_need(kernel, known, uses):
            needed |= dict.fromkeys(kernel.packages, why)
    return needed


def _explain_kernel_need(kernel: KernelPackages, known: KnownPackages, uses: Uses) -> str:
    if why := why_kernel(kernel.release, uses):
        return why
    if kernel.release in known.shelved:
        return f"the store has an image for {kernel.release}"
    return f"the archive has {kernel.release}" if kernel.in_archive else ""
