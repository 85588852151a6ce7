"""A driver image from its name to a digest: brought by people or built by a Job, whatever registries say meanwhile."""

import msgspec
import pytest

from tests.support import image_rig
from tests.support.building import build_ends, build_jobs
from tests.support.image_rig import IDENTITY, NAMED, REFERENCE, REPOSITORY, D, brought, built, image, look, wanted
from upgrader.core.driver_build.build_results import BuildRefusal, BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, CheckName, FailureClass, Verdict
from upgrader.core.driver_image.image_machine import ABSENT_SECONDS, FIRST_RETRY_SECONDS, LOOK_SECONDS, REFUSED_SECONDS
from upgrader.core.driver_image.image_names import packages_name
from upgrader.core.errors import ClusterError, ConfigurationError
from upgrader.core.model.phases import transition_of
from upgrader.core.node_protocol.driver_services import SERVICES_LABEL, DriverService
from upgrader.reconcile.driver_image import image_reconciler
from upgrader.reconcile.observe.cluster_snapshot import image_facts
from upgrader_dev.simulated.cluster.ports import FakeCrashPoints, FakeTrust, ProcessKilled
from upgrader_dev.simulated.cluster.rig import Rig


@pytest.fixture
def rig() -> Rig:
    return image_rig.make()


async def test_a_brought_image_is_pinned_once_it_is_there(rig: Rig) -> None:
    brought(rig)
    assert (await look(rig))[0] is D.RETRYING
    pinned = rig.registry.push(REFERENCE, "ab")
    assert (await look(rig))[0] is D.RETRYING
    rig.cluster.clock.advance(LOOK_SECONDS)
    assert (await look(rig))[0] is D.VERIFYING
    said = "pinned by its digest; not verified, as no key is set (UPGRADER_IMAGE_KEY)"
    assert await look(rig) == (D.READY, said)
    rig.registry.push(REFERENCE, "cd")
    await look(rig)
    assert image(rig).status.digest == pinned
    assert await image_reconciler.reconcile_image(rig.context, "one") is None


async def test_the_services_of_an_image_are_those_of_its_label(rig: Rig) -> None:
    brought(rig)
    pinned = rig.registry.push(REFERENCE, "ab")
    rig.registry.labels_of[pinned] = {SERVICES_LABEL: "fabricmanager,persistenced"}
    assert [(await look(rig))[0] for _ in range(2)] == [D.VERIFYING, D.READY]
    assert image(rig).status.services == [DriverService.FABRIC_MANAGER, DriverService.PERSISTENCED]
    facts = image_facts(image(rig))
    assert facts is not None
    assert facts.services == (DriverService.FABRIC_MANAGER, DriverService.PERSISTENCED)


async def test_an_index_of_several_images_has_no_services(rig: Rig) -> None:
    brought(rig)
    rig.registry.labels_of[rig.registry.push(REFERENCE, "ab")] = None
    assert [(await look(rig))[0] for _ in range(2)] == [D.VERIFYING, D.READY]
    assert image(rig).status.services == []


async def test_an_image_with_an_unknown_service_is_not_used(rig: Rig) -> None:
    brought(rig)
    rig.registry.labels_of[rig.registry.push(REFERENCE, "ab")] = {SERVICES_LABEL: "dcgm"}
    await look(rig)
    phase, message = await look(rig)
    assert phase is D.VERIFYING
    assert "names an unknown service" in message
    rig.cluster.clock.advance((transition_of(D.VERIFYING).seconds or 0) + 1)
    assert (await look(rig))[0] is D.RETRYING


async def test_services_are_unknown_while_the_registry_does_not_answer(rig: Rig) -> None:
    brought(rig)
    rig.registry.push(REFERENCE, "ab")
    await look(rig)
    rig.registry.reachable = False
    assert (await look(rig))[0] is D.VERIFYING
    rig.registry.reachable = True
    assert (await look(rig))[0] is D.READY


async def test_only_a_registry_that_says_no_makes_it_unusable_and_it_can_still_come(rig: Rig) -> None:
    brought(rig)
    rig.registry.reachable = False
    rig.cluster.clock.advance(ABSENT_SECONDS + 1)
    assert (await look(rig))[0] is D.RETRYING
    rig.registry.reachable = True
    rig.cluster.clock.advance(LOOK_SECONDS)
    said = f"{REFERENCE} is not in its registry; push it or correct spec.image"
    assert await look(rig) == (D.UNUSABLE, said)
    rig.registry.reachable = False
    assert await look(rig) == (D.UNUSABLE, said)
    rig.registry.reachable = True
    rig.registry.push(REFERENCE, "ab")
    assert (await look(rig))[0] is D.VERIFYING


async def test_an_image_that_nobody_has_is_built_by_one_job_and_verified(rig: Rig) -> None:
    wanted(rig)
    rig.trust = FakeTrust()
    assert await look(rig) == (D.BUILDING, "build 1 begins")
    assert build_jobs(rig) == []  # intent first
    for _ in range(3):
        await look(rig)
    assert len(build_jobs(rig)) == 1
    pinned = rig.registry.push(NAMED, "ab")
    result = BuildResult(identity=IDENTITY, state=CellState.GREEN, build_key="c" * 64, digest=pinned)
    build_ends(rig, result)
    assert await look(rig) == (D.VERIFYING, "built and pushed, to be verified")
    assert await look(rig) == (D.READY, "verified and pinned by its digest")
    status = image(rig).status
    assert (status.digest, status.build_key, len(status.key or "")) == (pinned, "c" * 64, 16)
    assert [(one.check, one.passed) for one in status.checks] == [(CheckName.IMAGE_SIGNATURE, True)]
    assert rig.trust.requests == [(pinned, IDENTITY)]


async def test_an_image_that_is_there_already_is_not_built(rig: Rig) -> None:
    wanted(rig)
    rig.registry.push(NAMED, "ab")
    assert [(await look(rig))[0] for _ in range(2)] == [D.VERIFYING, D.READY]
    assert build_jobs(rig) == []


async def test_a_silent_registry_builds_nothing(rig: Rig) -> None:
    wanted(rig)
    rig.registry.reachable = False
    assert await look(rig) == (D.RETRYING, f"the registry did not respond: no response about {NAMED}")
    assert build_jobs(rig) == []


async def test_a_silent_registry_is_not_asked_again_before_its_pause_is_over(rig: Rig) -> None:
    wanted(rig)
    rig.registry.reachable = False
    await look(rig)
    asked = len(rig.registry.requests)
    rig.cluster.clock.advance(LOOK_SECONDS - 1)
    assert (await look(rig))[0] is D.RETRYING
    assert len(rig.registry.requests) == asked
    rig.cluster.clock.advance(1)
    await look(rig)
    assert len(rig.registry.requests) > asked


async def test_builds_wait_for_one_another(rig: Rig) -> None:
    wanted(rig)
    other = msgspec.structs.replace(IDENTITY, kernel="6.1.0-47-amd64")
    wanted(rig, "two", other.kernel)
    rig.registry.push(packages_name(REPOSITORY, other), "ef")
    assert (await look(rig))[0] is D.BUILDING
    assert await look(rig, "two") == (D.PENDING, "waits until another build has ended")


async def test_what_does_not_compile_stays_so_until_its_packages_change(rig: Rig) -> None:
    failure = BuildFailure(kind=FailureClass.COMPILE, first_error="too few arguments", symbol="pci_resize_resource")
    ended = await built(rig, BuildResult(identity=IDENTITY, state=CellState.RED, failure=failure), code=1)
    assert ended == (D.UNBUILDABLE, "compile: too few arguments")
    found = image(rig).status.failure
    assert found is not None
    assert (found.sort, found.first_error, found.symbol) == (
        FailureClass.COMPILE,
        "too few arguments",
        "pci_resize_resource",
    )
    rig.cluster.clock.advance(86400)
    assert (await look(rig))[0] is D.UNBUILDABLE
    rig.registry.push(packages_name(REPOSITORY, IDENTITY), "ff")
    rig.cluster.clock.advance(2 * LOOK_SECONDS)
    assert await look(rig) == (D.BUILDING, "build 2 begins")


async def test_a_bundle_that_is_refused_for_good_is_told_and_waits_for_another(rig: Rig) -> None:
    failure = BuildFailure(kind=FailureClass.UNSUPPORTED, first_error="the bundle is of driver 2, not 1")
    ended = await built(rig, BuildRefusal(failure=failure), code=1)
    said = "no build was begun: unsupported: the bundle is of driver 2, not 1"
    assert ended == (D.UNBUILDABLE, said)
    found = image(rig).status.failure
    assert found is not None
    assert (found.sort, found.first_error) == (failure.kind, failure.first_error)
    rig.cluster.clock.advance(86400)
    assert await look(rig) == (D.UNBUILDABLE, said)
    rig.registry.push(packages_name(REPOSITORY, IDENTITY), "ff")
    rig.cluster.clock.advance(2 * LOOK_SECONDS)
    assert await look(rig) == (D.BUILDING, "build 2 begins")


async def test_a_bundle_that_is_signed_late_is_built_from(rig: Rig) -> None:
    """Its digest stays the same: only time says that the signature may be there by now."""
    failure = BuildFailure(kind=FailureClass.SIGNATURE, first_error="not signed by the key")
    ended = await built(rig, BuildRefusal(failure=failure), code=7)
    said = f"no build was begun: signature: not signed by the key; built again in {FIRST_RETRY_SECONDS} s"
    assert ended == (D.RETRYING, said)
    rig.cluster.clock.advance(FIRST_RETRY_SECONDS)
    assert await look(rig) == (D.BUILDING, "build 2 begins")


async def test_a_cell_that_was_packed_for_another_signer_is_built_once_its_secret_is_named(rig: Rig) -> None:
    failure = BuildFailure(kind=FailureClass.UNSUPPORTED, first_error="for modules signed by another")
    ended = await built(rig, BuildResult(identity=IDENTITY, state=CellState.RED, failure=failure), code=1)
    assert ended == (D.UNBUILDABLE, "unsupported: for modules signed by another")
    assert (await look(rig))[0] is D.UNBUILDABLE
    rig.builds = msgspec.structs.replace(rig.builds, module_signing="modules")
    rig.restart()
    assert await look(rig) == (D.BUILDING, "build 2 begins")
    await look(rig)
    (volume,) = [
        one for one in build_jobs(rig)[-1]["spec"]["template"]["spec"]["volumes"] if one["name"] == "module-signing"
    ]
    assert volume["secret"]["secretName"] == "modules"


async def test_a_builder_that_died_is_tried_again_later_and_longer(rig: Rig) -> None:
    wanted(rig)
    await look(rig)
    await look(rig)
    build_ends(rig, None, code=137)
    phase, message = await look(rig)
    assert (phase, message) == (
        D.RETRYING,
        f"the build Job ended without a result: exit code 137: ; built again in {FIRST_RETRY_SECONDS} s",
    )
    rig.cluster.clock.advance(FIRST_RETRY_SECONDS)
    assert await look(rig) == (D.BUILDING, "build 2 begins")
    await look(rig)
    assert len({job["metadata"]["name"] for job in build_jobs(rig)}) == 2


async def test_a_build_that_does_not_end_is_ended(rig: Rig) -> None:
    wanted(rig)
    await look(rig)
    await look(rig)
    rig.cluster.clock.advance(transition_of(D.BUILDING).seconds or 0)
    assert (await look(rig))[0] is D.RETRYING
    assert build_jobs(rig) == []


async def test_an_image_that_is_not_what_it_should_be_is_never_ready(rig: Rig) -> None:
    wanted(rig)
    rig.trust = FakeTrust()
    pinned = rig.registry.push(NAMED, "ab")
    bad = Verdict(check=CheckName.PROVENANCE, passed=False, reason="the input linux-headers is missing")
    rig.trust.verdicts[pinned] = (bad,)
    await look(rig)
    said = "the image does not match the request: provenance: the input linux-headers is missing"
    assert await look(rig) == (D.UNUSABLE, said)
    assert (image(rig).status.digest, image(rig).status.key) == (None, None)
    assert await look(rig) == (D.UNUSABLE, said)
    rig.registry.push(NAMED, "cd")
    assert [(await look(rig))[0] for _ in range(2)] == [D.VERIFYING, D.READY]


async def test_an_image_that_is_signed_late_is_taken(rig: Rig) -> None:
    wanted(rig)
    rig.trust = FakeTrust()
    pinned = rig.registry.push(NAMED, "ab")
    rig.trust.verdicts[pinned] = (Verdict(check=CheckName.IMAGE_SIGNATURE, passed=False, reason="not signed"),)
    assert [(await look(rig))[0] for _ in range(2)] == [D.VERIFYING, D.UNUSABLE]
    del rig.trust.verdicts[pinned]
    rig.cluster.clock.advance(REFUSED_SECONDS)
    assert [(await look(rig))[0] for _ in range(2)] == [D.VERIFYING, D.READY]


async def test_images_in_service_are_verified_once_a_key_is_set(rig: Rig) -> None:
    wanted(rig)
    pinned = rig.registry.push(NAMED, "ab")
    assert [(await look(rig))[0] for _ in range(2)] == [D.VERIFYING, D.READY]
    rig.trust = FakeTrust()
    assert [(await look(rig))[0] for _ in range(3)] == [D.VERIFYING, D.READY, D.READY]
    assert rig.trust.requests == [(pinned, IDENTITY)]


async def test_a_job_that_the_api_server_refuses_is_told(rig: Rig) -> None:
    wanted(rig)
    await look(rig)
    rig.cluster.fail_at(1, ClusterError("exceeded quota: builds"))
    assert await look(rig) == (D.BUILDING, "the build Job is refused: exceeded quota: builds")
    assert (await look(rig))[0] is D.BUILDING
    assert len(build_jobs(rig)) == 1


async def test_a_name_that_is_none_is_told(rig: Rig) -> None:
    brought(rig)
    rig.registry.error = ConfigurationError("'registry/Sim:1' is no image reference")
    phase, message = await look(rig)
    assert (phase, message) == (D.RETRYING, "the registry did not respond: 'registry/Sim:1' is no image reference")


@pytest.mark.parametrize("stage", ["after-act", "after-record", "after-intent"])
@pytest.mark.parametrize("phase", ["Pending", "Building", "Verifying"])
async def test_a_controller_killed_anywhere_builds_once(rig: Rig, phase: str, stage: str) -> None:
    wanted(rig)
    rig.crash = FakeCrashPoints(("DriverImage", phase, stage))
    built = False
    for _ in range(12):
        try:
            await image_reconciler.reconcile_image(rig.context, "one")
        except ProcessKilled:
            rig.restart()
        if build_jobs(rig) and not built:
            built = True
            pinned = rig.registry.push(NAMED, "ab")
            build_ends(rig, BuildResult(identity=IDENTITY, state=CellState.GREEN, build_key="c" * 64, digest=pinned))
    assert image(rig).status.phase is D.READY
    assert len(build_jobs(rig)) == 1
