"""What a builder finds in a real registry before it builds: its very image, verified, or nothing that it trusts."""

import asyncio
import uuid

import msgspec
import pytest

from tests.support.driver_builds import definition, folder
from tests.support.driver_images import driver_files, whole_image
from tests.support.trusting import facts
from upgrader.core.driver_build.build_results import CellState
from upgrader.core.driver_image.image_names import image_name
from upgrader.core.errors import RegistryError
from upgrader.images import trust
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.drivers.publish.publication import PublicationKeys, Publisher
from upgrader.images.labels import identity_labels
from upgrader.images.registry.client import RegistryClient
from upgrader.images.trust import BUILD_KEY, CHECKS

pytestmark = [pytest.mark.images, pytest.mark.timeout(120)]


class Lab:
    """A registry with or without the image of a definition."""

    def __init__(self, place, host, keys):
        self.wanted = definition(folder(place / "nvidia-open"))
        self.repository = f"{host}/drivers/t{uuid.uuid4().hex}"
        self.said = []
        self._place, self._host, self._keys = place, host, keys

    def publisher(self, *, keys=True, repository=""):
        shelf, given = Shelf(self._place / "shelf"), self._keys if keys else None
        where = repository or self.repository
        return Publisher(where, shelf, insecure=[self._host], keys=given, progress=self.said.append)

    def push(self, *, signed, key=""):
        return asyncio.run(self._push(signed, key or self.wanted.key))

    async def _push(self, signed, key):
        identity, inputs = self.wanted.identity, self.wanted.inputs
        labels = {**identity_labels(identity), BUILD_KEY: key}
        image = whole_image(self._place / uuid.uuid4().hex, driver_files(self._place / "modules"), labels=labels)
        async with RegistryClient(insecure=[self._host]) as registry:
            pinned = await registry.push(image, image_name(self.repository, identity))
            if signed:
                said = facts(image.image.digest, identity=identity, inputs=inputs)
                keys = self._keys
                await trust.publish_signatures(pinned, said, key=keys.key, cosign=keys.cosign, registry=registry)
        return pinned.partition("@")[2]


@pytest.fixture
def lab(tmp_path, registry_on_loopback, signing, verifying, cosign):
    return Lab(tmp_path, registry_on_loopback.host, PublicationKeys(key=signing, public=verifying, cosign=cosign))


def test_an_image_of_this_key_that_verifies_is_there(lab):
    assert lab.publisher().find_published(lab.wanted) is None
    digest = lab.push(signed=True)
    found = lab.publisher().find_published(lab.wanted)
    wanted = (CellState.UNCHANGED, lab.wanted.key, lab.wanted.identity, digest)
    assert (found.state, found.build_key, found.identity, found.digest.partition("@")[2]) == wanted
    assert {one.check: one.passed for one in found.checks} == dict.fromkeys(CHECKS, True)


def test_one_that_nobody_has_signed_is_built_again_where_somebody_verifies(lab):
    lab.push(signed=False)
    assert lab.publisher().find_published(lab.wanted) is None
    assert "image-signature: not signed" in lab.said[0]
    assert lab.publisher(keys=False).find_published(lab.wanted).state is CellState.UNCHANGED


def test_one_of_another_key_is_another_image(lab):
    lab.push(signed=True, key="f" * 64)
    assert lab.publisher().find_published(lab.wanted) is None
    changed = msgspec.structs.replace(lab.wanted, inputs=())
    assert lab.publisher(keys=False).find_published(changed) is None


def test_a_registry_that_does_not_answer_says_nothing(lab):
    with pytest.raises(RegistryError):
        lab.publisher(repository="127.0.0.1:1/drivers").find_published(lab.wanted)
