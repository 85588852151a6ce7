"""An OCI image layout on disk with one image. Built images are stored in this form, copied and pushed.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from upgrader.core.errors import ConfigurationError
from upgrader.images.wire import decode_json

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_VERSION = b'{"imageLayoutVersion":"1.0.0"}'


class Descriptor(Struct, frozen=True, kw_only=True, rename="camel"):
    """A blob: media type, digest (`sha256:...`) and size in bytes."""

    media_type: str
    digest: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]  # it becomes part of a path
    size: Annotated[int, Meta(ge=0)]


class _Index(Struct, frozen=True, kw_only=True):
    manifests: tuple[Descriptor, ...]


class _Manifest(Struct, frozen=True, kw_only=True, rename="camel"):
    config: Descriptor
    layers: tuple[Descriptor, ...]
    media_type: str = ""


class Layout:
    """The layout in a folder. `digest` selects one image of several.

    Raises:
        ConfigurationError: the folder has no layout, not exactly one image, or not the selected one.
    """

    def __init__(self, folder: Path, digest: str = "") -> None:
        self.folder = folder
        try:
            index = decode_json((folder / "index.json").read_bytes(), _Index)
            (self.image,) = (entry for entry in index.manifests if digest in {"", entry.digest})
            self.blobs = image_blobs(self.blob_path(self.image).read_bytes())
        except (FileNotFoundError, ValueError) as error:
            raise ConfigurationError(f"{folder} contains no OCI layout with one image", details=str(error)) from error

    def blob_path(self, blob: Descriptor) -> Path:
        """The path of a blob."""
        return _blob_path(self.folder, blob)

    @property
    def size(self) -> int:
        """Bytes of all blobs, as a registry or a node receives them."""
        return sum(blob.size for blob in self.blobs)

    def is_intact(self) -> bool:
        """Whether every blob exists with the contents of its digest."""
        return all(_is_intact(self.blob_path(blob), blob) for blob in (self.image, *self.blobs))


class LayoutWriter:
    """Writes a layout: blobs first, `write_index` last. Blobs that the folder already contains are reused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        (folder / "index.json").unlink(missing_ok=True)

    def blob_path(self, blob: Descriptor) -> Path:
        """The path for a blob."""
        return _blob_path(self.folder, blob)

    def has_blob(self, blob: Descriptor) -> bool:
        """Whether a blob exists with the contents of its digest."""
        return _is_intact(self.blob_path(blob), blob)

    def put_blob(self, media_type: str, data: bytes) -> Descriptor:
        """Write a blob from memory.

        Raises:
            ConfigurationError: the disk is full, or the folder is not writable.
        """
        blob = Descriptor(media_type=media_type, digest=f"sha256:{hashlib.sha256(data).hexdigest()}", size=len(data))
        try:
            self.blob_path(blob).write_bytes(data)
        except OSError as error:
            details = f"{blob.size} bytes: {error.strerror or error}"
            raise ConfigurationError(f"{self.blob_path(blob)} cannot be written", details=details) from error
        return blob

    def write_index(self, image: Descriptor) -> Layout:
        """Write the index, and return the layout of the image whose manifest and blobs were written before.

        Raises:
            ConfigurationError: the manifest is invalid.
        """
        for name, data in index_files([image]).items():
            (self.folder / name).write_bytes(data)
        return Layout(self.folder)


def index_files(images: Sequence[Descriptor]) -> dict[str, bytes]:
    """The files of a layout that lists these images, without the blobs: contents by name."""
    index = {"schemaVersion": 2, "manifests": images}
    return {"oci-layout": _VERSION, "index.json": msgspec.json.encode(index)}


def listed_images(folder: Path) -> tuple[Descriptor, ...]:
    """All images that the layout in a folder lists.

    Raises:
        ConfigurationError: the folder contains no layout.
    """
    try:
        return decode_json((folder / "index.json").read_bytes(), _Index).manifests
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{folder} contains no OCI layout", details=str(error)) from error


def image_blobs(manifest: bytes) -> tuple[Descriptor, ...]:
    """The descriptors in an image's manifest: its layers, then its configuration.

    Raises:
        ValueError: the bytes are not a manifest of a single image.
    """
    decoded = decode_json(manifest, _Manifest)
    return (*decoded.layers, decoded.config)


def media_type(manifest: bytes) -> str:
    """The media type that a manifest declares. OCI manifests may omit it.

    Raises:
        ValueError: the bytes are not a manifest of a single image.
    """
    return decode_json(manifest, _Manifest).media_type or MANIFEST


def _blob_path(folder: Path, blob: Descriptor) -> Path:
    algorithm, _, digits = blob.digest.partition(":")
    return folder / "blobs" / algorithm / digits


def _is_intact(path: Path, blob: Descriptor) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" == blob.digest
