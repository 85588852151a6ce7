"""Image references as Kubernetes writes them: `registry/repository:tag@sha256:...`."""

import re

from msgspec import Struct

from upgrader.core.errors import ConfigurationError

DEFAULT_REGISTRY = "docker.io"
"""The registry of a reference that names none. Its API has another host name."""

_API_HOSTS = {DEFAULT_REGISTRY: "registry-1.docker.io"}
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REGISTRY = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")


class Reference(Struct, frozen=True, kw_only=True):
    """A parsed reference. `tag` is `latest` if the text has neither tag nor digest."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """Registry and repository, without tag and digest."""
        return f"{self.registry}/{self.repository}"

    @property
    def api_host(self) -> str:
        """Host, and port if there is one, of the registry's HTTP API."""
        return _API_HOSTS.get(self.registry, self.registry)

    @property
    def tag_or_digest(self) -> str:
        """The last part of a request path: the digest if there is one, else the tag."""
        return self.digest or self.tag

    def with_digest(self, digest: str) -> str:
        """The image by digest, as container specifications should name it."""
        return f"{self.name}@{digest}"

    def __str__(self) -> str:
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def parse_reference(text: str) -> Reference:
    """Parse a reference by the rules of the distribution specification.

    Raises:
        ConfigurationError: the text is not a valid reference.
    """
    rest, _, digest = text.partition("@")
    first, slash, after = rest.partition("/")
    named = slash and ("." in first or ":" in first or first == "localhost")
    registry, path = (first, after) if named else (DEFAULT_REGISTRY, rest)
    repository, _, tag = path.partition(":")
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = f"library/{repository}"
    well = (
        _REGISTRY.fullmatch(registry)
        and _REPOSITORY.fullmatch(repository)
        and (not tag or _TAG.fullmatch(tag))
        and ("@" not in text or _DIGEST.fullmatch(digest))
        and (":" not in path or tag)
    )
    if not well:
        raise ConfigurationError(
            f"{text!r} is not an image reference",
            resolution="Write registry/repository:tag, or registry/repository@sha256:<64 hex digits>.",
        )
    return Reference(registry=registry, repository=repository, tag=tag or ("" if digest else "latest"), digest=digest)
