"""Answers of the API server become our errors, with what was asked and what it said."""

import pytest

from upgrader.core.errors import (
    ClusterError,
    ConfigurationError,
    ConflictError,
    NameTakenError,
    NotFoundError,
    ThrottledError,
    UnreachableError,
)
from upgrader.kube.refusals import ExpiredError, response_error

ASKED = "PATCH /api/v1/nodes/n1"


@pytest.mark.parametrize(
    ("code", "body", "kind", "brief"),
    [
        (404, b'{"message":"m","details":{"name":"n1","kind":"nodes"}}', NotFoundError, "nodes n1 does not exist"),
        (404, b"404 page not found\n", ConfigurationError, "the API server does not serve this kind"),
        (404, b'{"message":"the server could not find it","details":{}}', ConfigurationError, "does not serve"),
        (409, b'{"message":"m","reason":"Conflict"}', ConflictError, "changed since it was read"),
        (409, b'{"message":"m","reason":"AlreadyExists"}', NameTakenError, "the name is taken"),
        (409, b'{"message":"a webhook denied it"}', ConflictError, "changed since it was read"),
        (410, b'{"message":"m"}', ExpiredError, "no longer has that version"),
        (422, b'{"message":"spec.x: Invalid"}', ConfigurationError, "spec.x: Invalid"),
        (400, b'{"message":"bad\\nbody"}', ConfigurationError, "bad"),
        (403, b'{"message":"u cannot patch"}', ClusterError, "does not allow this request"),
        (401, b"Unauthorized", ClusterError, "rejected the credentials"),
        (500, b"\xff\xfe", UnreachableError, "returned 500"),
        (503, b"", UnreachableError, "returned 503"),
        (418, b"teapot", ClusterError, "returned 418"),
    ],
)
def test_every_code_has_its_error(code, body, kind, brief):
    error = response_error(code, {}, body, ASKED)
    assert type(error) is kind
    assert brief in error.brief
    assert error.refusal_text
    assert error.details == f"{ASKED}: {error.refusal_text}"


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry-After": "3"}, b"{}", 3.0),
        ({}, b'{"details":{"retryAfterSeconds":10}}', 10.0),
        ({}, b'{"details":{}}', None),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"{}", None),
    ],
)
def test_a_429_says_when_to_come_back_or_not(headers, body, seconds):
    error = response_error(429, headers, body, ASKED)
    assert isinstance(error, ThrottledError)
    assert error.retry_after == seconds
