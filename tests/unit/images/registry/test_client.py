import asyncio
import json

import pytest
from aiohttp import web
from yarl import URL

from tests.support.image_registry import ImageRegistry, digest_of, serving, write_layout
from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.images.layout import Layout, LayoutWriter
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.reference import parse_reference
from upgrader.images.registry.transport import LIST_LIMIT, MANIFEST_LIMIT, upload_address

BODY = b'{"schemaVersion": 2}'


@pytest.fixture(params=[True, False], ids=["says digests", "says none"])
async def registry(request):
    async with serving(ImageRegistry(headers=request.param)) as served:
        yield served


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
        lambda: web.Response(status=404),
        lambda: web.Response(status=429, headers={"Retry-After": "1"}),
        lambda: web.Response(status=503),
        lambda: web.Response(status=200, text="<html>log in, please</html>", headers={"Docker-Content-Digest": "x"}),
    ],
    ids=["page of a proxy", "another code", "500", "401", "403", "404 without a body", "429", "503", "a portal"],
)
async def test_every_other_answer_is_doubt_and_never_absent(registry, answer):
    registry.answer = lambda _request: answer()
    with pytest.raises(RegistryError, match="answer"):
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
    assert registry.blobs == {blob.digest: layout.blob_path(blob).read_bytes() for blob in layout.blobs}


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


async def pushed(registry, layout, name="up/node:1"):
    async with client(registry) as pushing:
        return await pushing.push(layout, f"{registry.host}/{name}")


async def pull(registry, folder, image="up/node:1"):
    async with client(registry) as pulling:
        return await pulling.pull(f"{registry.host}/{image}", folder)


async def test_what_was_pushed_comes_back_whole_by_tag_and_by_digest(registry, layout, tmp_path):
    pinned = await pushed(registry, layout)
    for number, image in enumerate(["up/node:1", pinned.partition("/")[2]]):
        got = await pull(registry, tmp_path / str(number), image)
        assert got.is_intact()
        assert (got.image, got.blobs) == (layout.image, layout.blobs)
        assert [got.blob_path(one).read_bytes() for one in got.blobs] == [
            layout.blob_path(one).read_bytes() for one in got.blobs
        ]


async def test_an_image_that_is_not_there_is_none_and_leaves_nothing(registry, tmp_path):
    assert await pull(registry, tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


async def test_layers_that_are_here_are_not_asked_for_again(registry, layout, tmp_path):
    await pushed(registry, layout)
    got = await pull(registry, tmp_path / "got")
    got.blob_path(got.blobs[0]).write_bytes(b"changed since")
    registry.seen.clear()
    assert (await pull(registry, tmp_path / "got")).is_intact()
    assert registry.seen == ["GET /v2/up/node/manifests/1", f"GET /v2/up/node/blobs/{got.blobs[0].digest}"]


@pytest.mark.parametrize("status", [401, 429, 500])
@pytest.mark.parametrize("kind", ["manifests", "blobs"])
async def test_every_other_answer_to_a_pull_is_doubt(registry, layout, tmp_path, kind, status):
    await pushed(registry, layout)
    registry.answer = lambda request: web.Response(status=status) if f"/{kind}/" in request.path else None
    with pytest.raises(RegistryError, match=f"answered {status}"):
        await pull(registry, tmp_path / "got")
    assert not (tmp_path / "got/index.json").exists()


async def test_a_layer_that_the_registry_lost_is_doubt_and_not_absence(registry, layout, tmp_path):
    await pushed(registry, layout)
    del registry.blobs[layout.blobs[0].digest]
    with pytest.raises(RegistryError, match="no longer has it"):
        await pull(registry, tmp_path / "got")


async def test_a_layer_that_is_another_is_refused_and_not_kept(registry, layout, tmp_path):
    await pushed(registry, layout)
    registry.blobs[layout.blobs[0].digest] = b"other"
    with pytest.raises(RegistryError, match="returned other contents") as refused:
        await pull(registry, tmp_path / "got")
    assert layout.blobs[0].digest in refused.value.details
    assert digest_of(b"other") in refused.value.details
    assert [path.name for path in tmp_path.joinpath("got").rglob("*") if path.is_file()] == []


async def test_a_manifest_that_is_not_that_of_the_digest_is_refused(registry, layout, tmp_path):
    await pushed(registry, layout)
    registry.manifests["up/node", digest_of(BODY)] = layout.blob_path(layout.image).read_bytes()
    with pytest.raises(RegistryError, match="returned other contents"):
        await pull(registry, tmp_path / "got", f"up/node@{digest_of(BODY)}")


@pytest.mark.parametrize(
    "digest", ["sha256:../../../../../tmp/x", "md5:00", "sha256:" + "0" * 63, f"sha256:{'0' * 64}\n"]
)
async def test_a_digest_that_would_be_another_path_is_refused(registry, tmp_path, digest):
    blob = {"mediaType": "layer", "digest": digest, "size": 1}
    registry.manifests["up/node", "1"] = json.dumps({"schemaVersion": 2, "config": blob, "layers": []}).encode()
    with pytest.raises(ConfigurationError, match="is not one image"):
        await pull(registry, tmp_path / "got")


async def test_an_index_of_several_images_is_not_one(registry, tmp_path):
    registry.manifests["up/node", "1"] = b'{"schemaVersion": 2, "manifests": []}'
    with pytest.raises(ConfigurationError, match="is not one image"):
        await pull(registry, tmp_path / "got")


def test_a_layout_knows_its_size_and_whether_it_is_whole(layout):
    assert layout.size == 5002
    assert layout.is_intact()
    layout.blob_path(layout.blobs[0]).write_bytes(b"cut")
    assert not layout.is_intact()
    layout.blob_path(layout.blobs[0]).unlink()
    assert not layout.is_intact()


@pytest.mark.parametrize("index", [None, "", "{}", '{"manifests": []}', '{"manifests": [{}, {}]}'])
def test_what_is_no_layout_says_so(tmp_path, index):
    if index is not None:
        (tmp_path / "index.json").write_text(index)
    with pytest.raises(ConfigurationError, match="contains no OCI layout"):
        Layout(tmp_path)


async def test_a_tag_that_answers_with_anothers_digest_is_not_believed(registry):
    """HEAD of a digest with another one in the header: the contents decide."""
    registry.manifests["app", digest_of(BODY)] = BODY
    other = {"Docker-Content-Digest": "sha256:" + "0" * 64}
    registry.answer = lambda request: web.Response(headers=other) if request.method == "HEAD" else None
    assert await ask(registry, f"app@{digest_of(BODY)}") == f"{registry.host}/app@{digest_of(BODY)}"


async def test_addresses_with_secrets_in_them_are_not_shown(registry, layout):
    """Upload addresses carry signed queries."""

    def answer(request):
        if request.method == "POST":
            return web.Response(status=202, headers={"Location": f"/v2/x/{request.path[-8:]}?signature=s3cr3t"})
        return web.Response(status=500) if request.method == "PUT" else None

    registry.answer = answer
    async with client(registry) as pushing:
        with pytest.raises(RegistryError, match="answered 500") as raised:
            await pushing.push(layout, f"{registry.host}/up/node:1")
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("said", ["", "http://[", "ftp://example.org/x", "mailto:x"])
async def test_a_registry_that_does_not_say_where_to_put_a_layer(registry, layout, said):
    headers = {"Location": said} if said else {}
    registry.answer = lambda request: web.Response(status=202, headers=headers) if request.method == "POST" else None
    async with client(registry) as pushing:
        with pytest.raises(RegistryError, match="does not return an address"):
            await pushing.push(layout, f"{registry.host}/up/node:1")


@pytest.mark.parametrize("said", ["http://example.org/up?state=s3cr3t", "http://storage.example.org/up?state=s3cr3t"])
def test_a_layer_does_not_go_on_without_tls(said):
    with pytest.raises(RegistryError, match="clear text") as raised:
        upload_address(URL("https://example.org/v2/up/blobs/uploads/"), said, parse_reference("example.org/up:1"))
    assert "s3cr3t" not in str(raised.value)


async def test_deleting_says_whether_there_was_anything(registry):
    registry.manifests["app", "1"] = registry.manifests["app", digest_of(BODY)] = BODY
    image = f"{registry.host}/app@{digest_of(BODY)}"
    async with client(registry) as asking:
        assert await asking.delete(image) is True
        assert await asking.digest(f"{registry.host}/app:1") is None
        assert await asking.delete(image) is False


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: web.Response(status=405), "does not allow deletion"),
        (lambda: web.Response(status=404), "answered 404"),
        (lambda: web.Response(status=401), "answered 401"),
        (lambda: web.Response(status=500), "answered 500"),
        (lambda: web.Response(status=200, text="a portal"), "answered 200"),
    ],
    ids=["405", "404 of a proxy", "401", "500", "200"],
)
async def test_a_registry_that_does_not_delete_says_why(registry, answer, said):
    registry.answer = lambda _request: answer()
    async with client(registry) as asking:
        with pytest.raises(RegistryError, match=said):
            await asking.delete(f"{registry.host}/app@{digest_of(BODY)}")


async def test_nothing_is_deleted_by_tag(registry):
    async with client(registry) as asking:
        with pytest.raises(ConfigurationError, match="by digest only"):
            await asking.delete(f"{registry.host}/app:1")
    assert registry.seen == []


async def test_a_layer_that_cannot_be_written_says_where(registry, layout, tmp_path):
    await pushed(registry, layout)
    blob = tmp_path / "got/blobs/sha256" / layout.blobs[0].digest.partition(":")[2]
    (blob / "in the way").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="cannot be written") as raised:
        await pull(registry, tmp_path / "got")
    assert str(blob) in raised.value.details
    assert not (tmp_path / "got/index.json").exists()


def test_a_part_of_a_layout_that_cannot_be_written_says_where(tmp_path):
    writing = LayoutWriter(tmp_path)
    (tmp_path / "blobs/sha256" / digest_of(b"x").partition(":")[2]).mkdir()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        writing.put_blob("layer", b"x")


async def test_a_manifest_or_a_list_without_an_end_is_not_kept_in_memory(registry):
    registry.manifests["app", "1"] = BODY[:-1] + b" " * (MANIFEST_LIMIT - len(BODY)) + b"}"
    image = f"{registry.host}/app:1"
    async with client(registry) as asking:
        assert len((await asking.get_manifest(image)).data) == MANIFEST_LIMIT
        registry.manifests["app", "1"] += b" "
        with pytest.raises(RegistryError, match="more than the accepted 4 MiB"):
            await asking.get_manifest(image)
        registry.answer = lambda _request: web.Response(body=b" " * (LIST_LIMIT + 1))
        with pytest.raises(RegistryError, match="more than the accepted 32 MiB"):
            await asking.list_tags(f"{registry.host}/app")


async def test_a_blob_that_is_longer_than_it_says_is_not_read_to_its_end(registry, layout):
    layer = layout.blobs[0]
    registry.blobs[layer.digest] = b"x" * (layer.size + 1)
    async with client(registry) as asking:
        with pytest.raises(RegistryError, match="other contents"):
            await asking.read_blob(layer, parse_reference(f"{registry.host}/up/node:1"), limit=1 << 20)
        with pytest.raises(RegistryError, match="at most 10 are accepted"):
            await asking.read_blob(layer, parse_reference(f"{registry.host}/up/node:1"), limit=10)
