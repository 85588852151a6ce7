"""Registry logins from the file that podman, buildah and docker write.

https://github.com/containers/image/blob/main/docs/containers-auth.json.5.md
"""

import base64
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.errors import ConfigurationError
from upgrader.core.untrusted import is_sendable
from upgrader.images.registry.reference import DEFAULT_REGISTRY, Reference

_DOCKER_HUB = "https://index.docker.io/v1/"
_LOGIN = "`podman login` and `docker login` write this file. REGISTRY_AUTH_FILE selects another one."


class RegistryLogin(Struct, frozen=True, kw_only=True):
    """User and password; or `identity`, a refresh token for a token server; or `bearer`, a token that is sent as is."""

    user: str = ""
    password: str = ""
    identity: str = ""
    bearer: str = ""

    @property
    def basic_header(self) -> str:
        """Value of the header Authorization for basic authentication."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def __repr__(self) -> str:
        """Omits secrets, since tracebacks and logs contain values."""
        return f"RegistryLogin(user={self.user!r})"


class _Entry(Struct, frozen=True, kw_only=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""
    registrytoken: str = ""

    def __repr__(self) -> str:
        """Omits secrets, as RegistryLogin does."""
        return f"_Entry(username={self.username!r})"


class _File(Struct, frozen=True, kw_only=True):
    auths: dict[str, _Entry] = {}


def auth_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The login file: REGISTRY_AUTH_FILE, else podman's, else docker's; None if none of them exists."""
    if named := environment.get("REGISTRY_AUTH_FILE"):
        return Path(named)
    return next((path for path in _default_files(environment) if path.is_file()), None)


def _default_files(environment: Mapping[str, str]) -> Iterator[Path]:
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers/auth.json"
    yield Path(environment.get("DOCKER_CONFIG") or Path(environment.get("HOME", "/")) / ".docker") / "config.json"


def read_logins(path: Path | None) -> dict[str, RegistryLogin]:
    """Logins by registry, or by registry and the prefix of a repository's name.

    Raises:
        ConfigurationError: the named file does not exist or contains no logins.
    """
    if path is None:
        return {}
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=_File).auths
        return {_registry_name(name): _decode_login(entry) for name, entry in entries.items()}
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", details=error.strerror or "", resolution=_LOGIN) from error
    except (msgspec.DecodeError, RecursionError, ValueError):
        # without a cause: the errors of a decoder may contain the data that it read
        raise ConfigurationError(f"{path} contains no registry logins", resolution=_LOGIN) from None


def _registry_name(name: str) -> str:
    if name == _DOCKER_HUB:
        return DEFAULT_REGISTRY
    # docker writes URLs, podman writes names
    return name.removeprefix("https://").removeprefix("http://").rstrip("/")


def _decode_login(entry: _Entry) -> RegistryLogin:
    user, password = entry.username, entry.password
    if entry.auth:
        user, _, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
    if entry.registrytoken and not is_sendable(entry.registrytoken):
        raise ValueError("a token with characters that no header may contain")
    return RegistryLogin(user=user, password=password, identity=entry.identitytoken, bearer=entry.registrytoken)


def login_for(known: Mapping[str, RegistryLogin], reference: Reference) -> RegistryLogin | None:
    """The login whose key is the longest prefix of the repository's name."""
    parts = reference.name.split("/")
    names = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    candidates = (known[name] for name in names if name in known)
    return next((login for login in candidates if login != RegistryLogin()), None)
