"""A registry that speaks the distribution API over HTTP, as far as its clients here need; and ways to be wrong."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

_PATH = re.compile(r"^/v2/(?P<name>.+)/(?P<kind>manifests|blobs|referrers|tags)/(?P<what>[^/]+/?[^/]*)$")
_PAGE = 2


class ImageRegistry:
    """Blobs and manifests in memory. `answer` takes over every request for which it gives a response."""

    def __init__(self, *, headers: bool = True, referrers: bool = False) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], bytes] = {}
        self.seen: list[str] = []
        self.answer: Callable[[web.Request], web.Response | None] = lambda _request: None
        self._headers = headers  # a registry need not send the digest of what it sends
        self.lists_attachments = referrers  # nor keep the list of what hangs on an image
        self.host = ""

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
        if kind == "tags":
            return self._page(request, name, sorted(tag for at, tag in self.manifests if at == name and ":" not in tag))
        if kind == "referrers":
            return self._hanging(name, what)
        return await self._blob(request, name, what)

    async def _manifest(self, request: web.Request, name: str, what: str) -> web.Response:
        if request.method == "PUT":
            body = await request.read()
            self.manifests[name, what] = self.manifests[name, digest_of(body)] = body
            subject = json.loads(body).get("subject") if self.lists_attachments else None
            return web.Response(status=201, headers={"OCI-Subject": subject["digest"]} if subject else {})
        body = self.manifests.get((name, what), b"")
        if not body:
            return web.json_response({"errors": [{"code": "MANIFEST_UNKNOWN"}]}, status=404)
        if request.method == "DELETE":
            self.manifests = {at: kept for at, kept in self.manifests.items() if at[0] != name or kept != body}
            return web.Response(status=202)
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

    def _page(self, request: web.Request, name: str, tags: list[str]) -> web.Response:
        """A page of tags, with the way to the next one."""
        if not tags:
            return web.json_response({"errors": [{"code": "NAME_UNKNOWN"}]}, status=404)
        rest = [tag for tag in tags if tag > request.query.get("last", "")]
        last = f"/v2/{name}/tags/list?last={rest[_PAGE - 1]}" if len(rest) > _PAGE else ""
        headers = {"Link": f'<{last}>; rel="next"'} if last else {}
        return web.json_response({"name": name, "tags": rest[:_PAGE]}, headers=headers)

    def _hanging(self, name: str, subject: str) -> web.Response:
        if not self.lists_attachments:
            return web.Response(status=404, text="404 page not found")
        found = {digest_of(body): body for (where, _), body in self.manifests.items() if where == name}
        listed = [
            {
                "mediaType": made["mediaType"],
                "digest": digest,
                "size": len(body),
                "artifactType": made["artifactType"],
                "annotations": made["annotations"],
            }
            for digest, body in found.items()
            if (made := json.loads(body)).get("subject", {}).get("digest") == subject
        ]
        return web.json_response({"schemaVersion": 2, "manifests": listed})


class serving:  # noqa: N801 - reads as what it does
    """`async with serving(registry)`: it answers at `registry.host` for as long as the block runs."""

    def __init__(self, registry: ImageRegistry) -> None:
        self.registry = registry

    async def __aenter__(self) -> ImageRegistry:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self.registry.handle)
        self.server = TestServer(app)
        await self.server.start_server()
        self.registry.host = f"{self.server.host}:{self.server.port}"
        return self.registry

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()


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
