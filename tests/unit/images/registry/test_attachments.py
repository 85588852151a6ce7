"""What hangs on an image, in registries that keep the list and in those whose clients do."""

import json

import pytest
from aiohttp import web

from tests.support.image_registry import ImageRegistry, digest_of, serving
from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.images.registry import attachments as hanging
from upgrader.images.registry.client import RegistryClient

IMAGE = b'{"schemaVersion": 2, "layers": []}'
KIND = "application/x-signature"


@pytest.fixture(params=[True, False], ids=["registry lists", "clients list"])
async def registry(request):
    async with serving(ImageRegistry(referrers=request.param)) as served:
        served.manifests["app", "1"] = served.manifests["app", digest_of(IMAGE)] = IMAGE
        yield served


@pytest.fixture
async def client(registry):
    async with RegistryClient(insecure=(registry.host,)) as asking:
        yield asking


@pytest.fixture
def image(registry):
    return f"{registry.host}/app@{digest_of(IMAGE)}"


async def test_nothing_hangs_there_at_first(client, image):
    assert await hanging.list_attachments(client, image) == ()


async def test_what_was_attached_is_found_and_read(client, image):
    made = [await hanging.attach_blob(client, image, data, KIND, {"a": "b"}) for data in (b"one", b"two")]
    found = await hanging.list_attachments(client, image)
    assert found == tuple(sorted(made, key=lambda one: one.digest))
    assert (found[0].artifact_type, found[0].annotations) == (KIND, {"a": "b"})
    assert {await hanging.read_attachment(client, image, one) for one in found} == {b"one", b"two"}


async def test_the_same_again_changes_nothing(client, image):
    first = await hanging.attach_blob(client, image, b"one", KIND, {})
    assert await hanging.attach_blob(client, image, b"one", KIND, {}) == first
    assert await hanging.list_attachments(client, image) == (first,)


async def test_an_artifact_of_another_image_is_not_read(client, registry, image):
    other = b'{"schemaVersion": 2, "layers": [], "other": 1}'
    registry.manifests["app", digest_of(other)] = other
    made = await hanging.attach_blob(client, f"{registry.host}/app@{digest_of(other)}", b"one", KIND, {})
    assert await hanging.list_attachments(client, image) == ()
    assert await hanging.read_attachment(client, image, made) is None


async def test_an_attachment_that_was_deleted_meanwhile(client, registry, image):
    made = await hanging.attach_blob(client, image, b"one", KIND, {})
    await client.delete(f"{registry.host}/app@{made.digest}")
    assert await hanging.read_attachment(client, image, made) is None


async def test_nothing_hangs_on_an_image_that_is_not_there(client, registry):
    absent = f"{registry.host}/app@sha256:{'0' * 64}"
    with pytest.raises(RegistryError, match="nothing can be attached to it"):
        await hanging.attach_blob(client, absent, b"one", KIND, {})


async def test_a_tag_is_no_place_to_hang_things(client, registry):
    for call in (hanging.list_attachments(client, f"{registry.host}/app:1"),):
        with pytest.raises(ConfigurationError, match="has no digest"):
            await call


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_a_list_that_is_not_given_is_doubt(client, registry, image, status):
    registry.answer = lambda _request: web.Response(status=status)
    with pytest.raises(RegistryError, match=f"answered {status}"):
        await hanging.list_attachments(client, image)


async def test_no_list_of_the_registry_and_no_answer_about_the_clients_is_doubt(client, registry, image):
    """What cosign's own look-up takes for an image without signatures."""
    registry.answer = lambda request: web.Response(status=404 if "referrers" in request.path else 503)
    with pytest.raises(RegistryError, match="answered 503"):
        await hanging.list_attachments(client, image)


@pytest.mark.parametrize("body", ["no JSON", "{}", '{"manifests": [{"digest": "../../etc"}]}'])
async def test_a_list_that_is_none_is_doubt(client, registry, image, body):
    registry.answer = lambda request: web.Response(text=body) if "referrers" in request.path else None
    with pytest.raises(RegistryError, match="no readable list"):
        await hanging.list_attachments(client, image)


async def test_more_than_anybody_would_attach_is_not_read(client, registry, image):
    listed = [{"mediaType": "x", "digest": f"sha256:{number:064x}", "size": 1} for number in range(hanging.MOST + 1)]
    registry.answer = lambda request: web.json_response({"manifests": listed}) if "referrers" in request.path else None
    with pytest.raises(RegistryError, match="at most 200"):
        await hanging.list_attachments(client, image)


@pytest.mark.parametrize(
    "manifest",
    [
        {"schemaVersion": 2},
        {"schemaVersion": 2, "layers": [], "subject": None},
        {"schemaVersion": 2, "layers": 5},
    ],
    ids=["nothing", "no subject", "no layers"],
)
async def test_a_manifest_of_another_form_is_not_read(client, registry, image, manifest):
    body = json.dumps(manifest).encode()
    registry.manifests["app", digest_of(body)] = body
    made = hanging.Attachment(media_type="x", digest=digest_of(body), size=len(body))
    assert await hanging.read_attachment(client, image, made) is None


async def test_all_that_hangs_on_an_image_is_deleted_with_the_list_of_it(client, registry, image):
    before = await client.list_tags(image.partition("@")[0])
    for data in (b"one", b"two"):
        await hanging.attach_blob(client, image, data, KIND, {})
    assert await hanging.detach_all(client, image) == 2
    assert await hanging.list_attachments(client, image) == ()
    assert await client.list_tags(image.partition("@")[0]) == before
    assert not any(b'"subject"' in body for body in registry.manifests.values())
    assert await hanging.detach_all(client, image) == 0


async def test_what_a_list_names_and_hangs_elsewhere_is_left_alone(client, registry, image):
    """Whoever can write a tag could otherwise have us delete any image of the repository."""
    other = b'{"schemaVersion": 2, "layers": [], "other": 1}'
    registry.manifests["app", digest_of(other)] = other
    entry = {"mediaType": "m", "digest": digest_of(other), "size": len(other), "artifactType": KIND}
    listed = json.dumps({"schemaVersion": 2, "mediaType": hanging.INDEX, "manifests": [entry]}).encode()
    registry.lists_attachments = False
    registry.manifests["app", digest_of(IMAGE).replace(":", "-")] = registry.manifests["app", digest_of(listed)] = (
        listed
    )
    assert await hanging.detach_all(client, image) == 0
    assert registry.manifests["app", digest_of(other)] == other
