"""An OCI image layout on disk that holds one image: what is built is kept so, and can be carried or pushed.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from upgrader.core.errors import ConfigurationError
from upgrader.images.wire import decode

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_VERSION = b'{"imageLayoutVersion":"1.0.0"}'


class Descriptor(Struct, frozen=True, kw_only=True, rename="camel"):
    """A blob: its media type, its digest (`sha256:...`), its size in bytes."""

    media_type: str
    digest: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]  # it becomes a path
    size: Annotated[int, Meta(ge=0)]


class _Index(Struct, frozen=True, kw_only=True):
    manifests: tuple[Descriptor, ...]


class _Manifest(Struct, frozen=True, kw_only=True, rename="camel"):
    config: Descriptor
    layers: tuple[Descriptor, ...]
    media_type: str = ""


class Layout:
    """The layout in a folder; of several images the one with `digest`.

    Raises:
        ConfigurationError: there is none, or it does not hold exactly one image, or not that one.
    """

    def __init__(self, folder: Path, digest: str = "") -> None:
        self.folder = folder
        try:
            index = decode((folder / "index.json").read_bytes(), _Index)
            (self.image,) = (one for one in index.manifests if digest in {"", one.digest})
            self.blobs = blobs(self.path(self.image).read_bytes())
        except (FileNotFoundError, ValueError) as error:
            raise ConfigurationError(f"{folder} holds no OCI layout with one image", details=str(error)) from error

    def path(self, blob: Descriptor) -> Path:
        """Where a blob is."""
        return _path(self.folder, blob)

    @property
    def size(self) -> int:
        """Bytes that a registry or a node gets."""
        return sum(blob.size for blob in self.blobs)

    def whole(self) -> bool:
        """Whether every blob is there with the contents that its digest says."""
        return all(_intact(self.path(blob), blob) for blob in (self.image, *self.blobs))


class LayoutWriter:
    """A layout in the making: blobs first, `finish` last. What is in the folder already is used again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        (folder / "index.json").unlink(missing_ok=True)

    def path(self, blob: Descriptor) -> Path:
        """Where a blob belongs."""
        return _path(self.folder, blob)

    def has(self, blob: Descriptor) -> bool:
        """Whether a blob is there, with the contents that its digest says."""
        return _intact(self.path(blob), blob)

    def put(self, media_type: str, data: bytes) -> Descriptor:
        """Write a blob from memory.

        Raises:
            ConfigurationError: the disk is full, or the folder cannot be written to.
        """
        blob = Descriptor(media_type=media_type, digest=f"sha256:{hashlib.sha256(data).hexdigest()}", size=len(data))
        try:
            self.path(blob).write_bytes(data)
        except OSError as error:
            said = f"{blob.size} bytes: {error.strerror or error}"
            raise ConfigurationError(f"{self.path(blob)} cannot be written", details=said) from error
        return blob

    def finish(self, image: Descriptor) -> Layout:
        """The layout of the image whose manifest and blobs were put there.

        Raises:
            ConfigurationError: a manifest that is none.
        """
        for name, data in index_files([image]).items():
            (self.folder / name).write_bytes(data)
        return Layout(self.folder)


def index_files(images: Sequence[Descriptor]) -> dict[str, bytes]:
    """What a layout has beside its blobs, contents by name, where it lists these images."""
    index = {"schemaVersion": 2, "manifests": images}
    return {"oci-layout": _VERSION, "index.json": msgspec.json.encode(index)}


def images(folder: Path) -> tuple[Descriptor, ...]:
    """All images that the layout in a folder lists.

    Raises:
        ConfigurationError: there is none.
    """
    try:
        return decode((folder / "index.json").read_bytes(), _Index).manifests
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{folder} holds no OCI layout", details=str(error)) from error


def blobs(manifest: bytes) -> tuple[Descriptor, ...]:
    """What an image's manifest lists: its layers, then its configuration.

    Raises:
        ValueError: it is no manifest of one image.
    """
    decoded = decode(manifest, _Manifest)
    return (*decoded.layers, decoded.config)


def media_type(manifest: bytes) -> str:
    """What a manifest says that it is; OCI's own need not say it.

    Raises:
        ValueError: it is no manifest of one image.
    """
    return decode(manifest, _Manifest).media_type or MANIFEST


def _path(folder: Path, blob: Descriptor) -> Path:
    algorithm, _, digits = blob.digest.partition(":")
    return folder / "blobs" / algorithm / digits


def _intact(path: Path, blob: Descriptor) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" == blob.digest
