"""Lists and deletes packages of the local store that no wanted image is built from.

core/driver_image/package_garbage.py decides, from the catalog and the images of a store. Needs, grace period and record
are those of images. Listing and deletion are not: packages are files of one local store and have names and sizes;
images are in a store or a registry and have tags and attachments.
"""

import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Input
from upgrader.core.driver_image.image_garbage import Fate, ItemFate
from upgrader.core.driver_image.package_garbage import KernelPackages, KnownPackages, StoredPackage
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
    """A package and its fate; `size` in bytes."""

    name: str
    sha256: str
    size: int
    fate: str
    reason: str
    unused_since: datetime | None


class SweptPackages(Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole sweep, and the bytes per fate. A dry run deletes nothing."""

    dry_run: bool
    packages: tuple[SweptPackage, ...]
    bytes: dict[str, int]


def needed_packages(catalog: Catalog, shelf: Shelf) -> tuple[KnownPackages, dict[str, str]]:
    """The packages that the catalog and the images of a store need, and the names of packages by their SHA-256.

    Raises:
        ConfigurationError: the store or one of its images cannot be read, so that its inputs are unknown.
        ProcessError: a layer cannot be unpacked.
    """
    records = shelf.list_records()
    shipped = [package_input for record in records for package_input in _package_inputs(shelf, record.digest)]
    kernels, discovery = catalog.discovery.kernels, catalog.discovery
    toolchains = [package for toolchain in catalog.toolchains for package in toolchain.packages]
    known = KnownPackages(
        kernels=[
            KernelPackages(
                release=kernel.release, in_archive=kernel.in_archive, packages=_package_digests(kernel.packages)
            )
            for kernel in kernels
        ],
        toolchains=_package_digests(toolchains),
        drivers=_package_digests(discovery.packages),
        shipped=frozenset(package_input.sha256 for package_input in shipped),
        shelved=frozenset(record.identity.kernel for record in records),
    )
    named = [*toolchains, *discovery.packages, *(package for kernel in kernels for package in kernel.packages)]
    inputs = [*shipped, *(package.build_input for package in named)]
    return known, {package_input.sha256: f"{package_input.name} {package_input.version}" for package_input in inputs}


def _package_digests(packages: Iterable[Package]) -> frozenset[str]:
    return frozenset(package.sha256 for package in packages)


def _package_inputs(shelf: Shelf, digest: str) -> list[Input]:
    """The packages in an image's manifest."""
    with tempfile.TemporaryDirectory(prefix="upgrader-manifest-") as place:
        root = Path(place) / "root"
        unpack_driver(shelf.open_layout(digest), root, only=MANIFEST)
        return [
            package_input for package_input in read_manifest(root / MANIFEST).inputs if package_input.kind == _PACKAGE
        ]


def stored_packages(store: PackageStore, names: Mapping[str, str]) -> tuple[StoredPackage, ...]:
    """All packages of the store. Names that `names` lacks are read from the package; incomplete packages have none."""
    return tuple(
        StoredPackage(name=names.get(sha256) or _own_name(store.digest_path(sha256)), sha256=sha256, size=size)
        for sha256, size in sorted(store.stored_sizes().items())
    )


def _own_name(path: Path) -> str:
    if not path.is_file():
        return ""
    words: list[str | Path] = ["dpkg-deb", "--show", "--showformat=${Package} ${Version}", path]
    return run(words, timeout=_SECONDS, check=False).text


def delete_packages(store: PackageStore, fates: Collection[ItemFate[StoredPackage]]) -> None:
    """Delete the packages with that fate; only inside `store.exclusive_use()`."""
    for fate in fates:
        if fate.fate is Fate.DELETED:
            store.remove(fate.item.sha256)


def sweep_report(fates: Collection[ItemFate[StoredPackage]], *, dry_run: bool) -> SweptPackages:
    """A sweep for users and programs."""
    sizes: Counter[str] = Counter()
    for fate in fates:
        sizes[fate.fate.value] += fate.item.size
    return SweptPackages(
        dry_run=dry_run,
        packages=tuple(
            SweptPackage(
                name=fate.item.name,
                sha256=fate.item.sha256,
                size=fate.item.size,
                fate=fate.fate.value,
                reason=fate.reason,
                unused_since=fate.unused_since,
            )
            for fate in fates
        ),
        bytes={fate.value: sizes[fate.value] for fate in Fate},
    )
