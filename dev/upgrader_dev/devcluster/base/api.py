"""The requests of the cluster to its own API server, as admin."""

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
"""An object of the API as decoded JSON."""


class ApiServer:
    """A connection pool of one user; safe for several threads."""

    def __init__(self, server: str, pki: Credentials, user: str = "admin") -> None:
        self._server = server
        self._pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS,
            ca_certs=str(pki.ca),
            cert_file=str(pki.path(f"{user}.crt")),
            key_file=str(pki.path(f"{user}.key")),
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def is_ready(self, seconds: float = REQUEST_SECONDS) -> bool:
        """Whether /readyz returns exactly `ok` within `seconds`; no response is not an error."""
        try:
            return self._send("GET", "/readyz", None, JSON, seconds) == (200, b"ok")
        except urllib3.exceptions.HTTPError:
            return False

    def get(self, path: str) -> Object | None:
        """The object or list at `path`; None if it does not exist."""
        return self._request("GET", path, None, JSON)

    def read_text(self, path: str) -> str:
        """A response body that is not an object, such as the log of a pod."""
        return self._send_with_retries("GET", path, None, JSON)[1].decode(errors="replace")

    def create(self, path: str, manifest: Mapping[str, Any]) -> Object | None:
        """Create an object in the collection `path`; None if the name is taken."""
        return self._request("POST", path, manifest, JSON, missing=(409,))

    def patch(self, path: str, changes: Mapping[str, Any]) -> Object | None:
        """Apply a JSON merge patch; None if the object does not exist."""
        return self._request("PATCH", path, changes, MERGE)

    def delete(self, path: str) -> None:
        """Delete an object, if it exists."""
        self._request("DELETE", path, None, JSON)

    def create_or_patch(self, collection: str, manifest: Mapping[str, Any]) -> Object:
        """Create an object, or patch the existing one."""
        result = self.create(collection, manifest) or self.patch(
            f"{collection}/{manifest['metadata']['name']}", manifest
        )
        if result is None:
            raise DevClusterError(f"{collection}/{manifest['metadata']['name']} was deleted while it was being patched")
        return result

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None, kind: str, missing: tuple[int, ...] = (404,)
    ) -> Object | None:
        status, data = self._send_with_retries(method, path, body, kind, missing)
        return None if status in missing else msgspec.json.decode(data, type=Object)

    def _send_with_retries(
        self, method: str, path: str, body: Mapping[str, Any] | None, kind: str, missing: tuple[int, ...] = ()
    ) -> tuple[int, bytes]:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(urllib3.exceptions.HTTPError),
            wait=tenacity.wait_fixed(0.2),
            stop=tenacity.stop_after_delay(REQUEST_SECONDS),
            reraise=True,
        )
        try:
            status, data = retrying(self._send, method, path, body, kind)
        except urllib3.exceptions.HTTPError as error:
            raise DevClusterError(f"{method} {path}: no response from the API server", details=str(error)) from error
        if status >= 400 and status not in missing:
            raise DevClusterError(f"{method} {path}: refused with {status}", details=data.decode(errors="replace"))
        return status, data

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, kind: str, seconds: float = REQUEST_SECONDS
    ) -> tuple[int, bytes]:
        response = self._pool.request(
            method,
            self._server + path,
            body=msgspec.json.encode(body) if body is not None else None,
            headers={"Content-Type": kind, "User-Agent": "gpu-upgrader-devcluster"},
            timeout=seconds,
            retries=False,
        )
        return response.status, response.data
