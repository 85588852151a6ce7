"""`upgrader images gc` on a real registry: what it deletes is gone there with its signatures, and nothing else is."""

import json
import uuid

import pytest

from tests.support.driver_images import whole_image
from tests.support.image_sweeps import KERNELS, OLD, RUNNING, World, identity_for
from tests.support.real_registry import real_registry
from tests.support.trusting import facts
from upgrader.core.driver_build.driver_builds import build_key
from upgrader.core.driver_image.image_names import image_name
from upgrader.core.errors import RegistryError
from upgrader.images.labels import identity_labels
from upgrader.images.registry.attachments import list_attachments
from upgrader.images.trust import BUILD_KEY, publish_signatures

pytestmark = pytest.mark.images


@pytest.fixture
async def world(registry_on_loopback, tmp_path, monkeypatch):
    """In a repository of its own of the registry of all tests, which deletes."""
    made = World(registry_on_loopback, tmp_path, monkeypatch, repository=f"t{uuid.uuid4().hex}")
    await made.fill()
    return made


async def test_what_is_swept_is_gone_and_the_rest_is_whole(world, tmp_path, signing, cosign):
    old = {world.images[OLD], world.images[f"packages {OLD}"]}
    async with world.client() as client:
        for release in KERNELS:  # signed as a builder does it
            made = facts(
                world.images[release].partition("@")[2], identity=identity_for(release, recipe="nvidia-open"), files=()
            )
            await publish_signatures(world.images[release], made, key=signing, cosign=cosign, registry=client)
        assert len(await list_attachments(client, world.images[OLD])) == 4
    assert set((await world.fates("--yes")).values()) == {"kept", "unused"}
    world.age()
    ended = await world.gc("--yes", "--output", "json")
    fates = {one["image"]: one["fate"] for one in json.loads(ended.stdout)["images"]}
    assert {image for image, fate in fates.items() if fate == "deleted"} == old
    assert await world.there() == set(world.images.values()) - old
    async with world.client() as client:
        assert await list_attachments(client, world.images[OLD]) == ()
        assert len(await list_attachments(client, world.images[RUNNING])) == 4
        assert identity_for(OLD).tag not in await client.list_tags(f"{world.repository}/nvidia-open")
        assert await client.pull(world.images[RUNNING], tmp_path / "pulled") is not None
    assert set((await world.fates("--yes")).values()) == {"kept"}


async def test_an_image_pushed_again_under_the_tag_of_a_marked_one_has_its_own_grace(world, tmp_path):
    world.age()
    made = identity_for(OLD)
    labels = {**identity_labels(made), BUILD_KEY: build_key(made, ())}
    layout = whole_image(tmp_path / "again", {"a": b"new"}, labels=labels)
    async with world.client() as client:
        again = await client.push(layout, image_name(world.repository, made))
    fates = await world.fates("--yes")
    assert fates[again] == "unused"
    assert fates[world.images[f"packages {OLD}"]] == "deleted"
    assert world.images[OLD] not in fates


async def test_a_registry_whose_deletion_is_switched_off_says_so_and_loses_nothing(tmp_path, monkeypatch):
    files = {"filesystem": {"rootdirectory": str(tmp_path / "registry/files")}, "delete": {"enabled": False}}
    with real_registry(tmp_path / "registry", settings={"storage": files}) as registry:
        world = World(registry, tmp_path, monkeypatch)
        await world.fill()
        world.age()
        ended = await world.gc("--yes")
        assert (ended.exit_code, "does not allow deletion" in ended.stderr) == (RegistryError.exit_code, True)
        assert await world.there() == set(world.images.values())
