"""Where jobs are called by HTTP: port and path, as jobs declare them and as they are sent. Pure.

A pod is called through the API server, below the path of that pod's proxy, with our own credentials: a path that leads
out of there would be a request to the API server itself. So only what cannot lead anywhere else is an endpoint.
"""

import re
from typing import NamedTuple

from upgrader.core.errors import UnaskableError

_SEGMENT = r"\.?[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
PATTERN = rf":[1-9][0-9]{{0,4}}(/{_SEGMENT})*/?"
"""As the CRD has it too: no segment is empty, `.` or `..`, nothing is escaped, and no query is there."""

LONGEST = 1024

_ENDPOINT = re.compile(PATTERN)
_QUERY = re.compile(r"([A-Za-z]+)=([0-9]+)")


class Called(NamedTuple):
    """An endpoint in its parts; the port with its colon."""

    port: str
    path: str
    query: tuple[tuple[str, str], ...]


def is_endpoint(text: str) -> bool:
    """Whether a job may be called there."""
    port = text[1:].partition("/")[0]
    return len(text) <= LONGEST and _ENDPOINT.fullmatch(text) is not None and int(port) < 65536


def called(text: str) -> Called:
    """An endpoint as it is called, perhaps with one number as a query.

    Raises:
        UnaskableError: it is none; nothing may be sent there.
    """
    endpoint, asks, query = text.partition("?")
    found = _QUERY.fullmatch(query)
    if not is_endpoint(endpoint) or (asks and found is None):
        raise UnaskableError(
            f"{text[:80]!r} is no endpoint that may be called",
            resolution="Declare port and path, such as :8080/checkpoint: without '..', '//', '%', '?' and '#'.",
        )
    port, slash, path = endpoint.partition("/")
    return Called(port, f"{slash}{path}", ((found[1], found[2]),) if found is not None else ())
