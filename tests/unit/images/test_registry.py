import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.image_registry import ImageRegistry, digest_of, write_layout
from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.images.layout import Layout
from upgrader.images.registry import RegistryClient

BODY = b'{"schemaVersion": 2}'


@pytest.fixture(params=[True, False], ids=["says digests", "says none"])
async def registry(request):
    async with serving(ImageRegistry(headers=request.param)) as served:
        yield served


class serving:  # noqa: N801 - reads as what it does
    def __init__(self, registry):
        self.registry = registry

    async def __aenter__(self):
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self.registry.handle)
        self.server = TestServer(app)
        await self.server.start_server()
        self.registry.host = f"{self.server.host}:{self.server.port}"
        return self.registry

    async def __aexit__(self, *_):
        await self.server.close()


def client(registry, **more):
    return RegistryClient(insecure=(registry.host,), **more)


async def ask(registry, image="app:1", **more):
    async with client(registry, **more) as asking:
        return await asking.digest(f"{registry.host}/{image}")


async def test_a_tag_becomes_the_digest_of_its_manifest(registry):
    registry.manifests["app", "1"] = BODY
    assert await ask(registry) == f"{registry.host}/app@{digest_of(BODY)}"


async def test_an_image_by_digest_is_there_or_not(registry):
    registry.manifests["app", digest_of(BODY)] = BODY
    assert await ask(registry, f"app@{digest_of(BODY)}") == f"{registry.host}/app@{digest_of(BODY)}"
    assert await ask(registry, f"app@{digest_of(b'other')}") is None


async def test_absent_is_what_the_registry_itself_says(registry):
    assert await ask(registry, "none:1") is None


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(status=404, text="<html>proxy: no such page</html>"),
        lambda: web.json_response({"errors": [{"code": "DENIED"}]}, status=404),
        lambda: web.Response(status=500),
        lambda: web.Response(status=401),
        lambda: web.Response(status=403),
        lambda: web.Response(status=429),
    ],
    ids=["page of a proxy", "another code", "500", "401", "403", "429"],
)
async def test_every_other_answer_is_doubt_and_never_absent(registry, answer):
    registry.answer = lambda _request: answer()
    with pytest.raises(RegistryError, match="answered"):
        await ask(registry)


async def test_no_answer_is_doubt():
    async with serving(ImageRegistry()) as registry:
        pass
    with pytest.raises(RegistryError, match="does not answer"):
        await ask(registry)


async def test_a_registry_that_takes_too_long_is_doubt(registry):
    held = asyncio.Event()

    async def hold(_request):
        await held.wait()

    registry.handle = hold
    async with serving(registry):
        with pytest.raises(RegistryError, match="does not answer"):
            await ask(registry, seconds=0.2)
        held.set()


async def test_a_name_that_is_none_is_the_callers_fault(registry):
    async with client(registry) as asking:
        with pytest.raises(ConfigurationError):
            await asking.digest("Not A Name")


async def test_a_registry_that_is_not_insecure_is_spoken_to_with_tls(registry):
    registry.manifests["app", "1"] = BODY
    async with RegistryClient() as asking:
        with pytest.raises(RegistryError):
            await asking.digest(f"{registry.host}/app:1")
    assert registry.seen == []


async def test_an_anonymous_token_is_fetched_where_the_challenge_says(registry):
    registry.manifests["app", "1"] = BODY

    def guard(request):
        if request.path == "/token":
            assert dict(request.query) == {"service": "registry", "scope": "repository:app:pull"}
            return web.json_response({"token": "t"})
        if request.headers.get("Authorization") == "Bearer t":
            return None
        realm = f'Bearer realm="http://{registry.host}/token",service="registry",scope="repository:app:pull"'
        return web.Response(status=401, headers={"WWW-Authenticate": realm})

    registry.answer = guard
    assert await ask(registry) == f"{registry.host}/app@{digest_of(BODY)}"
    assert registry.seen.count("GET /token") == 1


async def test_a_token_server_that_gives_none_is_doubt(registry):
    realm = {"WWW-Authenticate": f'Bearer realm="http://{registry.host}/token"'}
    registry.answer = lambda request: (
        web.Response(text="no json") if request.path == "/token" else web.Response(status=401, headers=realm)
    )
    with pytest.raises(RegistryError, match="token server"):
        await ask(registry)


@pytest.fixture
def layout(tmp_path):
    return Layout(write_layout(tmp_path / "layout", b"layer" * 1000, b"{}"))


async def test_what_is_pushed_is_found_under_its_tag_and_digest(registry, layout):
    async with client(registry) as pushing:
        pinned = await pushing.push(layout, f"{registry.host}/up/node:1")
        assert pinned == f"{registry.host}/up/node@{layout.image.digest}"
        assert await pushing.digest(f"{registry.host}/up/node:1") == pinned
        assert await pushing.digest(pinned) == pinned
    assert registry.blobs == {blob.digest: layout.path(blob).read_bytes() for blob in layout.blobs}


async def test_a_layer_that_is_there_is_not_sent_again(registry, layout):
    async with client(registry) as pushing:
        await pushing.push(layout, f"{registry.host}/up/node:1")
        registry.seen.clear()
        await pushing.push(layout, f"{registry.host}/up/node:2")
    assert [one for one in registry.seen if one.startswith(("POST", "PUT"))] == ["PUT /v2/up/node/manifests/2"]


@pytest.mark.parametrize("refused", ["POST", "PUT"])
async def test_a_registry_that_takes_nothing_is_an_error(registry, layout, refused):
    registry.answer = lambda request: web.Response(status=507) if request.method == refused else None
    async with client(registry) as pushing:
        with pytest.raises(RegistryError, match="answered 507"):
            await pushing.push(layout, f"{registry.host}/up/node:1")


def test_a_layout_knows_its_size_and_whether_it_is_whole(layout):
    assert layout.size == 5002
    assert layout.whole()
    layout.path(layout.blobs[0]).write_bytes(b"cut")
    assert not layout.whole()
    layout.path(layout.blobs[0]).unlink()
    assert not layout.whole()


@pytest.mark.parametrize("index", [None, "", "{}", '{"manifests": []}', '{"manifests": [{}, {}]}'])
def test_what_is_no_layout_says_so(tmp_path, index):
    if index is not None:
        (tmp_path / "index.json").write_text(index)
    with pytest.raises(ConfigurationError, match="holds no OCI layout"):
        Layout(tmp_path)
