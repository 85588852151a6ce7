"""HTTP endpoints of jobs: port and path, as declared and as called. Pure.

A pod is called through the API server, below the path of that pod's proxy, with the operator's credentials: a path that
leads out of it would be a request to the API server. So only a path that cannot lead out of it is an endpoint.
"""

import re
from typing import NamedTuple

from upgrader.core.errors import UnaskableError

_SEGMENT = r"\.?[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
PATTERN = rf":[1-9][0-9]{{0,4}}(/{_SEGMENT})*/?"
"""The same as in the CRD: no segment is empty, `.` or `..`, nothing is escaped, and there is no query."""

LONGEST = 1024

_ENDPOINT = re.compile(PATTERN)
_QUERY = re.compile(r"([A-Za-z]+)=([0-9]+)")


class EndpointParts(NamedTuple):
    """An endpoint in its parts; the port with its colon."""

    port: str
    path: str
    query: tuple[tuple[str, str], ...]


def is_endpoint(text: str) -> bool:
    """Whether a job may be called at this endpoint."""
    port = text[1:].partition("/")[0]
    return len(text) <= LONGEST and _ENDPOINT.fullmatch(text) is not None and int(port) < 65536


def split_endpoint(text: str) -> EndpointParts:
    """The parts of an endpoint for a call, with at most one number as a query.

    Raises:
        UnaskableError: it is no endpoint; no request may be sent to it.
    """
    endpoint, asks, query = text.partition("?")
    match = _QUERY.fullmatch(query)
    if not is_endpoint(endpoint) or (asks and match is None):
        raise UnaskableError(
            f"{text[:80]!r} is no endpoint that may be called",
            resolution="Declare port and path, such as :8080/checkpoint: without '..', '//', '%', '?' and '#'.",
        )
    port, slash, path = endpoint.partition("/")
    return EndpointParts(port, f"{slash}{path}", ((match[1], match[2]),) if match is not None else ())
