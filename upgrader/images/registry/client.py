"""Image registries over their HTTP API: digests of tags, push and pull, tags, deletion.

A read has three results: the object; None, if the registry itself reports that it does not exist; or a RegistryError in
every other case (no answer, no permission, an answer that is not a registry's). An error never means "absent".

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
from upgrader.images.layout import Descriptor, Layout, LayoutWriter, image_blobs, media_type
from upgrader.images.registry.reference import Reference, parse_reference
from upgrader.images.registry.transport import (
    MANIFEST_LIMIT,
    MANIFESTS,
    TRANSFER_SECONDS,
    ChangedContentsError,
    RegistryHttp,
    is_absent,
    read_body,
    unexpected_answer,
    upload_address,
)
from upgrader.images.wire import decode_json

__all__ = ["MANIFESTS", "ImageManifest", "RegistryClient"]

_CHUNK = 1 << 20
_PAGE = 1000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class ImageManifest(Struct, frozen=True, kw_only=True):
    """An image's manifest as the registry sent it. The digest is computed from these bytes."""

    data: bytes
    media_type: str
    digest: str


class _Versioned(Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: Literal[2]


class _Tags(Struct, frozen=True, kw_only=True):
    tags: tuple[str, ...] | None = None


class RegistryClient(RegistryHttp):
    """A client for reads and writes of images. An asynchronous context manager."""

    async def digest(self, image: str) -> str | None:
        """`name@sha256:...` of an image; None if the registry reports that it has no such image.

        Raises:
            RegistryError: every other answer, or none.
            ConfigurationError: `image` is not a reference.
        """
        reference = parse_reference(image)
        url = self.repository_url(reference, f"manifests/{reference.tag_or_digest}")
        async with self.request("HEAD", url, reference) as answer:
            digest = answer.headers.get("Docker-Content-Digest", "")
            if answer.status == 200 and _DIGEST.fullmatch(digest) and reference.digest in {"", digest}:
                return reference.with_digest(digest)
        # The digest header is optional, and a HEAD response has no body with the reason of a 404.
        manifest = await self.get_manifest(image)
        return None if manifest is None else reference.with_digest(manifest.digest)

    async def get_manifest(self, image: str) -> ImageManifest | None:
        """An image's manifest; None if the registry reports that it has no such image.

        Raises:
            RegistryError: every other answer, or none; also contents that differ from the requested digest.
            ConfigurationError: `image` is not a reference.
        """
        reference = parse_reference(image)
        url = self.repository_url(reference, f"manifests/{reference.tag_or_digest}")
        async with self.request("GET", url, reference) as answer:
            if await is_absent(answer):
                return None
            if answer.status != 200:
                raise unexpected_answer(answer, f"requested {reference}")
            body = await read_body(answer, MANIFEST_LIMIT, f"requested {reference}")
            kind = answer.content_type
        got = "sha256:" + hashlib.sha256(body).hexdigest()
        if reference.digest and got != reference.digest:
            raise ChangedContentsError(reference, reference.digest, got)
        if not _is_manifest(body):
            raise RegistryError(
                f"the registry {reference.registry} returned an answer that is not a manifest",
                details=f"requested {reference}: {kind}",
                resolution="Check whether a proxy or a login page is in between.",
            )
        return ImageManifest(data=body, media_type=kind, digest=got)

    async def push(self, layout: Layout, image: str) -> str:
        """Push an image from a layout and return `name@sha256:...`. Blobs that the registry has are not sent again.

        Raises:
            RegistryError: the registry rejects it.
        """
        reference = parse_reference(image)
        for blob in layout.blobs:
            await self._push_blob(layout.blob_path(blob), blob, reference)
        body = layout.blob_path(layout.image).read_bytes()
        place = f"{reference.name}:{reference.tag}" if reference.tag else reference.with_digest(layout.image.digest)
        await self.put_manifest(body, layout.image.media_type, place)
        return reference.with_digest(layout.image.digest)

    async def pull(self, image: str, folder: Path) -> Layout | None:
        """Pull an image into `folder` as an OCI layout; None if the registry reports that it has no such image.

        Every blob is compared with its digest, and so is the manifest if `image` has a digest. Blobs that `folder`
        already contains are not requested again. index.json is written last, so that there is never an incomplete
        layout.

        Raises:
            RegistryError: every other answer, or none; also blobs that are missing in the registry or differ from their
                digests.
            ConfigurationError: `image` is not a reference, or it is an index of several images.
        """
        reference = parse_reference(image)
        manifest = await self.get_manifest(image)
        if manifest is None:
            return None
        try:
            wanted, kind = image_blobs(manifest.data), media_type(manifest.data)
        except ValueError as error:
            raise ConfigurationError(
                f"{reference} is not one image", details=f"its manifest is {manifest.media_type}: {error}"
            ) from error
        layout = LayoutWriter(folder)
        for blob in wanted:
            if not layout.has_blob(blob):
                await self._pull_blob(layout.blob_path(blob), blob, reference)
        return layout.write_index(layout.put_blob(kind, manifest.data))

    async def _pull_blob(self, path: Path, blob: Descriptor, reference: Reference) -> None:
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with beside.open("wb") as file:
                async for chunk in self.read_chunks(blob, reference):
                    file.write(chunk)
            beside.replace(path)
        except OSError as error:  # of the disk: network errors are RegistryErrors at this point
            raise ConfigurationError(
                f"a layer of {reference} cannot be written",
                details=f"{blob.size} bytes to {path}: {error.strerror or error}",
                resolution="Free some space, or use another folder. Complete layers are kept.",
            ) from error
        finally:
            beside.unlink(missing_ok=True)

    async def read_chunks(self, blob: Descriptor, reference: Reference) -> AsyncIterator[bytes]:
        """A blob in chunks. The digest is compared at the end, so the data are not verified before the last chunk.

        Raises:
            RegistryError: the registry does not send the blob, or the contents differ from the digest.
        """
        digest, size = hashlib.sha256(), 0
        url = self.repository_url(reference, f"blobs/{blob.digest}")
        async with self.request("GET", url, reference, seconds=TRANSFER_SECONDS) as answer:
            if await is_absent(answer):
                raise ChangedContentsError(reference, blob.digest, "nothing: the registry no longer has it")
            if answer.status != 200:
                raise unexpected_answer(answer, f"requested a layer of {reference}")
            async for chunk in answer.content.iter_chunked(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                if size > blob.size:
                    raise ChangedContentsError(reference, f"{blob.size} bytes", "more")
                yield chunk
        got = f"sha256:{digest.hexdigest()}"
        if got != blob.digest:
            raise ChangedContentsError(reference, blob.digest, got)

    async def read_blob(self, blob: Descriptor, reference: Reference, *, limit: int) -> bytes:
        """A small blob in memory.

        Raises:
            RegistryError: as `read_chunks`, or the blob is larger than `limit` bytes.
        """
        if blob.size > limit:
            raise RegistryError(f"{reference} has a part of {blob.size} bytes; at most {limit} are accepted")
        return b"".join([chunk async for chunk in self.read_chunks(blob, reference)])

    async def put_blob(self, data: bytes, media_type: str, reference: Reference) -> Descriptor:
        """Push a small blob.

        Raises:
            RegistryError: the registry rejects it.
        """
        blob = Descriptor(media_type=media_type, digest=f"sha256:{hashlib.sha256(data).hexdigest()}", size=len(data))
        await self._send_blob(data, blob, reference)
        return blob

    async def put_manifest(self, data: bytes, media_type: str, image: str) -> dict[str, str]:
        """Push a manifest under the tag or digest of `image`, and return the headers of the answer.

        Raises:
            RegistryError: the registry rejects it.
        """
        reference = parse_reference(image)
        url = self.repository_url(reference, f"manifests/{reference.tag_or_digest}")
        headers = {"Content-Type": media_type}
        async with self.request("PUT", url, reference, data=data, headers=headers) as answer:
            if answer.status != 201:
                raise unexpected_answer(answer, f"sent the manifest of {reference}")
            return dict(answer.headers)

    async def list_tags(self, repository: str) -> tuple[str, ...]:
        """All tags of a repository (`registry/name`), sorted; none if the registry reports that it has no such
        repository.

        Raises:
            RegistryError: every other answer, or none.
        """
        reference = parse_reference(repository)
        pages = await self.read_pages(reference, f"tags/list?n={_PAGE}")
        try:
            lists = [decode_json(page, _Tags).tags or () for page in pages or ()]
        except ValueError as error:
            raise RegistryError(f"{reference.registry} does not return a list of tags", details=str(error)) from error
        return tuple(sorted({tag for tags in lists for tag in tags}))

    async def delete(self, image: str) -> bool:
        """Delete the manifest of `name@sha256:...` with all its tags; False if it did not exist.

        Raises:
            RegistryError: the registry does not allow deletion, or does not answer.
            ConfigurationError: `image` has no digest: a tag may have moved to an image that was just pushed.
        """
        reference = parse_reference(image)
        if not reference.digest:
            raise ConfigurationError(f"{image} has no digest, and images are deleted by digest only")
        url = self.repository_url(reference, f"manifests/{reference.digest}")
        async with self.request("DELETE", url, reference) as answer:
            if answer.status == 202:
                return True
            if await is_absent(answer):
                return False
            if answer.status == 405:
                raise RegistryError(
                    f"the registry {reference.registry} does not allow deletion",
                    details=f"requested the deletion of {reference}",
                    resolution="Enable deletion in the registry's settings, or use the registry's own clean-up.",
                )
            raise unexpected_answer(answer, f"requested the deletion of {reference}")

    async def _push_blob(self, path: Path, blob: Descriptor, reference: Reference) -> None:
        with path.open("rb") as file:
            await self._send_blob(file, blob, reference)

    async def _send_blob(self, data: object, blob: Descriptor, reference: Reference) -> None:
        async with self.request("HEAD", self.repository_url(reference, f"blobs/{blob.digest}"), reference) as answer:
            if answer.status == 200:
                return
        async with self.request("POST", self.repository_url(reference, "blobs/uploads/"), reference) as answer:
            if answer.status != 202:
                raise unexpected_answer(answer, f"requested the upload of a layer of {reference}")
            place = upload_address(answer.url, answer.headers.get("Location", ""), reference)
        url = str(place.update_query(digest=blob.digest))
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        async with self.request("PUT", url, reference, data=data, headers=headers) as answer:
            if answer.status != 201:
                raise unexpected_answer(answer, f"sent a layer of {reference}")


def _is_manifest(body: bytes) -> bool:
    """Whether the body declares itself a manifest. Many registries send wrong content types in headers."""
    try:
        decode_json(body, _Versioned)
    except ValueError:
        return False
    return True
