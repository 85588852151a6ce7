"""Errors for failed requests to the API server.

Kubernetes returns a Status object (API conventions, "Response Status Kind"); a proxy in front of it, or an unknown
path, may return anything else.
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
    """A resourceVersion or a page of a list is too old (410): list again."""


class RefusedError(UnreachableError):
    """The connection was refused, so the request was not sent."""


class Details(Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    retry_after_seconds: float | None = None


class ApiStatus(Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    message: str = ""
    reason: str = ""
    details: Details | None = None


_BY_CODE: Mapping[int, tuple[type[UpgraderError], str, str]] = {
    401: (ClusterError, "the API server rejected the credentials", "Log in again, or specify another kubeconfig."),
    403: (ClusterError, "the API server does not allow this request", "Grant the rights in deploy/ to the controller."),
    404: (ConfigurationError, "the API server does not serve this kind", "Apply crds/ of this release."),
    409: (ConflictError, "the object changed since it was read", ""),
    410: (ExpiredError, "the API server no longer has that version", ""),
}


def response_error(code: int, headers: Mapping[str, str], body: bytes, request: str) -> UpgraderError:
    """The error for a response that is not 2xx; its details contain `request` (verb and path)."""
    status = _decode_status(body)
    text = status.message or body[:200].decode(errors="replace").strip() or f"HTTP {code}"
    error = _typed_error(code, headers, status, text, f"{request}: {text}")
    error.refusal_text = text
    return error


def _typed_error(code: int, headers: Mapping[str, str], status: ApiStatus, text: str, details: str) -> UpgraderError:
    if code == 404 and status.details is not None and status.details.name:
        return NotFoundError(f"{status.details.kind} {status.details.name} does not exist", details=details)
    if code == 409 and status.reason == "AlreadyExists":
        return NameTakenError("the name is taken", details=details)
    if code in (400, 422):
        return ConfigurationError(text.splitlines()[0], details=details)
    if code == 429:
        after = _retry_after(headers, status)
        return ThrottledError("the API server limits the rate of requests", retry_after=after, details=details)
    if code in _BY_CODE:
        kind, brief, resolution = _BY_CODE[code]
        return kind(brief, details=details, resolution=resolution)
    kind = UnreachableError if code >= 500 else ClusterError
    return kind(f"the API server returned {code}", details=details)


def is_status(body: bytes) -> bool:
    """Whether a response is of the API server itself and not of a pod behind its proxy."""
    status = _decode_status(body)
    return (status.kind, status.api_version) == ("Status", "v1")


def _decode_status(body: bytes) -> ApiStatus:
    return untrusted.read_json(body, ApiStatus) or ApiStatus()


def _retry_after(headers: Mapping[str, str], status: ApiStatus) -> float | None:
    """The delay in seconds; Kubernetes does not use the form with a date."""
    seconds = untrusted.parse_duration(headers.get("Retry-After"))
    if seconds is not None:
        return float(seconds)
    return status.details.retry_after_seconds if status.details is not None else None
