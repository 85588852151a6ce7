"""Who we are to a registry: user names and passwords from the file that podman, buildah and docker write on login.

https://github.com/containers/image/blob/main/docs/containers-auth.json.5.md
"""

import base64
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.errors import ConfigurationError
from upgrader.core.untrusted import sendable
from upgrader.images.reference import DEFAULT_REGISTRY, Reference

_DOCKER_HUB = "https://index.docker.io/v1/"
_LOGIN = "`podman login` and `docker login` write such a file; REGISTRY_AUTH_FILE names another one."


class Login(Struct, frozen=True, kw_only=True):
    """A user and a password; or `identity`, a token that a token server takes instead; or `bearer`, as it is."""

    user: str = ""
    password: str = ""
    identity: str = ""
    bearer: str = ""

    @property
    def basic(self) -> str:
        """Value of the header Authorization."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def __repr__(self) -> str:
        """Without secrets: values are shown in tracebacks and logs."""
        return f"Login(user={self.user!r})"


class _Entry(Struct, frozen=True, kw_only=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""
    registrytoken: str = ""

    def __repr__(self) -> str:
        """As that of Login."""
        return f"_Entry(username={self.username!r})"


class _File(Struct, frozen=True, kw_only=True):
    auths: dict[str, _Entry] = {}


def auth_file(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file that counts: REGISTRY_AUTH_FILE, else podman's, else docker's; None where there is none."""
    if named := environment.get("REGISTRY_AUTH_FILE"):
        return Path(named)
    return next((path for path in _usual(environment) if path.is_file()), None)


def _usual(environment: Mapping[str, str]) -> Iterator[Path]:
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers/auth.json"
    yield Path(environment.get("DOCKER_CONFIG") or Path(environment.get("HOME", "/")) / ".docker") / "config.json"


def logins(path: Path | None) -> dict[str, Login]:
    """Logins by registry, or by registry and the beginning of a repository's name.

    Raises:
        ConfigurationError: a file that is named, but is not there or is none.
    """
    if path is None:
        return {}
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=_File).auths
        return {_place(name): _login(entry) for name, entry in entries.items()}
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", details=error.strerror or "", resolution=_LOGIN) from error
    except (msgspec.DecodeError, RecursionError, ValueError):
        # not even as a cause: the errors of a decoder may show what it read
        raise ConfigurationError(f"{path} holds no registry logins", resolution=_LOGIN) from None


def _place(name: str) -> str:
    if name == _DOCKER_HUB:
        return DEFAULT_REGISTRY
    # docker writes addresses where podman writes names
    return name.removeprefix("https://").removeprefix("http://").rstrip("/")


def _login(entry: _Entry) -> Login:
    user, password = entry.username, entry.password
    if entry.auth:
        user, _, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
    if entry.registrytoken and not sendable(entry.registrytoken):
        raise ValueError("a token that no header can hold")
    return Login(user=user, password=password, identity=entry.identitytoken, bearer=entry.registrytoken)


def login_for(known: Mapping[str, Login], reference: Reference) -> Login | None:
    """The login with the longest beginning of the repository's name."""
    parts = reference.name.split("/")
    names = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    found = (known[name] for name in names if name in known)
    return next((one for one in found if one != Login()), None)
