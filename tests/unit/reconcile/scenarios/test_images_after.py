"""A driver image that failed, and one in service: how often it is asked for, and what machines read of it."""

import msgspec
import pytest

from tests.support import image_rig
from tests.support.image_rig import BUILDS, IDENTITY, NAMED, REFERENCE, REPOSITORY, D, built, image, look, wanted
from upgrader.api.resources import DRIVER_IMAGES
from upgrader.core import timing
from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, CheckName, FailureClass, Verdict
from upgrader.core.driver_image.image_machine import LOOK_SECONDS
from upgrader.core.driver_image.image_names import packages_name
from upgrader.reconcile.driver_image import image_reconciler
from upgrader_dev.simulated.cluster.ports import FakeTrust
from upgrader_dev.simulated.cluster.rig import Rig


@pytest.fixture
def rig() -> Rig:
    return image_rig.make()


async def fail(rig: Rig) -> None:
    """A build that fails for good."""
    failure = BuildFailure(kind=FailureClass.COMPILE, first_error="too few arguments")
    ended = await built(rig, BuildResult(identity=IDENTITY, state=CellState.RED, failure=failure), code=1)
    assert ended[0] is D.UNBUILDABLE


async def test_what_cannot_be_built_is_asked_for_ever_less_often_and_nothing_is_written_between(rig: Rig) -> None:
    await fail(rig)
    rig.registry.requests.clear()
    pauses = []
    for _ in range(8):
        pause = await image_reconciler.reconcile_image(rig.context, "one")
        assert pause is not None
        pauses.append(pause)
        asked, before = len(rig.registry.requests), image(rig).metadata.resource_version
        rig.cluster.clock.advance(pause - 1)
        assert await image_reconciler.reconcile_image(rig.context, "one") == 1
        assert (len(rig.registry.requests), image(rig).metadata.resource_version) == (asked, before)
        rig.cluster.clock.advance(1)
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]
    assert len(rig.registry.requests) == 14  # of image and packages, at each look but the first


async def test_a_silent_registry_leaves_a_failed_build_as_it_is(rig: Rig) -> None:
    await fail(rig)
    rig.registry.push(packages_name(REPOSITORY, IDENTITY), "ff")
    rig.registry.reachable = False
    for _ in range(10):
        rig.cluster.clock.advance(LOOK_SECONDS)
        assert await look(rig) == (D.UNBUILDABLE, "compile: too few arguments")


async def test_another_builder_is_tried_at_once(rig: Rig) -> None:
    await fail(rig)
    rig.builds = msgspec.structs.replace(BUILDS, builder_image="registry/builder@sha256:" + "e" * 64)
    rig.restart()
    assert await look(rig) == (D.BUILDING, "build 2 begins")


async def test_an_image_that_a_person_brings_instead_is_taken_at_once(rig: Rig) -> None:
    await fail(rig)
    pinned = rig.registry.push(REFERENCE, "ab")
    found = image(rig)
    await rig.cluster.merge(DRIVER_IMAGES, found.metadata, {"spec": {"image": REFERENCE}})
    assert [(await look(rig))[0] for _ in range(2)] == [D.VERIFYING, D.READY]
    assert image(rig).status.digest == pinned


def verified(rig: Rig) -> tuple[str, str, str | None]:
    """The condition Verified, which machines read: status, reason, when it became so."""
    (found,) = image(rig).status.conditions
    assert found.type == "Verified"
    return found.status, found.reason, found.last_transition_time


async def test_a_machine_can_see_that_nobody_vouches_for_an_image_in_service(rig: Rig) -> None:
    wanted(rig)
    rig.registry.push(NAMED, "ab")
    await look(rig)
    assert verified(rig)[:2] == ("Unknown", "ImageVerifying")
    rig.cluster.clock.advance(5)
    await look(rig)
    ready = verified(rig)
    assert ready == ("False", "NoKey", timing.format_time(rig.cluster.clock.now()))
    rig.cluster.clock.advance(5)
    before = image(rig).metadata.resource_version
    await look(rig)
    assert (verified(rig), image(rig).metadata.resource_version) == (ready, before)
    rig.trust = FakeTrust()
    assert [(await look(rig))[0] for _ in range(2)] == [D.VERIFYING, D.READY]
    assert verified(rig) == ("True", "Signed", timing.format_time(rig.cluster.clock.now()))
    rig.trust = None  # the key is taken away: the image is the one that was verified
    await look(rig)
    assert verified(rig)[:2] == ("True", "Signed")


async def test_a_refused_image_says_so_to_a_machine_for_as_long_as_it_is_refused(rig: Rig) -> None:
    wanted(rig)
    rig.trust = FakeTrust()
    pinned = rig.registry.push(NAMED, "ab")
    rig.trust.verdicts[pinned] = (Verdict(check=CheckName.IMAGE_SIGNATURE, passed=False, reason="not signed"),)
    for _ in range(4):
        await look(rig)
    assert verified(rig)[:2] == ("False", "Refused")


async def test_an_image_of_before_gets_the_condition_once(rig: Rig) -> None:
    wanted(rig)
    rig.registry.push(NAMED, "ab")
    await look(rig)
    await look(rig)
    found = image(rig)
    await rig.cluster.merge(DRIVER_IMAGES, found.metadata, {"status": {"conditions": []}}, "status")
    await look(rig)
    assert verified(rig)[:2] == ("False", "NoKey")
