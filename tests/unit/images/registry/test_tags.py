"""All tags of a repository, or a clear doubt."""

import pytest
from aiohttp import web

from tests.support.image_registry import ImageRegistry, serving
from upgrader.core.errors import RegistryError
from upgrader.images.registry.client import RegistryClient

BODY = b'{"schemaVersion": 2}'


@pytest.fixture
async def registry():
    async with serving(ImageRegistry()) as served:
        yield served


def client(registry):
    return RegistryClient(insecure=(registry.host,))


@pytest.mark.parametrize("tags", [(), ("1",), ("1", "2", "3", "4", "5")])
async def test_all_tags_over_all_pages(registry, tags):
    for tag in tags:
        registry.manifests["app", tag] = BODY
    async with client(registry) as asking:
        assert await asking.list_tags(f"{registry.host}/app") == tags


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.Response(status=404, text="<html>"),
        lambda: web.Response(status=500),
        lambda: web.Response(status=429),
        lambda: web.Response(text="<html>a portal"),
    ],
    ids=["404 of a proxy", "500", "429", "no list"],
)
async def test_tags_that_are_not_known_are_not_none(registry, answer):
    registry.answer = lambda _request: answer()
    async with client(registry) as asking:
        with pytest.raises(RegistryError):
            await asking.list_tags(f"{registry.host}/app")


async def test_a_list_does_not_lead_to_another_host(registry):
    """Which would get our login."""
    async with serving(ImageRegistry()) as other:
        headers = {"Link": f'<http://{other.host}/v2/app/tags/list>; rel="next"'}
        registry.answer = lambda _request: web.json_response({"tags": ["1"]}, headers=headers)
        async with client(registry) as asking:
            with pytest.raises(RegistryError, match="next page is"):
                await asking.list_tags(f"{registry.host}/app")
        assert other.seen == []


async def test_a_list_without_an_end_ends(registry):
    registry.answer = lambda _request: web.json_response(
        {"tags": ["1"]}, headers={"Link": '</v2/app/tags/list>; rel="next"'}
    )
    async with client(registry) as asking:
        with pytest.raises(RegistryError, match="answered 200"):
            await asking.list_tags(f"{registry.host}/app")


async def test_a_null_for_tags_is_none(registry):
    registry.answer = lambda _request: web.json_response({"tags": None})
    async with client(registry) as asking:
        assert await asking.list_tags(f"{registry.host}/app") == ()
