"""`upgrader images gc --packages`: what leaves the package store, what stays, and that nobody builds meanwhile."""

import asyncio
import json
from datetime import timedelta

import msgspec
import pytest
from click.testing import CliRunner

from tests.support.driver_builds import kernel, package, record, toolchain
from tests.support.driver_images import asked, driver_files, whole_image
from tests.support.image_sweeps import OLD, RUNNING, WANTED, Clusters, cluster
from tests.support.trusting import IDENTITY, INPUTS
from upgrader.cli.main import program
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.errors import ArchiveError, PackagesInUseError
from upgrader.images.debian.values import ArchiveDiscovery
from upgrader.images.drivers.builder.catalog import Catalog
from upgrader.images.drivers.workspace import Site, WorkspaceSettings
from upgrader.process import run
from upgrader_dev.simulated.cluster.rig import Rig

SHELVED = "6.1.0-30-amd64"
KBUILD = package("linux-kbuild-6.1")
DRIVER = package("nvidia-open-kernel-dkms", "535.261.03-1", "bookworm")
HALF = "7" * 64
SHIPPED = [one for one in INPUTS if one.kind == "package"]

MATRIX = f"""
components = ["main"]
[[distributions]]
os = "bookworm"
suites = ["bookworm"]
[[cells]]
recipe = "small"
os = "bookworm"
drivers = ["newest"]
kernels = ["{WANTED}"]
"""
RECIPE = 'vendor = "sim"\nversion = "1.0"\nmake = ["modules"]\n[[modules]]\nname = "small"\n'


def of_kernel(release, *, in_archive=False):
    headers = (package(f"linux-headers-{release}"), KBUILD)
    return kernel(release, "bookworm", headers=headers, in_archive=in_archive)


class World:
    """A cache with packages of four kernels, a toolchain, a driver, an image; a cluster whose node runs one kernel."""

    def __init__(self, folder, patch):
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        self.folder, self.record = folder, folder / "record.json"
        recipes = folder / "driver-images"
        (recipes / "small").mkdir(parents=True)
        (recipes / "matrix.toml").write_text(MATRIX)
        (recipes / "small/recipe.toml").write_text(RECIPE)
        self.site = Site(WorkspaceSettings(recipes=recipes), print)
        self.store = self.site.packages
        self.rigs = {"main": cluster(RUNNING), "other": cluster(RUNNING)}
        self.kernels = {one: of_kernel(one, in_archive=one == WANTED) for one in (OLD, RUNNING, SHELVED, WANTED)}
        self.toolchain = toolchain("bookworm")
        self.catalog = Catalog(
            discovery=ArchiveDiscovery(kernels=tuple(self.kernels.values()), packages=(DRIVER,)),
            toolchains=(self.toolchain,),
            names=asked(recipes),
        )
        self.catalog.save(folder / "cache/upgrader/driver-builds")
        for one in [
            DRIVER,
            *self.toolchain.packages,
            *(each for own in self.kernels.values() for each in own.packages),
        ]:
            self.put(one.sha256)
        for one in SHIPPED:
            self.put(one.sha256)
        self.put(HALF, "partial")
        identity = msgspec.structs.replace(IDENTITY, kernel=SHELVED)
        image = whole_image(folder / "image", driver_files(folder / "modules", identity), identity=identity)
        self.site.shelf.add_image(image, record(image, identity=identity))
        self.old = {one.sha256 for one in self.kernels[OLD].packages if one != KBUILD}

    def put(self, sha256, kind="sha256", data=b"0123456789"):
        place = self.store.digest_path(sha256) if kind == "sha256" else self.store.folder / kind / sha256
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    def run(self, *words):
        given = ["images", "gc", "--packages", "--recipes", str(self.site.root), "--record", str(self.record), *words]
        return CliRunner().invoke(program, given, obj=Clusters(self.rigs))

    async def gc(self, *words):
        return await asyncio.to_thread(self.run, *words)

    async def fates(self, *words):
        ended = await self.gc("--output", "json", *words)
        assert ended.exit_code == 0, ended.output
        return {one["sha256"]: one["fate"] for one in json.loads(ended.stdout)["packages"]}

    def age(self, days=15):
        """A record in which everything has been unused for so long."""
        old = self.rigs["main"].context.clock.now() - timedelta(days=days)
        self.record.write_bytes(msgspec.json.encode({"unused": dict.fromkeys(self.store.stored_sizes(), old)}))


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


async def test_what_nothing_wanted_is_built_of_is_marked_and_after_the_grace_period_deleted(world):
    there, gone = set(world.store.stored_sizes()), {*world.old, HALF}
    wanted = {one: "unused" if one in gone else "kept" for one in there}
    assert await world.fates("--yes") == wanted
    assert set(json.loads(world.record.read_bytes())["unused"]) == gone
    assert await world.fates("--yes") == wanted
    world.age()
    assert await world.fates("--yes") == {one: "deleted" if one in gone else "kept" for one in there}
    assert set(world.store.stored_sizes()) == there - gone
    assert await world.fates("--yes") == dict.fromkeys(there - gone, "kept")


async def test_each_is_kept_for_its_own_reason(world):
    world.age()
    said = json.loads((await world.gc("--output", "json")).stdout)
    reasons = {one["sha256"]: one["reason"] for one in said["packages"] if one["fate"] == "kept"}
    first = {name: world.kernels[name].image[0].sha256 for name in (RUNNING, SHELVED, WANTED)}
    assert {name: reasons[sha256] for name, sha256 in first.items()} == {
        RUNNING: f"nodes run {RUNNING}",
        SHELVED: f"the store has an image for {SHELVED}",
        WANTED: f"the matrix has {WANTED}",
    }
    assert reasons[DRIVER.sha256] == "the catalog has it for a driver"
    assert {reasons[one.sha256] for one in world.toolchain.packages} == {"a toolchain has it"}
    assert {reasons[one.sha256] for one in SHIPPED} == {"an image of the store was built from it"}
    assert said["bytes"] == {"kept": 10 * len(reasons), "unused": 0, "deleted": 10 * (len(world.old) + 1)}


async def test_a_dry_run_deletes_nothing_and_says_how_much_room_there_would_be(world, tmp_path):
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    control = (
        "Package: left-over\nVersion: 2.0-1\nArchitecture: all\nMaintainer: us <us@example.org>\nDescription: a test\n"
    )
    (tree / "DEBIAN/control").write_text(control)
    run(["dpkg-deb", "--build", "--root-owner-group", tree, tmp_path / "left-over.deb"], timeout=60)
    world.put("8" * 64, data=(tmp_path / "left-over.deb").read_bytes())
    world.age()
    there = world.store.stored_sizes()
    shown = await world.gc()
    assert shown.exit_code == 0, shown.output
    assert world.store.stored_sizes() == there
    gone = [one for name, one in there.items() if name in {*world.old, HALF, "8" * 64}]
    assert f"{len(gone)} would be deleted ({sum(gone) / 1e6:.1f} MB)" in shown.stdout
    assert "No package was recorded or deleted; pass --yes to do so." in shown.stdout
    assert "left-over 2.0-1" in shown.stdout
    assert f"linux-headers-{OLD}" in shown.stdout
    assert f"linux-headers-{WANTED}" not in shown.stdout


async def test_a_dry_run_begins_no_grace_period_and_remembers_what_nodes_run(world):
    await world.gc()
    record = json.loads(world.record.read_bytes())
    assert (record["unused"], list(record["seen"])) == ({}, [RUNNING])
    world.rigs["main"] = cluster(WANTED)
    world.age()
    world.record.write_bytes(msgspec.json.encode({**json.loads(world.record.read_bytes()), "seen": record["seen"]}))
    kept = {one.sha256 for one in world.kernels[RUNNING].packages}
    fates = await world.fates("--yes")
    assert {fates[one] for one in kept} == {"kept"}


async def test_a_kernel_of_any_cluster_that_is_named_stays_buildable(world):
    world.age()
    world.rigs["other"] = cluster(OLD)
    both = ("--context", "main", "--context", "other")
    assert {one for one, fate in (await world.fates("--yes", *both)).items() if fate != "kept"} == {HALF}
    assert world.old <= set(world.store.stored_sizes())


# Doubt does not allow deletion


async def test_nothing_is_deleted_while_somebody_builds(world):
    world.age()
    there = world.store.stored_sizes()
    site = Site(WorkspaceSettings(recipes=world.site.root, cores=1, memory_mib=1), print)
    with site.open_round(site.matrix_cells(world.catalog)):
        ended = await world.gc("--yes")
        assert (ended.exit_code, ended.stdout) == (PackagesInUseError.exit_code, "")
        assert "a build uses the packages in" in ended.stderr
        assert (await world.gc()).exit_code == 0
    assert world.store.stored_sizes() == there
    assert (await world.gc("--yes")).exit_code == 0
    assert world.store.stored_sizes() != there


async def test_nothing_is_deleted_while_the_archives_are_asked(world, monkeypatch, tmp_path):
    """What a look finds lost stays known because its packages are there."""
    world.age()
    there, ended = world.store.stored_sizes(), []
    monkeypatch.setenv("UPGRADER_DEBIAN_MIRROR", str(tmp_path / "mirror"))
    (tmp_path / "mirror").mkdir()
    site = Site(WorkspaceSettings(recipes=world.site.root), lambda _line: ended.append(world.run("--yes")))
    with pytest.raises((ArchiveError, ConfigurationError)):
        await asyncio.to_thread(site.update_catalog)
    assert [one.exit_code for one in ended] == [PackagesInUseError.exit_code]
    assert world.store.stored_sizes() == there


@pytest.mark.parametrize("rig", [None, Rig()], ids=["silent", "without nodes"])
async def test_a_cluster_that_cannot_be_read_or_shows_no_node(world, rig):
    world.age()
    there = world.store.stored_sizes()
    world.rigs["other"] = rig
    ended = await world.gc("--yes", "--context", "main", "--context", "other")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert world.store.stored_sizes() == there


async def test_an_image_of_the_store_that_does_not_say_what_it_was_made_of(world, tmp_path):
    world.age()
    there = world.store.stored_sizes()
    odd = whole_image(tmp_path / "odd", {"manifest.json": b"{}"})
    world.site.shelf.add_image(odd, record(odd, "b" * 64))
    ended = await world.gc("--yes")
    assert (ended.exit_code, "this is not an image of a driver with modules" in ended.stderr) == (1, True)
    assert world.store.stored_sizes() == there


async def test_a_catalog_without_kernels_says_nothing(world, tmp_path):
    world.age()
    nothing = Catalog(discovery=ArchiveDiscovery(), toolchains=(), names=asked(world.site.root))
    nothing.save(tmp_path / "cache/upgrader/driver-builds")
    assert set((await world.fates("--yes")).values()) == {"kept"}


async def test_packages_of_a_registry_go_with_its_images(world):
    ended = await world.gc("--from", "registry.example/drivers")
    assert (ended.exit_code, "--packages cleans up the cache of this machine" in ended.stderr) == (64, True)
