"""Packages of the local store that nothing wanted is built of: listed, and deleted. What is decided: core.

core/driver_image/package_garbage.py decides, over what the catalog and the images of a store name.
"""

import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Input
from upgrader.core.driver_image.image_garbage import Fate
from upgrader.core.driver_image.package_garbage import KernelPackages, Known, PackageFate, StoredPackage
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import Package
from upgrader.images.drivers.builder.assembly import MANIFEST, unpack_driver
from upgrader.images.drivers.builder.catalog import Catalog
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.drivers.recipe.manifest import read_manifest
from upgrader.process import run

_SECONDS = 60.0
_PACKAGE = "package"


class SweptPackage(Struct, frozen=True, kw_only=True, rename="camel"):
    """A package and what has become of it; `size` in bytes."""

    name: str
    sha256: str
    size: int
    fate: str
    reason: str
    unused_since: datetime | None


class SweptPackages(Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole sweep, and how many bytes each fate is about; in a dry run nothing was done of it."""

    dry_run: bool
    packages: tuple[SweptPackage, ...]
    bytes: dict[str, int]


def known(catalog: Catalog, shelf: Shelf) -> tuple[Known, dict[str, str]]:
    """What the catalog and the images of a store need, and the names of packages by their SHA-256.

    Raises:
        ConfigurationError: the store, or an image of it, cannot be read: then it is not known what it was made of.
        ProcessError: a layer cannot be unpacked.
    """
    records = shelf.records()
    shipped = [one for record in records for one in _inputs(shelf, record.digest)]
    kernels, discovery = catalog.discovery.kernels, catalog.discovery
    toolchains = [package for one in catalog.toolchains for package in one.packages]
    found = Known(
        kernels=[
            KernelPackages(release=one.release, in_archive=one.in_archive, packages=_digests(one.packages))
            for one in kernels
        ],
        toolchains=_digests(toolchains),
        drivers=_digests(discovery.packages),
        shipped=frozenset(one.sha256 for one in shipped),
        shelved=frozenset(one.identity.kernel for one in records),
    )
    named = [*toolchains, *discovery.packages, *(package for one in kernels for package in one.packages)]
    inputs = [*shipped, *(one.input for one in named)]
    return found, {one.sha256: f"{one.name} {one.version}" for one in inputs}


def _digests(packages: Iterable[Package]) -> frozenset[str]:
    return frozenset(one.sha256 for one in packages)


def _inputs(shelf: Shelf, digest: str) -> list[Input]:
    """The packages that an image says it was made of."""
    with tempfile.TemporaryDirectory(prefix="upgrader-manifest-") as place:
        root = Path(place) / "root"
        unpack_driver(shelf.layout(digest), root, only=MANIFEST)
        return [one for one in read_manifest(root / MANIFEST).inputs if one.kind == _PACKAGE]


def stored(store: PackageStore, names: Mapping[str, str]) -> tuple[StoredPackage, ...]:
    """All packages that are here. Those that `names` lacks are asked themselves; half a package has no name."""
    return tuple(
        StoredPackage(name=names.get(sha256) or _own_name(store.file(sha256)), sha256=sha256, size=size)
        for sha256, size in sorted(store.sizes().items())
    )


def _own_name(path: Path) -> str:
    if not path.is_file():
        return ""
    words: list[str | Path] = ["dpkg-deb", "--show", "--showformat=${Package} ${Version}", path]
    return run(words, timeout=_SECONDS, check=False).text


def delete(store: PackageStore, fates: Collection[PackageFate]) -> None:
    """Delete what is to be deleted; only inside `store.alone()`."""
    for one in fates:
        if one.fate is Fate.DELETED:
            store.remove(one.package.sha256)


def told(fates: Collection[PackageFate], *, dry_run: bool) -> SweptPackages:
    """A sweep for people and programs."""
    sizes: Counter[str] = Counter()
    for one in fates:
        sizes[one.fate.value] += one.package.size
    return SweptPackages(
        dry_run=dry_run,
        packages=tuple(
            SweptPackage(
                name=one.package.name,
                sha256=one.package.sha256,
                size=one.package.size,
                fate=one.fate.value,
                reason=one.reason,
                unused_since=one.unused_since,
            )
            for one in fates
        ),
        bytes={fate.value: sizes[fate.value] for fate in Fate},
    )
