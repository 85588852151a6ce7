"""`upgrader images gc`: what is deleted where, what is not, and that doubt does not allow deletion."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from tests.support.driver_builds import layout as plain_layout
from tests.support.driver_builds import record
from tests.support.image_registry import ImageRegistry, serving
from tests.support.image_sweeps import KERNELS, OLD, RUNNING, WANTED, World, cluster, identity_for
from upgrader.api.resources import DRIVER_IMAGES
from upgrader.core.driver_build.driver_builds import hash_facts
from upgrader.core.driver_image.image_garbage import UsageRecord
from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.drivers.gc.image_sweep import read_usage_record, write_usage_record
from upgrader.images.registry.attachments import list_attachments
from upgrader_dev.simulated.cluster.rig import Rig


@pytest.fixture(params=[True, False], ids=["registry lists", "clients list"])
async def world(request, tmp_path, monkeypatch):
    async with serving(ImageRegistry(referrers=request.param)) as registry:
        made = World(registry, tmp_path, monkeypatch)
        await made.fill()
        yield made


async def test_what_no_kernel_needs_is_marked_and_after_the_grace_period_deleted_with_all_that_hangs_on_it(world):
    old = {world.images[OLD], world.images[f"packages {OLD}"]}
    kept = {image: "kept" for image in world.images.values() if image not in old}
    assert await world.fates("--yes") == {**kept, **dict.fromkeys(old, "unused")}
    assert await world.there() == set(world.images.values())
    assert set(json.loads(world.record.read_bytes())["unused"]) == {image.rpartition("@")[2] for image in old}
    assert await world.fates("--yes") == {**kept, **dict.fromkeys(old, "unused")}
    world.age()
    assert await world.fates("--yes") == {**kept, **dict.fromkeys(old, "deleted")}
    assert await world.there() == set(kept)
    async with world.client() as client:
        assert await list_attachments(client, world.images[OLD]) == ()
        assert len(await list_attachments(client, world.images[RUNNING])) == 1
        left = [tag for tag in await client.list_tags(f"{world.repository}/nvidia-open") if tag.startswith("sha256-")]
    assert not any(world.images[OLD].rpartition(":")[2] in tag for tag in left)
    assert await world.fates("--yes") == kept
    assert json.loads(world.record.read_bytes())["unused"] == {}


async def test_a_dry_run_marks_and_deletes_nothing(world):
    await world.gc()
    assert json.loads(world.record.read_bytes())["unused"] == {}
    world.age()
    marked, there = json.loads(world.record.read_bytes())["unused"], dict(world.registry.manifests)
    ended = await world.gc()
    assert "would be deleted" in ended.stdout
    assert "No image was recorded or deleted; pass --yes to do so." in ended.stdout
    assert world.registry.manifests == there
    unused = [world.images[OLD], world.images[f"packages {OLD}"]]
    digests = {one.rpartition("@")[2] for one in unused}
    assert set(marked) > digests
    assert set(json.loads(world.record.read_bytes())["unused"]) == digests


async def test_what_a_dry_run_saw_running_is_kept_as_what_ran_before(world):
    world.age()
    world.rigs["main"] = cluster(OLD)
    await world.gc("--remember", "0")
    world.rigs["main"] = cluster(RUNNING)
    assert set((await world.fates("--yes", "--grace", "0")).values()) == {"kept"}
    assert await world.there() == set(world.images.values())


async def test_an_image_that_a_dry_run_found_needed_has_its_whole_grace_period_again(world):
    world.age()
    both = ("--context", "main", "--context", "other")
    spec = {"vendor": "nvidia", "version": "1", "kernel": OLD}
    world.rigs["other"] = cluster(RUNNING)
    world.rigs["other"].cluster.store.put(DRIVER_IMAGES, {"metadata": {"name": "a"}, "spec": spec})
    assert set((await world.fates(*both)).values()) == {"kept"}
    assert set((await world.fates("--yes")).values()) == {"kept", "unused"}
    assert await world.there() == set(world.images.values())


async def test_the_grace_period_is_what_was_said(world):
    world.age(days=15)
    assert "deleted" not in (await world.fates("--grace", "16")).values()
    assert "deleted" in (await world.fates("--grace", "15")).values()


async def test_every_cluster_that_is_named_counts(world):
    world.age()
    world.rigs["other"] = cluster(OLD)
    both = ("--context", "main", "--context", "other")
    assert set((await world.fates("--yes", *both)).values()) == {"kept"}
    assert await world.there() == set(world.images.values())


async def test_the_kernel_before_a_reboot_that_nobody_asked_for_is_remembered(world):
    """The node leaves no object that names the kernel it ran: what the sweep saw is all that tells."""
    both = {world.images[OLD], world.images[f"packages {OLD}"]}
    world.rigs["main"] = cluster(OLD)
    await world.fates("--yes")
    world.rigs["main"] = cluster(RUNNING)
    assert set((await world.fates("--yes", "--grace", "0")).values()) == {"kept"}
    seen = json.loads(world.record.read_bytes())["seen"]
    assert set(seen) == {OLD, RUNNING}
    world.record.write_bytes(json.dumps({"seen": {**seen, OLD: "2020-01-01T00:00:00Z"}}).encode())
    fates = await world.fates("--yes")
    assert {image for image, fate in fates.items() if fate == "unused"} == both
    assert set(json.loads(world.record.read_bytes())["seen"]) == {RUNNING}


async def test_how_long_a_kernel_is_remembered_is_what_was_said(world):
    world.age()
    record = json.loads(world.record.read_bytes())
    week_ago = world.rigs["main"].context.clock.now() - timedelta(days=7)
    world.record.write_bytes(json.dumps({**record, "seen": {OLD: week_ago.isoformat()}}).encode())
    assert "deleted" in (await world.fates("--remember", "7")).values()
    assert set((await world.fates("--remember", "8")).values()) == {"kept"}


async def test_what_an_object_names_stays(world):
    world.age()
    spec = {"vendor": "nvidia", "version": "1", "kernel": RUNNING, "image": world.images[OLD]}
    world.rigs["main"].cluster.store.put(DRIVER_IMAGES, {"metadata": {"name": "a"}, "spec": spec})
    assert (await world.fates("--yes"))[world.images[OLD]] == "kept"


# Doubt does not allow deletion


@pytest.mark.parametrize("rig", [None, Rig()], ids=["silent", "without nodes"])
async def test_a_cluster_that_cannot_be_read_or_shows_no_node(world, rig):
    world.age()
    world.rigs["other"] = rig
    ended = await world.gc("--yes", "--context", "main", "--context", "other")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert await world.there() == set(world.images.values())


async def test_a_registry_that_fails_at_any_answer(world):
    world.age()
    world.registry.seen.clear()
    await world.gc()
    asked = {one.partition(" ")[2] for one in world.registry.seen}
    assert len(asked) > 12
    for path in sorted(asked):
        world.registry.answer = lambda request, path=path: web.Response(status=500) if request.path == path else None
        ended = await world.gc("--yes")
        assert (ended.exit_code, ended.stdout) == (RegistryError.exit_code, ""), path
        world.registry.answer = lambda _: None
        assert await world.there() == set(world.images.values())


async def test_a_registry_where_deletion_is_switched_off_says_so(world):
    world.age()
    world.registry.answer = lambda request: web.Response(status=405) if request.method == "DELETE" else None
    ended = await world.gc("--yes")
    assert ended.exit_code == RegistryError.exit_code
    assert "does not allow deletion" in ended.stderr
    assert "Enable deletion" in ended.stderr
    assert await world.there() == set(world.images.values())


async def test_a_tag_that_moves_in_the_meantime_saves_its_image(world):
    world.age()
    old, asked = world.images[OLD], []

    def move(request):
        """Between the listing and the deletion somebody pushes to the same tag."""
        at = ("drivers/nvidia-open", identity_for(OLD).tag)
        asked.append(request.path)
        if request.method == "HEAD" and request.path.endswith(at[1]) and asked.count(request.path) > 1:
            world.registry.manifests[at] = world.registry.manifests[at[0], world.images[RUNNING].rpartition("@")[2]]

    world.registry.answer = move
    fates = await world.fates("--yes")
    world.registry.answer = lambda _: None
    assert fates[old] == "left"
    assert old in await world.there()


async def test_a_foreign_image_is_kept_and_named(world):
    world.age()
    async with world.client() as client:
        stray = plain_layout(world.tmp_path / "stray")
        await client.push(stray, f"{world.repository}/nvidia-open:somebody")
        await client.push(stray, f"{world.repository}/packages:somebody")
    ended = await world.gc("--yes", "--output", "json")
    foreign = json.loads(ended.stdout)["foreign"]
    assert foreign == [
        f"{world.repository}/{name}:somebody: no label contains its kernel" for name in ("nvidia-open", "packages")
    ]


async def test_marks_that_cannot_be_read(world):
    world.record.write_text("[]")
    ended = await world.gc("--yes")
    assert (ended.exit_code, "cannot be read as a record" in ended.stderr) == (1, True)


# A store


async def test_images_of_a_store(world, tmp_path):
    shelf = Shelf(tmp_path / "store")
    for release in KERNELS:
        image = plain_layout(tmp_path / f"kept-{release}", release.encode())
        shelf.add_image(image, record(image, hash_facts(release, 64), identity=identity_for(release)))
    world.images = {one.identity.kernel: f"oci:{shelf.folder}@{one.digest}" for one in shelf.list_records()}
    source = ("--store", f"oci:{shelf.folder}")
    assert set((await world.fates("--yes", source=source)).values()) == {"kept", "unused"}
    world.age()
    fates = await world.fates("--yes", source=source)
    assert fates == {image: "deleted" if release == OLD else "kept" for release, image in world.images.items()}
    assert {one.identity.kernel for one in shelf.list_records()} == {RUNNING, WANTED}


async def test_a_store_or_a_registry_and_not_both(world, tmp_path):
    ended = await world.gc("--store", f"oci:{tmp_path}")
    assert ended.exit_code == 64


def test_marks_are_moments_in_utc(tmp_path):
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    record = UsageRecord(unused={"sha256:" + "a" * 64: moment}, seen={RUNNING: moment})
    write_usage_record(tmp_path / "a/record", record)
    assert read_usage_record(tmp_path / "a/record") == record
    assert read_usage_record(tmp_path / "none") == UsageRecord()
    with pytest.raises(ConfigurationError, match="cannot be read as a record"):
        read_usage_record(tmp_path)
