"""Lists and deletes driver images, and bundles of packages, that are not needed any more.

core/driver_image/image_garbage.py decides. An image is deleted by its digest, never by a tag alone, since the tag may
have moved to an image that was just pushed.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from upgrader.core.driver_image.image_garbage import Fate, ItemFate, StoredImage, UsageRecord
from upgrader.core.driver_image.image_names import PACKAGES
from upgrader.core.errors import ConfigurationError
from upgrader.images import wire
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.drivers.publish.bundles import DEFINITION
from upgrader.images.drivers.recipe.definition import decode_definition
from upgrader.images.labels import Parts, labelled_identity, registry_labels
from upgrader.images.registry.attachments import detach_all
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.reference import parse_reference
from upgrader.process.places import write_atomically

AT_ONCE = 8
"""The number of parallel requests to a registry."""

_DEFINITION_LIMIT = 32 << 20
_OF_CLIENTS = re.compile(r"sha256-[0-9a-f]{64}(?:\..*)?")
"""Tags of attachments in registries without the referrers API. They are deleted with their image."""


class RegistryImages(Struct, frozen=True, kw_only=True):
    """The images. `tags` are those of each image; `foreign` lists images that are ignored, with the reason."""

    images: tuple[StoredImage, ...]
    tags: Mapping[str, tuple[str, ...]] = {}
    foreign: tuple[str, ...] = ()


class SweptImage(Struct, frozen=True, kw_only=True, rename="camel"):
    """An image and its fate: kept, unused, deleted or left."""

    kernel: str
    image: str
    tags: tuple[str, ...]
    fate: str
    reason: str
    unused_since: datetime | None


class ImageSweep(Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole sweep. A dry run deletes nothing."""

    dry_run: bool
    images: tuple[SweptImage, ...]
    foreign: tuple[str, ...]


class Place(Protocol):
    """A place with images."""

    async def list_images(self) -> RegistryImages:
        """All images of the place."""

    async def delete_image(self, image: StoredImage, tags: Sequence[str]) -> str:
        """Delete an image with its attachments. Returns the reason if it was left, else an empty text."""


class InRegistry:
    """`repository/RECIPE` of each recipe, and `repository/packages`.

    Args:
        registry: open; with logins if the registry requires them.
        repository: registry/path.
        recipes: names.
    """

    def __init__(self, registry: RegistryClient, repository: str, recipes: Iterable[str]) -> None:
        self._registry = registry
        self._repository = repository
        self._recipes = sorted(recipes)
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def list_images(self) -> RegistryImages:
        """All images with a tag.

        Raises:
            RegistryError: the registry does not answer completely.
            ConfigurationError: the repository's name is invalid.
        """
        names = [f"{self._repository}/{recipe}" for recipe in (*self._recipes, PACKAGES)]
        tagged = [f"{name}:{tag}" for name in names for tag in await self._registry.list_tags(name)]
        image_tags = [name for name in tagged if not _OF_CLIENTS.fullmatch(parse_reference(name).tag)]
        results = await asyncio.gather(*(self._read_tag(name) for name in image_tags))
        tags: dict[StoredImage, tuple[str, ...]] = {}
        for name, result in zip(image_tags, results, strict=True):
            if isinstance(result, StoredImage):
                tags[result] = (*tags.get(result, ()), parse_reference(name).tag)
        return RegistryImages(
            images=tuple(sorted(tags)),
            tags={image.image: names for image, names in tags.items()},
            foreign=tuple(result for result in results if isinstance(result, str)),
        )

    async def _read_tag(self, tagged: str) -> StoredImage | str | None:
        """The image of a tag, or the reason why it is foreign; None if the tag was just deleted."""
        async with self._gate:
            pinned = await self._registry.digest(tagged)
            if pinned is None:
                return None
            try:
                kernel = await self._read_kernel(pinned)
            except (ValueError, ConfigurationError) as error:
                return f"{tagged}: {error}"
        return StoredImage(kernel=kernel, image=pinned) if kernel else f"{tagged}: no label contains its kernel"

    async def _read_kernel(self, pinned: str) -> str:
        if parse_reference(pinned).repository.endswith(f"/{PACKAGES}"):
            return await self._kernel_of_bundle(pinned)
        labels = await registry_labels(self._registry, pinned)
        return labelled_identity(labels or {}).get("kernel", "")

    async def _kernel_of_bundle(self, pinned: str) -> str:
        manifest = await self._registry.get_manifest(pinned)
        layers = wire.decode_json(manifest.data, Parts).layers if manifest else ()
        for layer in layers:
            if layer.media_type == DEFINITION:
                data = await self._registry.read_blob(layer, parse_reference(pinned), limit=_DEFINITION_LIMIT)
                return decode_definition(data).identity.kernel
        return ""

    async def delete_image(self, image: StoredImage, tags: Sequence[str]) -> str:
        """Delete attachments first: after an interruption the image has no signature, and no controller accepts it.

        Raises:
            RegistryError: the registry does not allow deletion, or does not answer.
        """
        name = parse_reference(image.image).name
        for tag in tags:
            now = await self._registry.digest(f"{name}:{tag}")
            if now != image.image:
                return f"the tag {tag} has moved to {now.partition('@')[2] if now else 'no image'}"
        await detach_all(self._registry, image.image)
        await self._registry.delete(image.image)
        return ""


class InStore:
    """The images of a store; `oci:DIR@sha256:...`."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def list_images(self) -> RegistryImages:
        """All images of the store."""
        records = self._shelf.list_records()
        named = [
            (record, StoredImage(kernel=record.identity.kernel, image=f"oci:{self._shelf.folder}@{record.digest}"))
            for record in records
        ]
        return RegistryImages(
            images=tuple(sorted(image for _, image in named)),
            tags={image.image: (record.identity.tag,) for record, image in named},
        )

    async def delete_image(self, image: StoredImage, tags: Sequence[str]) -> str:  # noqa: ARG002 - as a Place
        """See Place: images of a store have no attachments. The image is removed by its build keys."""
        records = self._shelf.list_records()
        self._shelf.remove_images([record.build_key for record in records if record.digest == image.digest])
        return ""


async def carry_out(
    place: Place, listing: RegistryImages, fates: Collection[ItemFate[StoredImage]], *, dry_run: bool
) -> ImageSweep:
    """Delete images in sequence, and return the fate of each image. Errors as `delete_image`."""
    swept = []
    for fate in fates:
        tags = listing.tags.get(fate.item.image, ())
        left = "" if fate.fate is not Fate.DELETED or dry_run else await place.delete_image(fate.item, tags)
        swept.append(
            SweptImage(
                kernel=fate.item.kernel,
                image=fate.item.image,
                tags=tuple(tags),
                fate="left" if left else fate.fate.value,
                reason=left or fate.reason,
                unused_since=fate.unused_since,
            )
        )
    return ImageSweep(dry_run=dry_run, images=tuple(swept), foreign=listing.foreign)


def read_usage_record(path: Path) -> UsageRecord:
    """The record of the last sweep; empty if there was none.

    Raises:
        ConfigurationError: the file is invalid.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=UsageRecord)
    except FileNotFoundError:
        return UsageRecord()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{path} cannot be read as a record of unused images",
            details=str(error),
            resolution="Delete it. The grace period of each image starts again, and earlier kernels are forgotten.",
        ) from error


def write_usage_record(path: Path, record: UsageRecord) -> None:
    """Write the record for the next sweep."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(record)) + b"\n")
