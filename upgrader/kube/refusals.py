"""What the API server says when it does not do what was asked, in our own errors.

Kubernetes answers with a Status object (API conventions, "Response Status Kind"); a proxy in front of it, or a path
that it does not know, answers with anything else.
"""

from collections.abc import Mapping

from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.errors import (
    ClusterError,
    ConfigurationError,
    ConflictError,
    NameTakenError,
    NotFoundError,
    ThrottledError,
    UnreachableError,
    UpgraderError,
)


class ExpiredError(ClusterError):
    """A resourceVersion or a page of a list is too old (410): list anew."""


class RefusedError(UnreachableError):
    """Nobody listens there: nothing was sent, so that even this much is known."""


class Details(Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    retry_after_seconds: float | None = None


class Status(Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    message: str = ""
    reason: str = ""
    details: Details | None = None


_BY_CODE: Mapping[int, tuple[type[UpgraderError], str, str]] = {
    401: (ClusterError, "the API server does not know us", "Log in again, or name another kubeconfig."),
    403: (ClusterError, "the API server does not allow this", "Grant what deploy/ lists for the controller."),
    404: (ConfigurationError, "the API server does not serve this kind", "Apply crds/ of this release."),
    409: (ConflictError, "the object changed since it was read", ""),
    410: (ExpiredError, "the API server no longer knows that version", ""),
}


def refusal(code: int, headers: Mapping[str, str], body: bytes, asked: str) -> UpgraderError:
    """The error for an answer that is not 2xx; `asked` (verb and path) becomes its details."""
    status = _status(body)
    said = status.message or body[:200].decode(errors="replace").strip() or f"HTTP {code}"
    error = _error(code, headers, status, said, f"{asked}: {said}")
    error.said = said
    return error


def _error(code: int, headers: Mapping[str, str], status: Status, said: str, details: str) -> UpgraderError:
    if code == 404 and status.details is not None and status.details.name:
        return NotFoundError(f"{status.details.kind} {status.details.name} is not there", details=details)
    if code == 409 and status.reason == "AlreadyExists":
        return NameTakenError("the name is taken", details=details)
    if code in (400, 422):
        return ConfigurationError(said.splitlines()[0], details=details)
    if code == 429:
        after = _retry_after(headers, status)
        return ThrottledError("the API server asks to wait", retry_after=after, details=details)
    if code in _BY_CODE:
        kind, brief, resolution = _BY_CODE[code]
        return kind(brief, details=details, resolution=resolution)
    kind = UnreachableError if code >= 500 else ClusterError
    return kind(f"the API server answered {code}", details=details)


def is_status(body: bytes) -> bool:
    """Whether an answer is the API server's own word, and not that of a pod behind its proxy."""
    status = _status(body)
    return (status.kind, status.api_version) == ("Status", "v1")


def _status(body: bytes) -> Status:
    return untrusted.document(body, Status) or Status()


def _retry_after(headers: Mapping[str, str], status: Status) -> float | None:
    """Seconds; the form with a date is not used by Kubernetes."""
    seconds = untrusted.duration(headers.get("Retry-After"))
    if seconds is not None:
        return float(seconds)
    return status.details.retry_after_seconds if status.details is not None else None
