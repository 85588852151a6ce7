"""An OCI image layout on disk that holds one image: what is built is kept so, and can be carried or pushed.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import hashlib
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.errors import ConfigurationError


class Descriptor(Struct, frozen=True, kw_only=True, rename="camel"):
    """A blob: its media type, its digest (`sha256:...`), its size in bytes."""

    media_type: str
    digest: str
    size: int


class _Index(Struct, frozen=True, kw_only=True):
    manifests: tuple[Descriptor, ...]


class _Manifest(Struct, frozen=True, kw_only=True):
    config: Descriptor
    layers: tuple[Descriptor, ...]


class Layout:
    """The layout in a folder.

    Raises:
        ConfigurationError: there is none, or it does not hold exactly one image.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            index = msgspec.json.decode((folder / "index.json").read_bytes(), type=_Index)
            (self.image,) = index.manifests
            manifest = msgspec.json.decode(self.path(self.image).read_bytes(), type=_Manifest)
        except (FileNotFoundError, ValueError) as error:
            raise ConfigurationError(f"{folder} holds no OCI layout with one image", details=str(error)) from error
        self.blobs: tuple[Descriptor, ...] = (*manifest.layers, manifest.config)

    def path(self, blob: Descriptor) -> Path:
        """Where a blob is."""
        algorithm, _, digits = blob.digest.partition(":")
        return self.folder / "blobs" / algorithm / digits

    @property
    def size(self) -> int:
        """Bytes that a registry or a node gets."""
        return sum(blob.size for blob in self.blobs)

    def whole(self) -> bool:
        """Whether every blob is there with the contents that its digest says."""
        paths = [(blob, self.path(blob)) for blob in (self.image, *self.blobs)]
        return all(path.exists() and _digest(path) == blob.digest for blob, path in paths)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
