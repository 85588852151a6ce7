"""Artifacts attached to an image in a registry, such as signatures: manifests whose `subject` is the image's manifest.

A registry of the distribution specification 1.1 lists them (referrers). For other registries, clients maintain the list
as an index under the tag `sha256-<digits>`. Both forms are read; the index is written if the registry requires it.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-referrers
"""

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.images.layout import MANIFEST, Descriptor
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.reference import Reference, parse_reference
from upgrader.images.wire import decode_json

INDEX = "application/vnd.oci.image.index.v1+json"
LIMIT = 32 << 20
"""The largest accepted attachment in bytes. An SBOM of some thousand packages has a tenth of it."""

MOST = 200
"""The most attachments that are read. More of them cannot be signatures of this project and would delay every check."""

_EMPTY = b"{}"
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
_LISTED_BY_REGISTRY = "oci-subject"


class Attachment(Descriptor, frozen=True, kw_only=True, omit_defaults=True):
    """A manifest attached to an image, as lists describe it."""

    artifact_type: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Index(Struct, frozen=True, kw_only=True, rename="camel"):
    manifests: tuple[Attachment, ...]
    schema_version: int = 2
    media_type: str = INDEX


class _Artifact(Struct, frozen=True, kw_only=True, rename="camel"):
    """A manifest with one blob. The fields are in the order in which they are written."""

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


async def list_attachments(registry: RegistryClient, image: str) -> tuple[Attachment, ...]:
    """The attachments of `name@sha256:...`, sorted by digest; none if the registry reports that there are none.

    Raises:
        RegistryError: the registry does not answer, or lists too many.
        ConfigurationError: `image` has no digest.
    """
    reference = _parse_pinned(image)
    pages = await registry.read_pages(reference, f"referrers/{reference.digest}", any_404=True)
    if pages is None:  # a registry without that list; the specification defines the tag for it
        kept = await registry.get_manifest(_list_tag(reference))
        pages = [] if kept is None else [kept.data]
    by_digest = {attachment.digest: attachment for page in pages for attachment in _decode_list(page, reference)}
    if len(by_digest) > MOST:
        raise RegistryError(f"{len(by_digest)} artifacts are attached to {reference}; at most {MOST} are read")
    return tuple(by_digest[digest] for digest in sorted(by_digest))


async def read_attachment(registry: RegistryClient, image: str, attachment: Attachment) -> bytes | None:
    """The blob of an attachment. None if it is not attached to this image, has another form, exceeds LIMIT or is gone.

    Raises:
        RegistryError: the registry does not answer, or the contents differ from the digest.
    """
    reference = _parse_pinned(image)
    manifest = await registry.get_manifest(reference.with_digest(attachment.digest))
    if manifest is None:
        return None
    try:
        inside = decode_json(manifest.data, _Layers)
    except ValueError:
        return None
    if inside.subject is None or inside.subject.digest != reference.digest or len(inside.layers) != 1:
        return None
    if inside.layers[0].size > LIMIT:
        return None
    return await registry.read_blob(inside.layers[0], reference, limit=LIMIT)


async def attach_blob(
    registry: RegistryClient, image: str, data: bytes, kind: str, annotations: Mapping[str, str]
) -> Attachment:
    """Attach a blob of a media type to `name@sha256:...`, which is in the registry. The operation is idempotent.

    If the list is a tag, two clients that attach to one image at the same time may lose an entry. An image has a single
    builder, which verifies the result after signing.

    Raises:
        RegistryError: the registry rejects the blob, or does not have the image.
        ConfigurationError: `image` has no digest.
    """
    reference = _parse_pinned(image)
    image_manifest = await registry.get_manifest(image)
    if image_manifest is None:
        raise RegistryError(f"{image} is not in its registry, so nothing can be attached to it")
    subject = Descriptor(
        media_type=image_manifest.media_type, digest=image_manifest.digest, size=len(image_manifest.data)
    )
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
    headers = await registry.put_manifest(body, MANIFEST, reference.with_digest(entry.digest))
    if _LISTED_BY_REGISTRY not in {name.lower() for name in headers}:
        await _add_to_list(registry, reference, entry)
    return entry


async def detach_all(registry: RegistryClient, image: str) -> int:
    """Delete all attachments of `name@sha256:...`, and the list if clients maintain it. Returns the number of
    deletions.

    Anyone with write access can edit the list. Entries that are not attached to this image are left alone.

    Raises:
        RegistryError: the registry does not allow deletion, or does not answer.
        ConfigurationError: `image` has no digest.
    """
    reference = _parse_pinned(image)
    count = 0
    for attachment in await list_attachments(registry, image):
        manifest = await registry.get_manifest(reference.with_digest(attachment.digest))
        if manifest is not None and _subject_digest(manifest.data) == reference.digest:
            count += await registry.delete(reference.with_digest(attachment.digest))
    kept = await registry.digest(_list_tag(reference))
    if kept is not None:
        await registry.delete(kept)
    return count


def _subject_digest(manifest: bytes) -> str:
    """The digest of the manifest's subject; empty if it has none."""
    try:
        subject = decode_json(manifest, _Layers).subject
    except ValueError:
        return ""
    return subject.digest if subject is not None else ""


async def _add_to_list(registry: RegistryClient, reference: Reference, entry: Attachment) -> None:
    kept = await registry.get_manifest(_list_tag(reference))
    others = () if kept is None else _decode_list(kept.data, reference)
    if entry.digest not in {attachment.digest for attachment in others}:
        body = msgspec.json.encode(_Index(manifests=(*others, entry)))
        await registry.put_manifest(body, INDEX, _list_tag(reference))


def _decode_list(page: bytes, reference: Reference) -> tuple[Attachment, ...]:
    try:
        return decode_json(page, _Index).manifests
    except ValueError as error:
        raise RegistryError(f"{reference.registry} has no readable list for {reference}", details=str(error)) from error


def _list_tag(reference: Reference) -> str:
    return f"{reference.name}:{reference.digest.replace(':', '-')}"


def _parse_pinned(image: str) -> Reference:
    reference = parse_reference(image)
    if not reference.digest:
        raise ConfigurationError(
            f"{image} has no digest, and a tag may move to another image at any time",
            resolution="Name it as registry/repository@sha256:<64 hex digits>.",
        )
    return reference
