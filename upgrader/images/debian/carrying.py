"""Sets of packages as an OCI layout: a registry brings them to builders that no archive is reachable from.

Every package is a blob of its own, so that a registry has each once, in however many sets it is. The configuration is
the list of packages. https://github.com/opencontainers/image-spec/blob/main/manifest.md#guidelines-for-artifact-usage
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import Package
from upgrader.images.layout import MANIFEST, Descriptor, Layout, LayoutWriter
from upgrader.images.wire import decode

PACKAGE = "application/vnd.debian.binary-package"
PACKAGES = "application/vnd.gpu-upgrader.packages.v1+json"


def pack(
    packages: Iterable[Package], store: PackageStore, folder: Path, *, beside: Mapping[str, bytes] | None = None
) -> Layout:
    """Make the layout of a set of packages in a folder of its own; the same set, in any order, gives the same digest.

    Packages that the store lacks are fetched as `PackageStore.fetch` does. `beside` are other contents that go with the
    packages, by media type.
    """
    chosen = sorted({one.sha256: one for one in sorted(packages)}.values())
    layout = LayoutWriter(folder)
    layers = [Descriptor(media_type=PACKAGE, digest=f"sha256:{one.sha256}", size=one.size) for one in chosen]
    for package, layer in zip(chosen, layers, strict=True):
        store.place(package, layout.path(layer))
    layers += [layout.put(media_type, data) for media_type, data in (beside or {}).items()]
    config = layout.put(PACKAGES, msgspec.json.encode(chosen))
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    return layout.finish(layout.put(MANIFEST, msgspec.json.encode(manifest)))


def unpack(layout: Layout, store: PackageStore) -> tuple[Package, ...]:
    """Put all packages of a layout into the store, each compared with its digest. Returns them, sorted.

    Raises:
        ConfigurationError: the layout is no set of packages, or blobs are missing.
        HashMismatchError: a blob is not what its name says; those before it have entered.
        DiskFullError: no space left.
    """
    packages = _listed(layout)
    for package in packages:
        blob = layout.folder / "blobs/sha256" / package.sha256
        if not blob.is_file():
            raise ConfigurationError(f"{layout.folder} lacks the package {package}", details=f"sha256:{package.sha256}")
        store.add(package, blob)
    return packages


def _listed(layout: Layout) -> tuple[Package, ...]:
    *layers, config = layout.blobs
    try:
        if config.media_type != PACKAGES:
            raise ConfigurationError(f"{layout.folder} is no set of packages", details=f"it is {config.media_type}")
        data = layout.path(config).read_bytes()
        packages = decode(data, tuple[Package, ...])
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{layout.folder} is no set of packages", details=str(error)) from error
    if "sha256:" + hashlib.sha256(data).hexdigest() != config.digest:
        raise ConfigurationError(f"the list of packages in {layout.folder} was changed", details=config.digest)
    if {one.digest for one in layers if one.media_type == PACKAGE} != {f"sha256:{one.sha256}" for one in packages}:
        raise ConfigurationError(f"the packages of {layout.folder} are not those of its list")
    return packages
