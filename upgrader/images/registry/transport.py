"""HTTP requests to registries: time-outs, authentication with tokens, and errors without secrets.

https://github.com/distribution/distribution/blob/main/docs/content/spec/auth/token.md
"""

import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import aiohttp
from msgspec import Struct
from yarl import URL

from upgrader.core.errors import RegistryError
from upgrader.core.untrusted import is_sendable
from upgrader.images.registry.login import RegistryLogin, login_for
from upgrader.images.registry.reference import Reference
from upgrader.images.wire import decode_json

MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
SECONDS = 15.0
TRANSFER_SECONDS = 600.0
MANIFEST_LIMIT = 4 << 20
"""The largest accepted manifest in bytes, which is also the limit of common registries."""

LIST_LIMIT = 32 << 20
"""The largest accepted page of a list in bytes."""

_CHUNK = 1 << 20
_ABSENT = {"MANIFEST_UNKNOWN", "NAME_UNKNOWN", "BLOB_UNKNOWN"}
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_CLIENT = "gpu-upgrader"
_PAGES = 1000


class _Error(Struct, frozen=True, kw_only=True):
    code: str = ""


class _Errors(Struct, frozen=True, kw_only=True):
    errors: tuple[_Error, ...] = ()


class _Token(Struct, frozen=True, kw_only=True):
    token: str = ""
    access_token: str = ""

    def __repr__(self) -> str:
        """Omits the token, since tracebacks and logs contain values."""
        return "_Token()"


class RegistryHttp:
    """Sends requests to registries. An asynchronous context manager.

    Args:
        insecure: registries (host:port) that are accessed without TLS.
        seconds: the time-out of one request; requests that send or receive a layer have TRANSFER_SECONDS.
        logins: see `login.read_logins`; without a login, requests are anonymous.
    """

    def __init__(
        self,
        *,
        insecure: Collection[str] = (),
        seconds: float = SECONDS,
        logins: Mapping[str, RegistryLogin] | None = None,
    ) -> None:
        self._insecure = frozenset(insecure)
        self._seconds = seconds
        self._logins = dict(logins or {})
        self._session: aiohttp.ClientSession | None = None
        self._authorizations: dict[str, str] = {}  # Authorization by repository

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

    def repository_url(self, reference: Reference, path: str) -> str:
        """The URL of `path` in a repository."""
        scheme = "http" if reference.registry in self._insecure else "https"
        return f"{scheme}://{reference.api_host}/v2/{reference.repository}/{path}"

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        reference: Reference,
        *,
        data: object = None,
        headers: dict[str, str] | None = None,
        seconds: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and send it again with credentials if the registry requires them. `seconds` limit the whole
        answer.

        Credentials are sent to the registry only, never to the target of a redirect.

        Raises:
            RegistryError: there is no answer, or the connection ends while the caller reads it.
        """
        limit = seconds or (self._seconds if data is None else TRANSFER_SECONDS)
        once = not isinstance(data, bytes | None)  # the first attempt reads a file to its end
        answer = await self._send_request(method, url, reference, data=data, headers=headers, seconds=limit)
        asked = answer.status == 401 and self._is_own(answer.url, reference)
        if asked and not once and await self._authenticate(answer, reference):
            answer.release()
            answer = await self._send_request(method, url, reference, data=data, headers=headers, seconds=limit)
        try:
            yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _no_answer_error(reference, f"{method} {redacted_url(url)}", error) from None
        finally:
            answer.release()

    async def read_pages(self, reference: Reference, path: str, *, any_404: bool = False) -> list[bytes] | None:
        """All pages of a list; None if the registry reports that the object does not exist, or does not support the
        list.

        Args:
            reference: the repository, or the image in it.
            path: below the repository.
            any_404: whether every 404 means "absent", for an API that is optional for registries.
        """
        pages: list[bytes] = []
        url = URL(self.repository_url(reference, path))
        while True:
            async with self.request("GET", str(url), reference) as answer:
                if answer.status == 404 and (any_404 or await is_absent(answer)):
                    return None
                if answer.status != 200:
                    raise unexpected_answer(answer, f"requested {path} of {reference.name}")
                pages.append(await read_body(answer, LIST_LIMIT, f"requested {path} of {reference.name}"))
                following = _next_page(answer, url, reference)
            if following is None:
                return pages
            url = following
            if url.origin() != answer.url.origin() or len(pages) >= _PAGES:
                # another host would receive the login, and the list may be endless
                raise unexpected_answer(
                    answer, f"requested {path} of {reference.name}, next page is {redacted_url(str(url))}"
                )

    async def _send_request(
        self,
        method: str,
        url: str,
        reference: Reference,
        *,
        data: object,
        headers: dict[str, str] | None,
        seconds: float,
    ) -> aiohttp.ClientResponse:
        authorization = self._authorizations.get(reference.name) if self._is_own(URL(url), reference) else None
        sent = {**(headers or {}), **({"Authorization": authorization} if authorization else {})}
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            return await self._open_session().request(method, url, data=data, headers=sent, timeout=timeout)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _no_answer_error(reference, f"{method} {redacted_url(url)}", error) from None

    def _is_own(self, url: URL, reference: Reference) -> bool:
        """Whether a URL belongs to the registry itself: same scheme, host and port."""
        return url.origin() == URL(self.repository_url(reference, "")).origin()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the registry client is used outside its `async with`")
        return self._session

    async def _authenticate(self, answer: aiohttp.ClientResponse, reference: Reference) -> bool:
        """Obtain the credentials for the registry's challenge; False if there are none, or none that are new."""
        challenge = answer.headers.get("WWW-Authenticate", "")
        login = login_for(self._logins, reference)
        before = self._authorizations.get(reference.name)
        if challenge.lower().startswith("bearer "):
            fields = dict(_CHALLENGE.findall(challenge))
            if login is not None and login.bearer:
                authorization = f"Bearer {login.bearer}"
            else:
                token = await self._request_token(fields, reference, login) if "realm" in fields else ""
                authorization = f"Bearer {token}" if token else ""
        else:
            authorization = (
                login.basic_header if login is not None and login.user and challenge.lower().startswith("basic") else ""
            )
        if authorization:
            self._authorizations[reference.name] = authorization
        return bool(authorization) and authorization != before

    async def _request_token(self, fields: Mapping[str, str], reference: Reference, login: RegistryLogin | None) -> str:
        """A token of the server that the challenge names; anonymous if there is no login."""
        realm = _resolve_address(URL(), fields["realm"], reference, "its token server")
        query = {name: fields[name] for name in ("service", "scope") if name in fields}
        if login is not None and realm.scheme != "https" and reference.registry not in self._insecure:
            raise RegistryError(
                f"the registry {reference.registry} requests the password in clear text",
                details=f"its token server is {redacted_url(str(realm))}",
                resolution="If this is intended, name the registry as one without TLS.",
            )
        try:
            async with self._token_request(realm, query, login) as given:
                body = await given.read()
            token = decode_json(body, _Token) if given.status == 200 else _Token()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise RegistryError(
                f"the token server of {reference.registry} does not answer",
                details=f"{redacted_url(str(realm))}: {type(error).__name__}",
            ) from None  # the error's text may contain a URL of the server with a secret
        if 300 <= given.status < 400:
            raise RegistryError(
                f"the token server of {reference.registry} answers with a redirect; redirects are not followed",
                details=f"{redacted_url(str(realm))} answered {given.status}: credentials would go to another address",
                resolution="Configure the registry to name its token server's address directly, as the realm of its "
                "challenge.",
            )
        value = token.token or token.access_token
        if value and not is_sendable(value):
            raise RegistryError(
                f"the token server of {reference.registry} returns a token with characters that no header may contain",
                details=f"{redacted_url(str(realm))}: it contains characters other than visible ASCII",
            )
        return value

    def _token_request(
        self, realm: URL, query: dict[str, str], login: RegistryLogin | None
    ) -> "aiohttp.client._RequestContextManager":
        if login is not None and login.identity:
            form = {**query, "grant_type": "refresh_token", "client_id": _CLIENT, "refresh_token": login.identity}
            return self._open_session().post(realm, data=form, allow_redirects=False)
        headers = {"Authorization": login.basic_header} if login is not None and login.user else {}
        return self._open_session().get(realm, params=query, headers=headers, allow_redirects=False)


async def read_body(answer: aiohttp.ClientResponse, limit: int, when: str) -> bytes:
    """The body of an answer.

    Raises:
        RegistryError: the body is larger than `limit` bytes.
    """
    body = b""
    async for chunk in answer.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > limit:
            raise RegistryError(
                f"the registry {answer.url.host} sends more than the accepted {limit >> 20} MiB",
                details=f"{when}: {redacted_url(str(answer.url))}",
            )
    return body


async def is_absent(answer: aiohttp.ClientResponse) -> bool:
    """Whether the registry itself reports that the object does not exist. A proxy's 404 does not count."""
    return answer.status == 404 and bool(_error_codes(await answer.read()) & _ABSENT)


def _error_codes(body: bytes) -> set[str]:
    """Error codes of a registry's answer; none if the body is not a registry's."""
    try:
        return {error.code for error in decode_json(body, _Errors).errors}
    except ValueError:
        return set()


def _next_page(answer: aiohttp.ClientResponse, asked: URL, reference: Reference) -> URL | None:
    """The URL of the next page of a list; None after the last page."""
    try:
        link = answer.links["next"]["url"] if "next" in answer.links else None
    except ValueError:  # an invalid URL
        link = ""
    return None if link is None else _resolve_address(asked, str(link), reference, "the next page of a list")


def _resolve_address(base: URL, address: str, reference: Reference, what: str) -> URL:
    place = _join_address(base, address)
    if place is None:
        raise RegistryError(
            f"the registry {reference.registry} does not return a valid address of {what}",
            details="The address is invalid.",  # it is not shown, since it may contain a secret
            resolution="Check whether a proxy or a login page is in between.",
        )
    return place


def _join_address(base: URL, address: str) -> URL | None:
    """An HTTP URL relative to `base`; None for other schemes and invalid URLs."""
    try:
        place = base.join(URL(address))
        place.origin()
    except ValueError:
        return None
    return place if place.scheme in {"http", "https"} and place.host else None


def redacted_url(url: str) -> str:
    """A URL without the parts that may be secret: upload addresses and redirects contain signed queries."""
    return str(URL(url).with_user(None).with_password(None).with_query(None))


def upload_address(asked: URL, location: str, reference: Reference) -> URL:
    """The URL for the upload of a blob; `location` is the header Location of the registry's answer.

    Raises:
        RegistryError: the header is not a URL, or has no TLS although the registry has.
    """
    place = _join_address(asked, location) if location else None
    if place is None:
        raise RegistryError(
            f"the registry {reference.registry} does not return an address for the upload of a layer",
            details=f"requested the upload of a layer of {reference}: the header Location is not a URL",
        )
    if asked.scheme == "https" and place.scheme != "https":
        raise RegistryError(
            f"the registry {reference.registry} requests a layer in clear text",
            details=f"requested the upload of a layer of {reference}: Location is {redacted_url(str(place))}",
            resolution="If a proxy terminates TLS, configure the registry's external address in its settings.",
        )
    return place


def _no_answer_error(reference: Reference, when: str, error: Exception) -> RegistryError:
    """An error to be raised without its cause: errors about a redirect quote the URL, which may contain a secret."""
    quotes = isinstance(error, aiohttp.ClientResponseError | aiohttp.InvalidURL)
    why = "" if quotes else str(error)
    return RegistryError(
        f"the registry {reference.registry} does not answer",
        details=f"{when}: {why or type(error).__name__}",
        resolution="Nothing is decided about the registry's images without an answer; the request is repeated.",
    )


class ChangedContentsError(RegistryError):
    """A registry's answer whose contents differ from the digest: damaged, changed, or partly missing."""

    def __init__(self, reference: Reference, wanted: str, got: str) -> None:
        super().__init__(
            f"the registry {reference.registry} returned other contents than requested",
            details=f"{reference}: expected {wanted}, received {got}",
            resolution="Push the image again. The received data were discarded.",
        )


def unexpected_answer(answer: aiohttp.ClientResponse, when: str) -> RegistryError:
    """The error for a status that the caller does not expect."""
    resolution = ""
    if answer.status in {401, 403}:
        resolution = (
            "Log in with an account that has permission (REGISTRY_AUTH_FILE selects the file), or use another one."
        )
    return RegistryError(
        f"the registry {answer.url.host} answered {answer.status}",
        details=f"{when}: {redacted_url(str(answer.url))}",
        resolution=resolution,
    )
