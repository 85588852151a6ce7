"""Bundles of packages in a real registry, signed by the real cosign: who can only push decides nothing."""

import asyncio

import pytest

from tests.support import driver_builds as made
from tests.support.trusting import key_pair
from upgrader.core.errors import UnverifiedError
from upgrader.images.drivers.publish.bundle_registry import BundleTrust, Signer, pull_bundle, push_bundle

pytestmark = [pytest.mark.images, pytest.mark.timeout(120)]


@pytest.fixture
def push(tmp_path, registry_on_loopback):
    definition = made.definition(made.folder(tmp_path / "nvidia-open"))
    name = f"{registry_on_loopback.host}/drivers/packages:one"

    def pushed(contents, signer=None):
        layout = made.layout(tmp_path / contents.decode(), contents)
        host = [registry_on_loopback.host]
        return name, asyncio.run(push_bundle(layout, definition, name, signer=signer, insecure=host))

    return pushed


@pytest.fixture
def pull(tmp_path, registry_on_loopback):
    said = []

    def pulled(name, judge):
        host = [registry_on_loopback.host]
        pulling = pull_bundle(name, tmp_path / "pulled", judge=judge, insecure=host, progress=said.append)
        return asyncio.run(pulling).image.digest, said

    return pulled


def test_signed_packages_come_and_the_same_tag_with_others_does_not(
    push, pull, signing, verifying, cosign, cosign_program, tmp_path
):
    signer, judge = Signer(key=signing, cosign=cosign), BundleTrust(public=verifying, cosign=cosign)
    name, honest = push(b"honest", signer)
    assert pull(name, judge) == (honest.partition("@")[2], [])
    push(b"forged")
    with pytest.raises(UnverifiedError, match="it was not unpacked") as unsigned:
        pull(name, judge)
    assert unsigned.value.details.endswith(": not signed")
    stranger, _ = key_pair(tmp_path / "stranger", cosign_program)
    push(b"strange", Signer(key=stranger, cosign=cosign))
    with pytest.raises(UnverifiedError):
        pull(name, judge)


def test_without_a_key_it_is_said_that_nobody_looked(push, pull):
    name, pinned = push(b"unsigned")
    assert pull(name, None) == (
        pinned.partition("@")[2],
        [f"{name}: not verified; use --public-key to verify the packages"],
    )
