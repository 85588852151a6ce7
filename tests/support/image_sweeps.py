"""`upgrader images gc` in a world of its own: a registry with images, clusters that need some of them, a record."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
from click.testing import CliRunner

from tests.support.driver_builds import definition, folder, identity, kernel, toolchain
from tests.support.driver_images import asked, whole_image
from tests.support.terminal import RigSession
from upgrader.cli.main import program
from upgrader.core.driver_build.driver_builds import hash_facts
from upgrader.core.driver_image.image_names import image_name, packages_name
from upgrader.core.errors import UnreachableError
from upgrader.images.debian.values import ArchiveDiscovery
from upgrader.images.drivers.builder.catalog import Catalog
from upgrader.images.drivers.publish.bundles import DEFINITION
from upgrader.images.drivers.recipe.definition import encode_definition
from upgrader.images.labels import identity_labels
from upgrader.images.layout import MANIFEST, LayoutWriter
from upgrader.images.registry.attachments import attach_blob
from upgrader.images.registry.client import RegistryClient
from upgrader_dev.simulated.cluster.rig import Rig

RUNNING, WANTED, OLD = "6.1.0-47-amd64", "6.1.0-50-amd64", "6.1.0-40-amd64"
KERNELS = (RUNNING, WANTED, OLD)


class Clusters(RigSession):
    """Several clusters by the names of contexts; one without a rig does not answer."""

    def __init__(self, rigs, name="main"):
        super().__init__(rigs[name] or Rig())
        self.rigs, self.name = rigs, name

    def for_context(self, name):
        return Clusters(self.rigs, name)

    @asynccontextmanager
    async def open(self):
        if self.rigs[self.name] is None:
            raise UnreachableError("the API server does not answer")
        async with super().open() as context:
            yield context


def cluster(*kernels):
    rig = Rig()
    for number, one in enumerate(kernels):
        rig.fleet.add_node(f"gpu-{number}", kernel=one)
    return rig


def identity_for(release, recipe="nvidia-open"):
    return msgspec.structs.replace(identity(release, recipe=recipe), os="bookworm")


class World:
    """A registry (anything with a `host`) with an image, its signature and its packages per kernel; clusters."""

    def __init__(self, registry, tmp_path, patch, repository="drivers"):
        self.registry, self.tmp_path = registry, tmp_path
        self.repository = f"{registry.host}/{repository}"
        self.rigs = {"main": cluster(RUNNING)}
        self.record = tmp_path / "record.json"
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        there = ArchiveDiscovery(kernels=(kernel(WANTED, "bookworm"),))
        known = Catalog(discovery=there, toolchains=(toolchain("bookworm"),), names=asked(Path("driver-images")))
        known.save(tmp_path / "cache/upgrader/driver-builds")
        self.images = {}

    @asynccontextmanager
    async def client(self):
        async with RegistryClient(insecure=(self.registry.host,)) as client:
            yield client

    async def fill(self):
        async with self.client() as client:
            for release in KERNELS:
                self.images[release] = await self.push(client, release)
                name = packages_name(self.repository, identity_for(release))
                self.images[f"packages {release}"] = await client.push(self.bundle(release), name)

    async def push(self, client, release, content=b""):
        made = identity_for(release)
        labels = {**identity_labels(made), "gpu-upgrader.io/build-key": "a" * 64}
        place = self.tmp_path / hash_facts([release, content.hex()], 16)
        layout = whole_image(place, {"release": release.encode() + content}, labels=labels)
        image = await client.push(layout, image_name(self.repository, made))
        await attach_blob(client, image, b"signed", "application/x-signature", {"of": image})
        return image

    def bundle(self, release):
        recipe = folder(self.tmp_path / "nvidia-open")
        own = {"kernel": kernel(release, "bookworm"), "toolchain": toolchain("bookworm")}
        made = msgspec.structs.replace(definition(recipe), identity=identity_for(release), **own)
        layout = LayoutWriter(self.tmp_path / f"bundle-{release}")
        layers = [layout.put_blob(DEFINITION, encode_definition(made))]
        config = layout.put_blob("application/x-config", b"[]")
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
        return layout.write_index(layout.put_blob(MANIFEST, msgspec.json.encode(manifest)))

    async def gc(self, *words, source=None):
        where = source or ("--from", self.repository, "--insecure-registry", self.registry.host)
        given = ["images", "gc", *where, "--record", str(self.record), *words]
        return await asyncio.to_thread(CliRunner().invoke, program, given, obj=Clusters(self.rigs))

    async def fates(self, *words, **how):
        ended = await self.gc("--output", "json", *words, **how)
        assert ended.exit_code == 0, ended.output
        return {one["image"]: one["fate"] for one in json.loads(ended.stdout)["images"]}

    def age(self, days=15):
        """A record in which everything has been unused for so long."""
        now = self.rigs["main"].context.clock.now()
        old = {image.rpartition("@")[2]: now - timedelta(days=days) for image in self.images.values()}
        self.record.write_bytes(msgspec.json.encode({"unused": old}))

    async def there(self):
        """The images that are still in the registry."""
        async with self.client() as client:
            return {image for image in self.images.values() if await client.get_manifest(image) is not None}
