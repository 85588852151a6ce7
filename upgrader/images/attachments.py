"""What hangs on an image in a registry, as signatures do: manifests whose `subject` is the image's.

A registry of the distribution specification 1.1 lists them itself (referrers); for others the clients keep the list,
as an index under the tag `sha256-<digits>`. Both are read, and the second is written where the registry asks for it.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-referrers
"""

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.images.layout import MANIFEST, Descriptor
from upgrader.images.reference import Reference, parse
from upgrader.images.registry import RegistryClient
from upgrader.images.wire import decode

INDEX = "application/vnd.oci.image.index.v1+json"
LIMIT = 32 << 20
"""Most bytes of one attachment; an SBOM of some thousand packages has a tenth of it."""

MOST = 200
"""More attachments than that are no signatures of ours, and reading them would keep everybody waiting."""

_EMPTY = b"{}"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_LISTED_BY_REGISTRY = "oci-subject"


class Attachment(Descriptor, frozen=True, kw_only=True, omit_defaults=True):
    """A manifest that hangs on an image, as lists name it."""

    artifact_type: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Index(Struct, frozen=True, kw_only=True, rename="camel"):
    manifests: tuple[Attachment, ...]
    schema_version: int = 2
    media_type: str = INDEX


class _Artifact(Struct, frozen=True, kw_only=True, rename="camel"):
    """A manifest of one blob; fields in the order in which they are written."""

    artifact_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor
    annotations: dict[str, str] = {}
    schema_version: int = 2
    media_type: str = MANIFEST


class _Layers(Struct, frozen=True, kw_only=True):
    layers: tuple[Descriptor, ...]
    subject: Descriptor | None = None


async def attachments(registry: RegistryClient, image: str) -> tuple[Attachment, ...]:
    """What hangs on `name@sha256:...`, in the order of their digests; nothing where the registry says so.

    Raises:
        RegistryError: it does not say.
        ConfigurationError: `image` has no digest.
    """
    reference = _pinned(image)
    pages = await registry.listing(reference, f"referrers/{reference.digest}", any_404=True)
    if pages is None:  # a registry without that list, for which the specification has the tag
        kept = await registry.manifest(_list_tag(reference))
        pages = [] if kept is None else [kept.data]
    found = {one.digest: one for page in pages for one in _listed(page, reference)}
    if len(found) > MOST:
        raise RegistryError(f"{len(found)} things hang on {reference}; at most {MOST} are looked at")
    return tuple(found[digest] for digest in sorted(found))


async def read(registry: RegistryClient, image: str, attachment: Attachment) -> bytes | None:
    """The one blob of an attachment; None where it is not on this image, of another form, above LIMIT or gone.

    Raises:
        RegistryError: the registry does not answer, or with contents that are not those of the digest.
    """
    reference = _pinned(image)
    manifest = await registry.manifest(reference.pinned(attachment.digest))
    if manifest is None:
        return None
    try:
        inside = decode(manifest.data, _Layers)
    except ValueError:
        return None
    if inside.subject is None or inside.subject.digest != reference.digest or len(inside.layers) != 1:
        return None
    if inside.layers[0].size > LIMIT:
        return None
    return await registry.blob(inside.layers[0], reference, limit=LIMIT)


async def attach(
    registry: RegistryClient, image: str, data: bytes, kind: str, annotations: Mapping[str, str]
) -> Attachment:
    """Hang a blob of a media type on `name@sha256:...`, which is in the registry; the same again changes nothing.

    Where the list is a tag, two clients that attach to one image at the same time may lose an entry: images are
    signed by their one builder, who looks at the result.

    Raises:
        RegistryError: the registry does not take it, or the image is not there.
        ConfigurationError: `image` has no digest.
    """
    reference = _pinned(image)
    found = await registry.manifest(image)
    if found is None:
        raise RegistryError(f"{image} is not in its registry, so nothing can hang on it")
    subject = Descriptor(media_type=found.media_type, digest=found.digest, size=len(found.data))
    layer = await registry.put_blob(data, kind, reference)
    config = await registry.put_blob(_EMPTY, _EMPTY_TYPE, reference)
    artifact = _Artifact(
        artifact_type=kind, config=config, layers=(layer,), subject=subject, annotations=dict(annotations)
    )
    body = msgspec.json.encode(artifact)
    entry = Attachment(
        media_type=MANIFEST,
        digest=f"sha256:{hashlib.sha256(body).hexdigest()}",
        size=len(body),
        artifact_type=kind,
        annotations=dict(annotations),
    )
    headers = await registry.put_manifest(body, MANIFEST, reference.pinned(entry.digest))
    if _LISTED_BY_REGISTRY not in {name.lower() for name in headers}:
        await _list(registry, reference, entry)
    return entry


async def detach(registry: RegistryClient, image: str) -> int:
    """Delete all that hangs on `name@sha256:...`, and the list of it where clients keep one. How many it were.

    A list is written by whoever likes: what it names and does not hang on this image is left alone.

    Raises:
        RegistryError: the registry does not delete, or does not answer.
        ConfigurationError: `image` has no digest.
    """
    reference = _pinned(image)
    count = 0
    for one in await attachments(registry, image):
        found = await registry.manifest(reference.pinned(one.digest))
        if found is not None and _subject(found.data) == reference.digest:
            count += await registry.delete(reference.pinned(one.digest))
    kept = await registry.digest(_list_tag(reference))
    if kept is not None:
        await registry.delete(kept)
    return count


def _subject(manifest: bytes) -> str:
    """The digest of what a manifest hangs on; empty for none."""
    try:
        subject = decode(manifest, _Layers).subject
    except ValueError:
        return ""
    return subject.digest if subject is not None else ""


async def _list(registry: RegistryClient, reference: Reference, entry: Attachment) -> None:
    kept = await registry.manifest(_list_tag(reference))
    others = () if kept is None else _listed(kept.data, reference)
    if entry.digest not in {one.digest for one in others}:
        body = msgspec.json.encode(_Index(manifests=(*others, entry)))
        await registry.put_manifest(body, INDEX, _list_tag(reference))


def _listed(page: bytes, reference: Reference) -> tuple[Attachment, ...]:
    try:
        return decode(page, _Index).manifests
    except ValueError as error:
        raise RegistryError(f"{reference.registry} has no readable list for {reference}", details=str(error)) from error


def _list_tag(reference: Reference) -> str:
    return f"{reference.name}:{reference.digest.replace(':', '-')}"


def _pinned(image: str) -> Reference:
    reference = parse(image)
    if not reference.digest:
        raise ConfigurationError(
            f"{image} has no digest, and a tag may stand for something else in a moment",
            resolution="Name it as registry/repository@sha256:<64 hex digits>.",
        )
    return reference
