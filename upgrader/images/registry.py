"""Image registries over their HTTP API: which digest a tag stands for, pushing and pulling an OCI layout.

A digest has three answers: the digest, None (the registry itself says that there is no such image), or a RegistryError
(everything else: no answer, no permission, an answer of something that is no registry). The last is never "absent".

https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

import hashlib
import os
import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.images.layout import Descriptor, Layout, LayoutWriter, blobs
from upgrader.images.reference import Reference, parse

MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
SECONDS = 15.0
TRANSFER_SECONDS = 600.0
_CHUNK = 1 << 20
_ABSENT = {"MANIFEST_UNKNOWN", "NAME_UNKNOWN", "BLOB_UNKNOWN"}
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class _Error(Struct, frozen=True, kw_only=True):
    code: str = ""


class _Errors(Struct, frozen=True, kw_only=True):
    errors: tuple[_Error, ...] = ()


class _Token(Struct, frozen=True, kw_only=True):
    token: str = ""
    access_token: str = ""


class RegistryClient:
    """An asynchronous context manager. `insecure` names registries (host:port) that are spoken to without TLS."""

    def __init__(self, *, insecure: Collection[str] = (), seconds: float = SECONDS) -> None:
        self._insecure = frozenset(insecure)
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None
        self._tokens: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._seconds), headers={"Accept": ", ".join(MANIFESTS)}
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def digest(self, image: str) -> str | None:
        """`name@sha256:...` of an image; None when the registry says that it has none of that name.

        Raises:
            RegistryError: anything else.
            ConfigurationError: `image` is no reference.
        """
        reference = parse(image)
        url = self._url(reference, f"manifests/{reference.wanted}")
        async with self._request("HEAD", url, reference) as answer:
            if answer.status == 200 and (digest := answer.headers.get("Docker-Content-Digest")):
                return reference.pinned(digest)
        # A registry need not send the digest, and HEAD has no body that could say what a 404 is about.
        async with self._request("GET", url, reference) as answer:
            body = await answer.read()
            if answer.status == 200:
                return reference.pinned("sha256:" + hashlib.sha256(body).hexdigest())
            if answer.status == 404 and _codes(body) & _ABSENT:
                return None
            raise _unexpected(answer, f"asked for {reference}")

    async def push(self, layout: Layout, image: str) -> str:
        """Put an image from a layout into its registry; what is there already is not sent again. `name@sha256:...`.

        Raises:
            RegistryError: the registry does not take it.
        """
        reference = parse(image)
        for blob in layout.blobs:
            await self._push_blob(layout.path(blob), blob, reference)
        url = self._url(reference, f"manifests/{reference.tag or layout.image.digest}")
        body = layout.path(layout.image).read_bytes()
        headers = {"Content-Type": layout.image.media_type}
        async with self._request("PUT", url, reference, data=body, headers=headers) as answer:
            if answer.status != 201:
                raise _unexpected(answer, f"given the manifest of {reference}")
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
        url = self._url(reference, f"manifests/{reference.wanted}")
        async with self._request("GET", url, reference) as answer:
            body = await answer.read()
            if answer.status == 404 and _codes(body) & _ABSENT:
                return None
            if answer.status != 200:
                raise _unexpected(answer, f"asked for {reference}")
            kind = answer.content_type
        got = "sha256:" + hashlib.sha256(body).hexdigest()
        if reference.digest and got != reference.digest:
            raise _changed(reference, reference.digest, got)
        try:
            wanted = blobs(body)
        except ValueError as error:
            raise ConfigurationError(
                f"{reference} is not one image", details=f"its manifest is {kind}: {error}"
            ) from error
        layout = LayoutWriter(folder)
        for blob in wanted:
            if not layout.has(blob):
                await self._pull_blob(layout.path(blob), blob, reference)
        return layout.finish(layout.put(kind, body))

    async def _pull_blob(self, path: Path, blob: Descriptor, reference: Reference) -> None:
        url = self._url(reference, f"blobs/{blob.digest}")
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        digest = hashlib.sha256()
        try:
            async with self._request("GET", url, reference, seconds=TRANSFER_SECONDS) as answer:
                if answer.status != 200:
                    raise _unexpected(answer, f"asked for a layer of {reference}")
                with beside.open("wb") as file:
                    async for chunk in answer.content.iter_chunked(_CHUNK):
                        digest.update(chunk)
                        file.write(chunk)
            got = f"sha256:{digest.hexdigest()}"
            if got != blob.digest:
                raise _changed(reference, blob.digest, got)
            beside.replace(path)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _silent(reference, f"GET {url}", error) from error
        finally:
            beside.unlink(missing_ok=True)

    async def _push_blob(self, path: Path, blob: Descriptor, reference: Reference) -> None:
        async with self._request("HEAD", self._url(reference, f"blobs/{blob.digest}"), reference) as answer:
            if answer.status == 200:
                return
        async with self._request("POST", self._url(reference, "blobs/uploads/"), reference) as answer:
            if answer.status != 202:
                raise _unexpected(answer, f"asked to take a layer of {reference}")
            place = answer.url.join(URL(answer.headers["Location"]))
        url = str(place.update_query(digest=blob.digest))
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        with path.open("rb") as file:
            async with self._request("PUT", url, reference, data=file, headers=headers) as answer:
                if answer.status != 201:
                    raise _unexpected(answer, f"given a layer of {reference}")

    def _url(self, reference: Reference, path: str) -> str:
        scheme = "http" if reference.registry in self._insecure else "https"
        return f"{scheme}://{reference.api_host}/v2/{reference.repository}/{path}"

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        url: str,
        reference: Reference,
        *,
        data: object = None,
        headers: dict[str, str] | None = None,
        seconds: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer, whole within `seconds`; one that asks for a token is asked again with an anonymous one."""
        limit = seconds or (self._seconds if data is None else TRANSFER_SECONDS)
        answer = await self._send(method, url, reference, data=data, headers=headers, seconds=limit)
        if answer.status == 401 and data is None and await self._authenticate(answer, reference):
            answer.release()
            answer = await self._send(method, url, reference, data=data, headers=headers, seconds=limit)
        try:
            yield answer
        finally:
            answer.release()

    async def _send(
        self,
        method: str,
        url: str,
        reference: Reference,
        *,
        data: object,
        headers: dict[str, str] | None,
        seconds: float,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("RegistryClient is used outside its `async with`")
        token = self._tokens.get(reference.name)
        sent = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            return await self._session.request(method, url, data=data, headers=sent, timeout=timeout)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _silent(reference, f"{method} {url}", error) from error

    async def _authenticate(self, answer: aiohttp.ClientResponse, reference: Reference) -> bool:
        """Get an anonymous token where the registry's challenge says from whom."""
        challenge = answer.headers.get("WWW-Authenticate", "")
        fields = dict(_CHALLENGE.findall(challenge))
        if self._session is None or not challenge.lower().startswith("bearer ") or "realm" not in fields:
            return False
        query = {name: fields[name] for name in ("service", "scope") if name in fields}
        try:
            async with self._session.get(fields["realm"], params=query) as given:
                body = await given.read()
            token = msgspec.json.decode(body, type=_Token) if given.status == 200 else _Token()
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise RegistryError(
                f"the token server of {reference.registry} does not answer", details=f"{fields['realm']}: {error}"
            ) from error
        self._tokens[reference.name] = token.token or token.access_token
        return bool(self._tokens[reference.name])


def _codes(body: bytes) -> set[str]:
    """Error codes of a registry's answer; none where it is not a registry's."""
    try:
        return {error.code for error in msgspec.json.decode(body, type=_Errors).errors}
    except msgspec.DecodeError:
        return set()


def _silent(reference: Reference, when: str, error: Exception) -> RegistryError:
    return RegistryError(
        f"the registry {reference.registry} does not answer",
        details=f"{when}: {str(error) or type(error).__name__}",
        resolution="Without its answer nothing is decided about its images; it is asked again.",
    )


def _changed(reference: Reference, wanted: str, got: str) -> RegistryError:
    return RegistryError(
        f"the registry {reference.registry} sent something else than it was asked for",
        details=f"{reference}: wanted {wanted}, got {got}",
        resolution="Push the image again; nothing of what came was kept.",
    )


def _unexpected(answer: aiohttp.ClientResponse, when: str) -> RegistryError:
    resolution = ""
    if answer.status in {401, 403}:
        resolution = "Make the repository readable without a password, or use another registry."
    return RegistryError(
        f"the registry {answer.url.host} answered {answer.status}",
        details=f"{when}: {answer.url}",
        resolution=resolution,
    )
