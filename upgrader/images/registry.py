"""A registry, asked what a reference names: a digest, "absent", or an error that never means absent.

Source: OCI distribution specification 1.1, `HEAD /v2/<name>/manifests/<reference>`.
"""

import re
from types import TracebackType
from typing import Self

import aiohttp
from msgspec import Struct

from upgrader.core.errors import ConfigurationError, RegistryError

SECONDS = 10.0
MANIFESTS = ", ".join(
    f"application/vnd.{kind}"
    for kind in (
        "oci.image.index.v1+json",
        "oci.image.manifest.v1+json",
        "docker.distribution.manifest.list.v2+json",
        "docker.distribution.manifest.v2+json",
    )
)
_REFERENCE = re.compile(
    r"^(?P<host>[^/]+)/(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?$"
)


class Reference(Struct, frozen=True, kw_only=True):
    """An image reference with its registry named."""

    host: str
    name: str
    tag: str = ""
    digest: str = ""

    @property
    def pinned(self) -> str:
        """`host/name@digest`; only of a reference with a digest."""
        return f"{self.host}/{self.name}@{self.digest}"


def parse(text: str) -> Reference:
    """A reference such as `10.0.0.2:5000/sim-driver:1.0` or `host/name@sha256:...`.

    Raises:
        ConfigurationError: no such reference, or one whose registry is not named.
    """
    found = _REFERENCE.match(text)
    if found is None or not ("." in found["host"] or ":" in found["host"] or found["host"] == "localhost"):
        raise ConfigurationError(
            f"{text!r} is no image reference with a registry",
            resolution="Write it as host[:port]/name:tag or host[:port]/name@sha256:...",
        )
    parts = {key: value or "" for key, value in found.groupdict().items()}
    if not parts["tag"] and not parts["digest"]:
        parts["tag"] = "latest"
    return Reference(**parts)


class RegistryClient:
    """Fits reconcile.ports.Registry. `insecure`: host:port of registries that are spoken to by plain HTTP."""

    def __init__(self, *, insecure: tuple[str, ...] = ()) -> None:
        self._insecure = frozenset(insecure)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def digest(self, image: str) -> str | None:
        """`host/name@sha256:...`; None when the registry itself says that there is no such image.

        Raises:
            RegistryError: no answer, or one that settles nothing (401, 429, 5xx, a proxy's page).
            ConfigurationError: no reference.
        """
        reference = parse(image)
        scheme = "http" if reference.host in self._insecure else "https"
        wanted = reference.digest or reference.tag
        url = f"{scheme}://{reference.host}/v2/{reference.name}/manifests/{wanted}"
        if self._session is None:
            raise RegistryError("the registry client is used outside its context")
        try:
            async with self._session.head(url, headers={"Accept": MANIFESTS}) as answer:
                return _judge(reference, answer.status, answer.headers.get("Docker-Content-Digest", ""))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise RegistryError(f"{reference.host} did not answer about {image}", details=str(error)) from error


def _judge(reference: Reference, status: int, digest: str) -> str | None:
    if status == 404:
        return None
    if status == 200 and re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        if reference.digest and reference.digest != digest:
            raise RegistryError(f"{reference.host} answered {digest} when asked for {reference.digest}")
        return Reference(host=reference.host, name=reference.name, digest=digest).pinned
    raise RegistryError(
        f"{reference.host} answered {status} about {reference.name}, which settles nothing",
        resolution="Check the registry's address and our credentials; plain HTTP ones are named in "
        "UPGRADER_INSECURE_REGISTRIES.",
    )
