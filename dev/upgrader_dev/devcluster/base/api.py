"""The few requests that the cluster makes to its own API server, as admin."""

from collections.abc import Mapping
from typing import Any

import msgspec
import tenacity
import urllib3

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.base.credentials import Credentials

REQUEST_SECONDS = 15.0
_CONNECTIONS = 8
MERGE = "application/merge-patch+json"
JSON = "application/json"
NODES = "/api/v1/nodes"

Object = dict[str, Any]
"""An object of the API as JSON has it."""


class ApiServer:
    """One connection pool as one user; requests may come from several threads."""

    def __init__(self, server: str, pki: Credentials, user: str = "admin") -> None:
        self._server = server
        self._pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS,
            ca_certs=str(pki.ca),
            cert_file=str(pki.path(f"{user}.crt")),
            key_file=str(pki.path(f"{user}.key")),
        )

    def close(self) -> None:
        """End the connections."""
        self._pool.clear()

    def ready(self, seconds: float = REQUEST_SECONDS) -> bool:
        """Whether /readyz answers exactly `ok` within `seconds`; no answer is no error here."""
        try:
            return self._send("GET", "/readyz", None, JSON, seconds) == (200, b"ok")
        except urllib3.exceptions.HTTPError:
            return False

    def get(self, path: str) -> Object | None:
        """The object or list at `path`; None when there is none."""
        return self._request("GET", path, None, JSON)

    def text(self, path: str) -> str:
        """A body that is no object, such as a pod's log."""
        return self._answered("GET", path, None, JSON)[1].decode(errors="replace")

    def create(self, path: str, made: Mapping[str, Any]) -> Object | None:
        """Create an object in the collection `path`; None when there is one of this name."""
        return self._request("POST", path, made, JSON, missing=(409,))

    def patch(self, path: str, changes: Mapping[str, Any]) -> Object | None:
        """A JSON merge patch; None when the object is not there."""
        return self._request("PATCH", path, changes, MERGE)

    def delete(self, path: str) -> None:
        """Delete an object; nothing when it is not there."""
        self._request("DELETE", path, None, JSON)

    def put_in_place(self, collection: str, wanted: Mapping[str, Any]) -> Object:
        """Create an object, or patch the one of its name."""
        made = self.create(collection, wanted) or self.patch(f"{collection}/{wanted['metadata']['name']}", wanted)
        if made is None:
            raise DevClusterError(f"{collection}/{wanted['metadata']['name']} was deleted while it was being set")
        return made

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None, kind: str, missing: tuple[int, ...] = (404,)
    ) -> Object | None:
        status, data = self._answered(method, path, body, kind, missing)
        return None if status in missing else msgspec.json.decode(data, type=Object)

    def _answered(
        self, method: str, path: str, body: Mapping[str, Any] | None, kind: str, missing: tuple[int, ...] = ()
    ) -> tuple[int, bytes]:
        trying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(urllib3.exceptions.HTTPError),
            wait=tenacity.wait_fixed(0.2),
            stop=tenacity.stop_after_delay(REQUEST_SECONDS),
            reraise=True,
        )
        try:
            status, data = trying(self._send, method, path, body, kind)
        except urllib3.exceptions.HTTPError as error:
            raise DevClusterError(f"{method} {path}: no answer from the API server", details=str(error)) from error
        if status >= 400 and status not in missing:
            raise DevClusterError(f"{method} {path}: refused with {status}", details=data.decode(errors="replace"))
        return status, data

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, kind: str, seconds: float = REQUEST_SECONDS
    ) -> tuple[int, bytes]:
        answer = self._pool.request(
            method,
            self._server + path,
            body=msgspec.json.encode(body) if body is not None else None,
            headers={"Content-Type": kind, "User-Agent": "gpu-upgrader-devcluster"},
            timeout=seconds,
            retries=False,
        )
        return answer.status, answer.data
