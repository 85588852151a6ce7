"""A registry that fails at any of its answers, while a well-signed image is verified: an error, never a verdict."""

import asyncio

import pytest
from aiohttp import web

from tests.support.image_registry import ImageRegistry, serving
from tests.support.trusting import IDENTITY, driver_layout, facts
from upgrader.core.errors import RegistryError
from upgrader.images.registry.client import RegistryClient
from upgrader.images.trust import Verifier, publish_signatures

pytestmark = pytest.mark.images


@pytest.fixture(params=[True, False], ids=["registry lists", "clients list"])
async def served(request, tmp_path, signing, cosign):
    """A registry in memory with a signed image of the tag 1."""
    async with serving(ImageRegistry(referrers=request.param)) as registry:
        async with RegistryClient(insecure=(registry.host,)) as client:
            image = await client.push(driver_layout(tmp_path / "image"), f"{registry.host}/drivers/nv:1")
            await publish_signatures(image, facts(image.partition("@")[2]), key=signing, cosign=cosign, registry=client)
        registry.seen.clear()
        yield registry, image.replace("@", ":1@")


async def verified(served, verifying, cosign, **more):
    registry, image = served
    async with RegistryClient(insecure=(registry.host,), **more) as client:
        verifier = Verifier(key=verifying, cosign=cosign, registry=client)
        return await verifier.verify(image, IDENTITY, layers=True)


def failing(registry, position, answer):
    """One answer among all is another one."""
    count = iter(range(1000))
    registry.answer = lambda _request: answer() if next(count) == position else None


@pytest.mark.timeout(600)
async def test_an_error_at_any_answer_is_never_a_verdict(served, verifying, cosign):
    registry, _ = served
    assert all(one.passed for one in await verified(served, verifying, cosign))
    asked = list(registry.seen)
    assert len(asked) > 8
    for position, what in enumerate(asked):
        if "referrers" in what and not registry.lists_attachments:
            continue  # its 404 is what such a registry says
        for status in (401, 403, 429, 500, 503):
            failing(registry, position, lambda status=status: web.Response(status=status))
            if what.startswith("HEAD"):  # asked again by GET, which has a body
                assert all(one.passed for one in await verified(served, verifying, cosign)), what
                continue
            with pytest.raises(RegistryError):
                await verified(served, verifying, cosign)


async def test_a_registry_that_is_silent_is_never_a_verdict(served, verifying, cosign):
    registry, _ = served
    held, inner = asyncio.Event(), registry.handle

    async def hold(request):
        await held.wait()
        return await inner(request)

    registry.handle = hold
    async with serving(registry):
        image = f"{registry.host}/drivers/nv@{served[1].partition('@')[2]}"
        with pytest.raises(RegistryError, match="does not answer"):
            await verified((registry, image), verifying, cosign, seconds=0.3)
        held.set()


async def test_a_404_without_a_word_is_never_absent(served, verifying, cosign):
    registry, _ = served
    registry.answer = lambda request: web.Response(status=404) if "manifests" in request.path else None
    with pytest.raises(RegistryError, match="answered 404"):
        await verified(served, verifying, cosign)
