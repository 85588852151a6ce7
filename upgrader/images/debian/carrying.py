"""Sets of packages as an OCI layout, so that a registry can deliver them to builders without access to an archive.

Every package is a separate blob, so that a registry stores each package once for all sets. The configuration is the
list of packages. https://github.com/opencontainers/image-spec/blob/main/manifest.md#guidelines-for-artifact-usage
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import Package
from upgrader.images.layout import MANIFEST, Descriptor, Layout, LayoutWriter
from upgrader.images.wire import decode_json

PACKAGE = "application/vnd.debian.binary-package"
PACKAGES = "application/vnd.gpu-upgrader.packages.v1+json"


def pack_packages(
    packages: Iterable[Package], store: PackageStore, folder: Path, *, beside: Mapping[str, bytes] | None = None
) -> Layout:
    """Create the layout of a set of packages in its own folder. The same set in any order gives the same digest.

    Packages that the store lacks are fetched by `PackageStore.fetch`. `beside` are other contents of the layout by
    media type.
    """
    chosen = sorted({package.sha256: package for package in sorted(packages)}.values())
    layout = LayoutWriter(folder)
    layers = [
        Descriptor(media_type=PACKAGE, digest=f"sha256:{package.sha256}", size=package.size) for package in chosen
    ]
    for package, layer in zip(chosen, layers, strict=True):
        store.link_to(package, layout.blob_path(layer))
    layers += [layout.put_blob(media_type, data) for media_type, data in (beside or {}).items()]
    config = layout.put_blob(PACKAGES, msgspec.json.encode(chosen))
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    return layout.write_index(layout.put_blob(MANIFEST, msgspec.json.encode(manifest)))


def unpack_packages(layout: Layout, store: PackageStore) -> tuple[Package, ...]:
    """Add all packages of a layout to the store, each compared with its digest. Returns them, sorted.

    Raises:
        ConfigurationError: the layout is not a set of packages, or blobs are missing.
        HashMismatchError: a blob differs from its digest. The packages before it were added.
        DiskFullError: no space left.
    """
    packages = _listed_packages(layout)
    for package in packages:
        blob = layout.folder / "blobs/sha256" / package.sha256
        if not blob.is_file():
            raise ConfigurationError(f"{layout.folder} lacks the package {package}", details=f"sha256:{package.sha256}")
        store.add(package, blob)
    return packages


def _listed_packages(layout: Layout) -> tuple[Package, ...]:
    *layers, config = layout.blobs
    try:
        if config.media_type != PACKAGES:
            raise ConfigurationError(f"{layout.folder} is not a set of packages", details=config.media_type)
        data = layout.blob_path(config).read_bytes()
        packages = decode_json(data, tuple[Package, ...])
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{layout.folder} is not a set of packages", details=str(error)) from error
    if "sha256:" + hashlib.sha256(data).hexdigest() != config.digest:
        raise ConfigurationError(f"the list of packages in {layout.folder} was changed", details=config.digest)
    if {layer.digest for layer in layers if layer.media_type == PACKAGE} != {
        f"sha256:{package.sha256}" for package in packages
    }:
        raise ConfigurationError(f"the packages of {layout.folder} differ from its list")
    return packages
