"""Image registries over their HTTP API: which digest a tag stands for, pushing and pulling, tags, deleting.

What is there has three answers: it, None (the registry itself says that there is no such thing), or a RegistryError
(everything else: no answer, no permission, an answer of something that is no registry). The last is never "absent".

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

import hashlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.images.layout import Descriptor, Layout, LayoutWriter, blobs, media_type
from upgrader.images.reference import Reference, parse
from upgrader.images.registry_http import (
    MANIFEST_LIMIT,
    MANIFESTS,
    TRANSFER_SECONDS,
    ChangedContentsError,
    RegistryHttp,
    says_absent,
    unexpected,
    upload_place,
    whole,
)
from upgrader.images.wire import decode

__all__ = ["MANIFESTS", "Manifest", "RegistryClient"]

_CHUNK = 1 << 20
_PAGE = 1000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Manifest(Struct, frozen=True, kw_only=True):
    """An image's manifest as the registry sent it; its bytes have the digest."""

    data: bytes
    media_type: str
    digest: str


class _Versioned(Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: Literal[2]


class _Tags(Struct, frozen=True, kw_only=True):
    tags: tuple[str, ...] | None = None


class RegistryClient(RegistryHttp):
    """An asynchronous context manager."""

    async def digest(self, image: str) -> str | None:
        """`name@sha256:...` of an image; None when the registry says that it has none of that name.

        Raises:
            RegistryError: anything else.
            ConfigurationError: `image` is no reference.
        """
        reference = parse(image)
        url = self.url(reference, f"manifests/{reference.wanted}")
        async with self.request("HEAD", url, reference) as answer:
            said = answer.headers.get("Docker-Content-Digest", "")
            if answer.status == 200 and _DIGEST.fullmatch(said) and reference.digest in {"", said}:
                return reference.pinned(said)
        # A registry need not send the digest, and HEAD has no body that could say what a 404 is about.
        found = await self.manifest(image)
        return None if found is None else reference.pinned(found.digest)

    async def manifest(self, image: str) -> Manifest | None:
        """An image's manifest; None when the registry says that it has none of that name.

        Raises:
            RegistryError: anything else, contents included that are not those of the digest asked for.
            ConfigurationError: `image` is no reference.
        """
        reference = parse(image)
        url = self.url(reference, f"manifests/{reference.wanted}")
        async with self.request("GET", url, reference) as answer:
            if await says_absent(answer):
                return None
            if answer.status != 200:
                raise unexpected(answer, f"asked for {reference}")
            body = await whole(answer, MANIFEST_LIMIT, f"asked for {reference}")
            kind = answer.content_type
        got = "sha256:" + hashlib.sha256(body).hexdigest()
        if reference.digest and got != reference.digest:
            raise ChangedContentsError(reference, reference.digest, got)
        if not _is_manifest(body):
            raise RegistryError(
                f"the registry {reference.registry} answers with something that is no manifest",
                details=f"asked for {reference}: {kind}",
                resolution="Is a proxy or a log-in page in between?",
            )
        return Manifest(data=body, media_type=kind, digest=got)

    async def push(self, layout: Layout, image: str) -> str:
        """Put an image from a layout into its registry; what is there already is not sent again. `name@sha256:...`.

        Raises:
            RegistryError: the registry does not take it.
        """
        reference = parse(image)
        for blob in layout.blobs:
            await self._push_blob(layout.path(blob), blob, reference)
        body = layout.path(layout.image).read_bytes()
        place = f"{reference.name}:{reference.tag}" if reference.tag else reference.pinned(layout.image.digest)
        await self.put_manifest(body, layout.image.media_type, place)
        return reference.pinned(layout.image.digest)

    async def pull(self, image: str, folder: Path) -> Layout | None:
        """Bring an image into `folder` as an OCI layout; None when the registry says that it has none of that name.

        Every blob is compared with its digest, and the manifest with that of `image` where it has one. Blobs that lie
        in `folder` already are not asked for again; index.json comes last, so that there is no half a layout.

        Raises:
            RegistryError: anything else, blobs included that the registry does not have or that are not what they
                should be.
            ConfigurationError: `image` is no reference, or it is an index of several images.
        """
        reference = parse(image)
        manifest = await self.manifest(image)
        if manifest is None:
            return None
        try:
            wanted, kind = blobs(manifest.data), media_type(manifest.data)
        except ValueError as error:
            raise ConfigurationError(
                f"{reference} is not one image", details=f"its manifest is {manifest.media_type}: {error}"
            ) from error
        layout = LayoutWriter(folder)
        for blob in wanted:
            if not layout.has(blob):
                await self._pull_blob(layout.path(blob), blob, reference)
        return layout.finish(layout.put(kind, manifest.data))

    async def _pull_blob(self, path: Path, blob: Descriptor, reference: Reference) -> None:
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with beside.open("wb") as file:
                async for chunk in self.chunks(blob, reference):
                    file.write(chunk)
            beside.replace(path)
        except OSError as error:  # not of the network: those are RegistryErrors by now
            raise ConfigurationError(
                f"a layer of {reference} cannot be written",
                details=f"{blob.size} bytes to {path}: {error.strerror or error}",
                resolution="Make room there, or use another folder; what is whole is kept.",
            ) from error
        finally:
            beside.unlink(missing_ok=True)

    async def chunks(self, blob: Descriptor, reference: Reference) -> AsyncIterator[bytes]:
        """A blob, piece by piece; not whole before its end, where it is compared with its digest.

        Raises:
            RegistryError: it does not come, or it is something else.
        """
        digest, size = hashlib.sha256(), 0
        url = self.url(reference, f"blobs/{blob.digest}")
        async with self.request("GET", url, reference, seconds=TRANSFER_SECONDS) as answer:
            if await says_absent(answer):
                raise ChangedContentsError(reference, blob.digest, "nothing: the registry no longer has it")
            if answer.status != 200:
                raise unexpected(answer, f"asked for a layer of {reference}")
            async for chunk in answer.content.iter_chunked(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                if size > blob.size:
                    raise ChangedContentsError(reference, f"{blob.size} bytes", "more")
                yield chunk
        got = f"sha256:{digest.hexdigest()}"
        if got != blob.digest:
            raise ChangedContentsError(reference, blob.digest, got)

    async def blob(self, blob: Descriptor, reference: Reference, *, limit: int) -> bytes:
        """A small blob in memory.

        Raises:
            RegistryError: as `chunks`, or it is larger than `limit` bytes.
        """
        if blob.size > limit:
            raise RegistryError(f"{reference} has a part of {blob.size} bytes where {limit} are the most")
        return b"".join([chunk async for chunk in self.chunks(blob, reference)])

    async def put_blob(self, data: bytes, media_type: str, reference: Reference) -> Descriptor:
        """Give the registry a small blob.

        Raises:
            RegistryError: it does not take it.
        """
        blob = Descriptor(media_type=media_type, digest=f"sha256:{hashlib.sha256(data).hexdigest()}", size=len(data))
        await self._send_blob(data, blob, reference)
        return blob

    async def put_manifest(self, data: bytes, media_type: str, image: str) -> dict[str, str]:
        """Give the registry a manifest under the tag or digest of `image`; the answer's headers.

        Raises:
            RegistryError: it does not take it.
        """
        reference = parse(image)
        url = self.url(reference, f"manifests/{reference.wanted}")
        headers = {"Content-Type": media_type}
        async with self.request("PUT", url, reference, data=data, headers=headers) as answer:
            if answer.status != 201:
                raise unexpected(answer, f"given the manifest of {reference}")
            return dict(answer.headers)

    async def tags(self, repository: str) -> tuple[str, ...]:
        """All tags of a repository (`registry/name`), sorted; none where the registry says that it has no such name.

        Raises:
            RegistryError: anything else.
        """
        reference = parse(repository)
        pages = await self.listing(reference, f"tags/list?n={_PAGE}")
        try:
            lists = [decode(page, _Tags).tags or () for page in pages or ()]
        except ValueError as error:
            raise RegistryError(f"{reference.registry} answers with no list of tags", details=str(error)) from error
        return tuple(sorted({tag for tags in lists for tag in tags}))

    async def delete(self, image: str) -> bool:
        """Delete the manifest that `name@sha256:...` says, and every tag of it; False where there was none.

        Raises:
            RegistryError: the registry does not delete, or does not answer.
            ConfigurationError: `image` has no digest: deleting by tag takes what somebody has just pushed.
        """
        reference = parse(image)
        if not reference.digest:
            raise ConfigurationError(f"{image} is deleted by its digest or not at all")
        async with self.request("DELETE", self.url(reference, f"manifests/{reference.digest}"), reference) as answer:
            if answer.status == 202:
                return True
            if await says_absent(answer):
                return False
            if answer.status == 405:
                raise RegistryError(
                    f"the registry {reference.registry} deletes nothing",
                    details=f"asked to delete {reference}",
                    resolution="Switch deletion on in its settings, or leave this to the registry's own clean-up.",
                )
            raise unexpected(answer, f"asked to delete {reference}")

    async def _push_blob(self, path: Path, blob: Descriptor, reference: Reference) -> None:
        with path.open("rb") as file:
            await self._send_blob(file, blob, reference)

    async def _send_blob(self, data: object, blob: Descriptor, reference: Reference) -> None:
        async with self.request("HEAD", self.url(reference, f"blobs/{blob.digest}"), reference) as answer:
            if answer.status == 200:
                return
        async with self.request("POST", self.url(reference, "blobs/uploads/"), reference) as answer:
            if answer.status != 202:
                raise unexpected(answer, f"asked to take a layer of {reference}")
            place = upload_place(answer.url, answer.headers.get("Location", ""), reference)
        url = str(place.update_query(digest=blob.digest))
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        async with self.request("PUT", url, reference, data=data, headers=headers) as answer:
            if answer.status != 201:
                raise unexpected(answer, f"given a layer of {reference}")


def _is_manifest(body: bytes) -> bool:
    """Whether it says of itself that it is one; types in headers are set wrongly by too many registries."""
    try:
        decode(body, _Versioned)
    except ValueError:
        return False
    return True
