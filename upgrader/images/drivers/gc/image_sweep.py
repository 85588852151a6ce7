"""Driver images, and packages to build them from, that nobody needs: listed, and deleted where they lie.

What is decided is in core/driver_image/image_garbage.py. An image goes by its digest, never by a tag alone: what
somebody has just pushed under that tag is another image.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from upgrader.core.driver_image.image_garbage import Fate, ImageFate, Marks, StoredImage
from upgrader.core.driver_image.image_names import PACKAGES
from upgrader.core.errors import ConfigurationError
from upgrader.images import wire
from upgrader.images.attachments import detach
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.drivers.publish.bundles import DEFINITION
from upgrader.images.drivers.recipe.definition import decode
from upgrader.images.labels import Parts, registry_labels, said_of_identity
from upgrader.images.reference import parse
from upgrader.images.registry import RegistryClient
from upgrader.process.places import write_whole

AT_ONCE = 8
"""Questions to a registry at the same time."""

_DEFINITION_LIMIT = 32 << 20
_OF_CLIENTS = re.compile(r"sha256-[0-9a-f]{64}(?:\..*)?")
"""Tags that hold what hangs on an image, in registries that keep no list of it; they go with their image."""


class Listing(Struct, frozen=True, kw_only=True):
    """What is there. `tags` are those of each image; `foreign` says what is not looked at any further, and why."""

    images: tuple[StoredImage, ...]
    tags: Mapping[str, tuple[str, ...]] = {}
    foreign: tuple[str, ...] = ()


class SweptImage(Struct, frozen=True, kw_only=True, rename="camel"):
    """An image and what has become of it: kept, marked, deleted or left."""

    kernel: str
    image: str
    tags: tuple[str, ...]
    fate: str
    reason: str
    unused_since: datetime | None


class Swept(Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole sweep; in a dry run nothing was done of it."""

    dry_run: bool
    images: tuple[SweptImage, ...]
    foreign: tuple[str, ...]


class Place(Protocol):
    """Somewhere that images lie."""

    async def listing(self) -> Listing:
        """All images there."""

    async def delete(self, image: StoredImage, tags: Sequence[str]) -> str:
        """Delete one, with all that hangs on it; why it was left, where it was."""


class InRegistry:
    """`repository/RECIPE` of each recipe, and `repository/packages`.

    Args:
        registry: open; with logins where it wants them.
        repository: registry/path.
        recipes: names.
    """

    def __init__(self, registry: RegistryClient, repository: str, recipes: Iterable[str]) -> None:
        self._registry = registry
        self._repository = repository
        self._recipes = sorted(recipes)
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def listing(self) -> Listing:
        """All images that a tag names.

        Raises:
            RegistryError: the registry does not say all of it.
            ConfigurationError: the repository's name is none.
        """
        names = [f"{self._repository}/{one}" for one in (*self._recipes, PACKAGES)]
        tagged = [f"{name}:{tag}" for name in names for tag in await self._registry.tags(name)]
        asked = [one for one in tagged if not _OF_CLIENTS.fullmatch(parse(one).tag)]
        found = await asyncio.gather(*(self._look(one) for one in asked))
        tags: dict[StoredImage, tuple[str, ...]] = {}
        for name, one in zip(asked, found, strict=True):
            if isinstance(one, StoredImage):
                tags[one] = (*tags.get(one, ()), parse(name).tag)
        return Listing(
            images=tuple(sorted(tags)),
            tags={one.image: names for one, names in tags.items()},
            foreign=tuple(one for one in found if isinstance(one, str)),
        )

    async def _look(self, tagged: str) -> StoredImage | str | None:
        """The image of a tag, or why it is none of ours; None where the tag has just gone."""
        async with self._gate:
            pinned = await self._registry.digest(tagged)
            if pinned is None:
                return None
            try:
                kernel = await self._kernel(pinned)
            except (ValueError, ConfigurationError) as error:
                return f"{tagged}: {error}"
        return StoredImage(kernel=kernel, image=pinned) if kernel else f"{tagged}: no label says for which kernel it is"

    async def _kernel(self, pinned: str) -> str:
        if parse(pinned).repository.endswith(f"/{PACKAGES}"):
            return await self._kernel_of_bundle(pinned)
        labels = await registry_labels(self._registry, pinned)
        return said_of_identity(labels or {}).get("kernel", "")

    async def _kernel_of_bundle(self, pinned: str) -> str:
        manifest = await self._registry.manifest(pinned)
        layers = wire.decode(manifest.data, Parts).layers if manifest else ()
        for one in layers:
            if one.media_type == DEFINITION:
                data = await self._registry.blob(one, parse(pinned), limit=_DEFINITION_LIMIT)
                return decode(data).identity.kernel
        return ""

    async def delete(self, image: StoredImage, tags: Sequence[str]) -> str:
        """Signatures and documents first: whoever is interrupted leaves an image that no controller takes any more.

        Raises:
            RegistryError: the registry deletes nothing, or does not answer.
        """
        name = parse(image.image).name
        for tag in tags:
            now = await self._registry.digest(f"{name}:{tag}")
            if now != image.image:
                return f"the tag {tag} has come to stand for {now.partition('@')[2] if now else 'no image'}"
        await detach(self._registry, image.image)
        await self._registry.delete(image.image)
        return ""


class InStore:
    """The images of a store; `oci:DIR@sha256:...`."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def listing(self) -> Listing:
        """All of them."""
        records = self._shelf.records()
        named = [
            (one, StoredImage(kernel=one.identity.kernel, image=f"oci:{self._shelf.folder}@{one.digest}"))
            for one in records
        ]
        return Listing(
            images=tuple(sorted(image for _, image in named)),
            tags={image.image: (record.identity.tag,) for record, image in named},
        )

    async def delete(self, image: StoredImage, tags: Sequence[str]) -> str:  # noqa: ARG002 - as a Place
        """See Place: nothing hangs on an image of a store, and it goes by the build keys that it was kept under."""
        self._shelf.remove([one.build_key for one in self._shelf.records() if one.digest == image.digest])
        return ""


async def carry_out(place: Place, listing: Listing, fates: Collection[ImageFate], *, dry_run: bool) -> Swept:
    """Delete what is to be deleted, one after the other, and say what became of each image. Errors as `delete`."""
    swept = []
    for one in fates:
        tags = listing.tags.get(one.image.image, ())
        left = "" if one.fate is not Fate.DELETED or dry_run else await place.delete(one.image, tags)
        swept.append(
            SweptImage(
                kernel=one.image.kernel,
                image=one.image.image,
                tags=tuple(tags),
                fate="left" if left else one.fate.value,
                reason=left or one.reason,
                unused_since=one.unused_since,
            )
        )
    return Swept(dry_run=dry_run, images=tuple(swept), foreign=listing.foreign)


def read_marks(path: Path) -> Marks:
    """What the last sweep left; nothing where none has been.

    Raises:
        ConfigurationError: the file is something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Marks)
    except FileNotFoundError:
        return Marks()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{path} cannot be read as marks of unused images",
            details=str(error),
            resolution="Delete it: each image has its whole grace period again, and what ran before is forgotten.",
        ) from error


def write_marks(path: Path, marks: Marks) -> None:
    """Keep them for the next sweep."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(marks)) + b"\n")
