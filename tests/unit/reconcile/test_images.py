"""A driver image that people bring: from its name to a digest, whatever the registry says meanwhile."""

import pytest

from tests.support.rig import Rig
from upgrader.api.resources import DRIVER_IMAGES
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core.phases import DriverImagePhase, row
from upgrader.reconcile import images

REFERENCE = "registry/sim-driver:1"
D = DriverImagePhase


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    spec = {"vendor": "sim", "version": "1", "kernel": "6.1", "image": REFERENCE}
    made.cluster.store.put(DRIVER_IMAGES, {"metadata": {"name": "one"}, "spec": spec})
    return made


async def look(rig: Rig) -> tuple[D, str]:
    """One step; where the image is afterwards, and why."""
    (before,) = rig.all(DRIVER_IMAGES, DriverImage)
    await images.step(rig.context, "one")
    (after,) = rig.all(DRIVER_IMAGES, DriverImage)
    assert after.status.phase is before.status.phase or after.status.phase in row(before.status.phase).to
    return after.status.phase, after.status.message


async def test_it_is_pinned_once_it_is_there(rig: Rig) -> None:
    assert (await look(rig))[0] is D.RETRYING
    pinned = rig.registry.push(REFERENCE, "ab")
    assert await look(rig) == (D.READY, "pinned by its digest")
    rig.registry.push(REFERENCE, "cd")
    await look(rig)
    (image,) = rig.all(DRIVER_IMAGES, DriverImage)
    assert image.status.digest == pinned
    assert await images.step(rig.context, "one") is None


async def test_only_a_registry_that_says_no_makes_it_unusable_and_it_can_still_come(rig: Rig) -> None:
    seconds = row(D.RETRYING).seconds or 0
    rig.registry.reachable = False
    rig.cluster.clock.advance(seconds + 1)
    assert (await look(rig))[0] is D.RETRYING
    rig.registry.reachable = True
    said = f"{REFERENCE} is not in its registry; push it or correct spec.image"
    assert await look(rig) == (D.UNUSABLE, said)
    rig.registry.reachable = False
    phase, message = await look(rig)
    assert (phase, message.startswith("the registry did not answer")) == (D.UNUSABLE, True)
    rig.registry.reachable = True
    rig.registry.push(REFERENCE, "ab")
    assert (await look(rig))[0] is D.READY
