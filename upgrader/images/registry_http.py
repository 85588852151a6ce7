"""One registry's HTTP: requests with time-outs, tokens where they are asked for, and errors that hide what is secret.

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
from upgrader.core.untrusted import sendable
from upgrader.images.reference import Reference
from upgrader.images.registry_login import Login, login_for
from upgrader.images.wire import decode

MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
SECONDS = 15.0
TRANSFER_SECONDS = 600.0
MANIFEST_LIMIT = 4 << 20
"""Most bytes of a manifest, as registries themselves have it."""

LIST_LIMIT = 32 << 20
"""Most bytes of one page of a list."""

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
        """Without the token: values are shown in tracebacks and logs."""
        return "_Token()"


class RegistryHttp:
    """An asynchronous context manager.

    Args:
        insecure: registries (host:port) that are spoken to without TLS.
        seconds: for one answer; TRANSFER_SECONDS where a layer goes with it.
        logins: see `registry_login.logins`; without one, requests are anonymous.
    """

    def __init__(
        self, *, insecure: Collection[str] = (), seconds: float = SECONDS, logins: Mapping[str, Login] | None = None
    ) -> None:
        self._insecure = frozenset(insecure)
        self._seconds = seconds
        self._logins = dict(logins or {})
        self._session: aiohttp.ClientSession | None = None
        self._said: dict[str, str] = {}  # Authorization by repository

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

    def url(self, reference: Reference, path: str) -> str:
        """Where a repository's `path` is."""
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
        """An answer, whole within `seconds`; one that asks who we are is asked again with what it wants.

        Who we are is said to the registry alone, wherever it sends us on to.

        Raises:
            RegistryError: there is no answer; also when it breaks off while the caller reads it.
        """
        limit = seconds or (self._seconds if data is None else TRANSFER_SECONDS)
        once = not isinstance(data, bytes | None)  # a file is read up to its end by the first attempt
        answer = await self._send(method, url, reference, data=data, headers=headers, seconds=limit)
        asked = answer.status == 401 and self._is_own(answer.url, reference)
        if asked and not once and await self._authenticate(answer, reference):
            answer.release()
            answer = await self._send(method, url, reference, data=data, headers=headers, seconds=limit)
        try:
            yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _silent(reference, f"{method} {shown(url)}", error) from None
        finally:
            answer.release()

    async def listing(self, reference: Reference, path: str, *, any_404: bool = False) -> list[bytes] | None:
        """All pages of a list; None where the registry says that there is no such thing, or knows no such list.

        Args:
            reference: whose list.
            path: below the repository.
            any_404: whether every 404 is an answer: of an API that a registry need not have.

        Raises:
            RegistryError: everything else.
        """
        pages: list[bytes] = []
        url = URL(self.url(reference, path))
        while True:
            async with self.request("GET", str(url), reference) as answer:
                if answer.status == 404 and (any_404 or await says_absent(answer)):
                    return None
                if answer.status != 200:
                    raise unexpected(answer, f"asked for {path} of {reference.name}")
                pages.append(await whole(answer, LIST_LIMIT, f"asked for {path} of {reference.name}"))
                following = _next(answer, url, reference)
            if following is None:
                return pages
            url = following
            if url.origin() != answer.url.origin() or len(pages) >= _PAGES:
                # another host would get our login, and a list without an end would keep us for ever
                raise unexpected(answer, f"asked for {path} of {reference.name}, sent us on to {shown(str(url))}")

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
        said = self._said.get(reference.name) if self._is_own(URL(url), reference) else None
        sent = {**(headers or {}), **({"Authorization": said} if said else {})}
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            return await self._open().request(method, url, data=data, headers=sent, timeout=timeout)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _silent(reference, f"{method} {shown(url)}", error) from None

    def _is_own(self, url: URL, reference: Reference) -> bool:
        """Whether an address is of the registry itself: same scheme, host and port."""
        return url.origin() == URL(self.url(reference, "")).origin()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("a registry is used outside its `async with`")
        return self._session

    async def _authenticate(self, answer: aiohttp.ClientResponse, reference: Reference) -> bool:
        """Have what the registry's challenge asks for; False when there is nothing new to say."""
        challenge = answer.headers.get("WWW-Authenticate", "")
        login = login_for(self._logins, reference)
        before = self._said.get(reference.name)
        if challenge.lower().startswith("bearer "):
            fields = dict(_CHALLENGE.findall(challenge))
            if login is not None and login.bearer:
                said = f"Bearer {login.bearer}"
            else:
                token = await self._token(fields, reference, login) if "realm" in fields else ""
                said = f"Bearer {token}" if token else ""
        else:
            said = login.basic if login is not None and login.user and challenge.lower().startswith("basic") else ""
        if said:
            self._said[reference.name] = said
        return bool(said) and said != before

    async def _token(self, fields: Mapping[str, str], reference: Reference, login: Login | None) -> str:
        """A token of the server that the challenge names; anonymous where we have no login."""
        realm = _absolute(URL(), fields["realm"], reference, "its token server")
        query = {name: fields[name] for name in ("service", "scope") if name in fields}
        if login is not None and realm.scheme != "https" and reference.registry not in self._insecure:
            raise RegistryError(
                f"the registry {reference.registry} asks for our password in clear text",
                details=f"its token server is {shown(str(realm))}",
                resolution="Name the registry as one without TLS, if that is meant.",
            )
        try:
            async with self._ask_token(realm, query, login) as given:
                body = await given.read()
            token = decode(body, _Token) if given.status == 200 else _Token()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise RegistryError(
                f"the token server of {reference.registry} does not answer",
                details=f"{shown(str(realm))}: {type(error).__name__}",
            ) from None  # its text may hold what the server put into an address
        if 300 <= given.status < 400:
            raise RegistryError(
                f"the token server of {reference.registry} answers with a redirect, which is never followed",
                details=f"{shown(str(realm))} answered {given.status}: who we are would go to another address",
                resolution="Have the registry name the address of its token server itself, as the realm of its "
                "challenge.",
            )
        found = token.token or token.access_token
        if found and not sendable(found):
            raise RegistryError(
                f"the token server of {reference.registry} gives a token that no header can hold",
                details=f"{shown(str(realm))}: it has other characters than visible ASCII",
            )
        return found

    def _ask_token(
        self, realm: URL, query: dict[str, str], login: Login | None
    ) -> "aiohttp.client._RequestContextManager":
        if login is not None and login.identity:
            form = {**query, "grant_type": "refresh_token", "client_id": _CLIENT, "refresh_token": login.identity}
            return self._open().post(realm, data=form, allow_redirects=False)
        headers = {"Authorization": login.basic} if login is not None and login.user else {}
        return self._open().get(realm, params=query, headers=headers, allow_redirects=False)


async def whole(answer: aiohttp.ClientResponse, limit: int, when: str) -> bytes:
    """The body of an answer.

    Raises:
        RegistryError: it is larger than `limit` bytes.
    """
    body = b""
    async for chunk in answer.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > limit:
            raise RegistryError(
                f"the registry {answer.url.host} sends more than {limit >> 20} MiB where that is the most",
                details=f"{when}: {shown(str(answer.url))}",
            )
    return body


async def says_absent(answer: aiohttp.ClientResponse) -> bool:
    """Whether the registry itself says that there is no such thing; a proxy's 404 says nothing."""
    return answer.status == 404 and bool(_codes(await answer.read()) & _ABSENT)


def _codes(body: bytes) -> set[str]:
    """Error codes of a registry's answer; none where it is not a registry's."""
    try:
        return {error.code for error in decode(body, _Errors).errors}
    except ValueError:
        return set()


def _next(answer: aiohttp.ClientResponse, asked: URL, reference: Reference) -> URL | None:
    """Where the next page of a list is; None after the last one."""
    try:
        found = answer.links["next"]["url"] if "next" in answer.links else None
    except ValueError:  # of one of the addresses
        found = ""
    return None if found is None else _absolute(asked, str(found), reference, "the next page of a list")


def _absolute(base: URL, said: str, reference: Reference, what: str) -> URL:
    place = _address(base, said)
    if place is None:
        raise RegistryError(
            f"the registry {reference.registry} does not say where {what} is",
            details="What it says is no address.",  # and is not shown: it may hold a secret
            resolution="Is a proxy or a log-in page in between?",
        )
    return place


def _address(base: URL, said: str) -> URL | None:
    """An address of the web, seen from `base`; None for everything else."""
    try:
        place = base.join(URL(said))
        place.origin()
    except ValueError:
        return None
    return place if place.scheme in {"http", "https"} and place.host else None


def shown(url: str) -> str:
    """An address without what may be a secret in it: upload addresses and redirections carry signed queries."""
    return str(URL(url).with_user(None).with_password(None).with_query(None))


def upload_place(asked: URL, said: str, reference: Reference) -> URL:
    """Where a registry that was `asked` to take a blob wants it; `said` is its header Location.

    Raises:
        RegistryError: it is no address, or one without TLS where the registry itself has TLS.
    """
    place = _address(asked, said) if said else None
    if place is None:
        raise RegistryError(
            f"the registry {reference.registry} does not say where to put a layer",
            details=f"asked to take a layer of {reference}: its header Location is no address",
        )
    if asked.scheme == "https" and place.scheme != "https":
        raise RegistryError(
            f"the registry {reference.registry} wants a layer in clear text",
            details=f"asked to take a layer of {reference}, it says {shown(str(place))}",
            resolution="A registry behind a proxy that speaks TLS has to be told its own address; see its settings.",
        )
    return place


def _silent(reference: Reference, when: str, error: Exception) -> RegistryError:
    """To be raised without its cause: errors about an address that a registry sent us on to quote all of it."""
    quotes = isinstance(error, aiohttp.ClientResponseError | aiohttp.InvalidURL)
    why = "" if quotes else str(error)
    return RegistryError(
        f"the registry {reference.registry} does not answer",
        details=f"{when}: {why or type(error).__name__}",
        resolution="Without its answer nothing is decided about its images; it is asked again.",
    )


class ChangedContentsError(RegistryError):
    """A registry's answer that is not what its digest says: damaged, tampered with, or gone in parts."""

    def __init__(self, reference: Reference, wanted: str, got: str) -> None:
        super().__init__(
            f"the registry {reference.registry} sent something else than it was asked for",
            details=f"{reference}: wanted {wanted}, got {got}",
            resolution="Push the image again; nothing of what came was kept.",
        )


def unexpected(answer: aiohttp.ClientResponse, when: str) -> RegistryError:
    """The error of an answer that is none of those that were expected."""
    resolution = ""
    if answer.status in {401, 403}:
        resolution = "Log in with an account that may do this (REGISTRY_AUTH_FILE names the file), or use another one."
    return RegistryError(
        f"the registry {answer.url.host} answered {answer.status}",
        details=f"{when}: {shown(str(answer.url))}",
        resolution=resolution,
    )
