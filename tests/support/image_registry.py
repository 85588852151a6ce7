"""A registry that speaks the distribution API over HTTP as far as push, pull and resolving go, and can be wrong."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

_PATH = re.compile(r"^/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<what>[^/]+/?[^/]*)$")


class ImageRegistry:
    """Blobs and manifests in memory. `answer` takes over every request for which it gives a response."""

    def __init__(self, *, headers: bool = True) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], bytes] = {}
        self.seen: list[str] = []
        self.answer: Callable[[web.Request], web.Response | None] = lambda _request: None
        self._headers = headers  # a registry need not send the digest of what it sends

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append(f"{request.method} {request.path}")
        if (taken := self.answer(request)) is not None:
            return taken
        found = _PATH.match(request.path)
        if found is None:
            return web.Response(status=404, text="no page")
        name, kind, what = found["name"], found["kind"], found["what"]
        if kind == "manifests":
            return await self._manifest(request, name, what)
        return await self._blob(request, name, what)

    async def _manifest(self, request: web.Request, name: str, what: str) -> web.Response:
        if request.method == "PUT":
            body = await request.read()
            self.manifests[name, what] = self.manifests[name, digest_of(body)] = body
            return web.Response(status=201)
        body = self.manifests.get((name, what), b"")
        if not body:
            return web.json_response({"errors": [{"code": "MANIFEST_UNKNOWN"}]}, status=404)
        headers = {"Docker-Content-Digest": digest_of(body)} if self._headers else {}
        return web.Response(body=body, headers=headers)

    async def _blob(self, request: web.Request, name: str, what: str) -> web.Response:
        if request.method == "HEAD":
            return web.Response(status=200 if what in self.blobs else 404)
        if request.method == "GET":
            unknown = web.json_response({"errors": [{"code": "BLOB_UNKNOWN"}]}, status=404)
            return web.Response(body=self.blobs[what]) if what in self.blobs else unknown
        if request.method == "POST":
            return web.Response(status=202, headers={"Location": f"/v2/{name}/blobs/uploads/1?state=x"})
        body = await request.read()
        digest = request.query["digest"]
        if digest != digest_of(body) or request.query["state"] != "x":
            return web.json_response({"errors": [{"code": "DIGEST_INVALID"}]}, status=400)
        self.blobs[digest] = body
        return web.Response(status=201)


def digest_of(body: bytes) -> str:
    """As registries name contents."""
    return "sha256:" + hashlib.sha256(body).hexdigest()


def write_layout(folder: Path, layer: bytes, config: bytes) -> Path:
    """An OCI layout of one image with one layer."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, kind: str) -> dict[str, object]:
        digest = digest_of(data)
        (blobs / digest.partition(":")[2]).write_bytes(data)
        return {"mediaType": kind, "digest": digest, "size": len(data)}

    manifest = {"schemaVersion": 2, "config": put(config, "config"), "layers": [put(layer, "layer")]}
    image = put(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [image]}))
    return folder
