"""Law 7: the controller is killed once at every place of TRANSITIONS, and nothing is lost."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.building import build_ends, build_jobs
from upgrader.api.resources import DRIVER_IMAGES, PODS, UPGRADE_PLANS
from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass, Identity
from upgrader.core.driver_image.image_names import image_name, packages_name
from upgrader.core.model.phases import PlanPhase, RequestPhase, crash_points
from upgrader.stack.settings import BuildSettings
from upgrader_dev.simulated.cluster.ports import FakeTrust, ProcessKilled
from upgrader_dev.simulated.cluster.rig import Rig, start_training

Point = tuple[str, str, str]
BUILDS = {"Building", "Unbuildable"}


class KillAtEach:
    """Kills at every point the first time that it is passed."""

    def __init__(self) -> None:
        self.hit: list[Point] = []

    def reached(self, *points: Point) -> None:
        if {point for point in points if point[2] != "before-act"} - set(self.hit):
            self.hit += points
            raise ProcessKilled(points)


async def _second(rig: Rig) -> None:
    try:
        await rig.run_second()
    except ProcessKilled:
        rig.restart()
        rig.fleet.tick()


async def _until(rig: Rig, done: Callable[[], bool], seconds: int = 2500, stride: int = 1) -> None:
    for _ in range(0, seconds, stride):
        if done():
            return
        await _second(rig)
        rig.cluster.clock.advance(stride - 1)
    raise AssertionError(rig.describe_state())


async def _rollout(rig: Rig) -> None:
    limits = {"maxInterruptions": 9, "expendable": ["default/Pod/solo"]}
    approval = {"by": "test", "at": "2026-11-21T09:00:00Z", "limits": limits}
    rig.apply_plan("up", await start_training(rig, gpus=4), approval=approval)
    rig.fleet.add_replica("web", node="gpu-0", gpus=2)
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=2)
    rig.crash = KillAtEach()
    await _until(rig, lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert (rig.fleet.trainers["gang"].lost, rig.fleet.trainers["gang"].stops) == (0, 2)
    assert rig.cluster.store.find(PODS, "solo", "default") is None


async def _silence(rig: Rig) -> None:
    """One gang of a group never answers: the other is asked again until both are let go."""
    revision = await start_training(rig, nodes=1, members=1, gpus=4)
    rig.fleet.add_job("half", members=1, gpus=4)
    rig.fleet.trainers["half"].answers = lambda _pod, _request, _step: None
    rig.apply_plan("up", revision, checkpoint={"timeoutSeconds": 30, "retrySeconds": 86400})
    rig.crash = KillAtEach()
    await _until(rig, lambda: _is_released(rig), stride=15)
    assert {trainer.stops for trainer in rig.fleet.trainers.values()} == {0}


def _is_released(rig: Rig) -> bool:
    phases = [one.status.phase for one in rig.requests()]
    ended = rig.plan_now("up").status.batches and rig.plan_now("up").status.batches[0].ended_at is not None
    return set(phases) == {RequestPhase.WITHDRAWN} and bool(ended)


async def _pause_and_abort(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision, state="Running")
    rig.crash = KillAtEach()
    await _until(rig, lambda: rig.plan_now("up").status.phase is PlanPhase.RUNNING)
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Paused"}})
    await _until(rig, lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED)
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await _until(rig, lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.ABORTED


async def _images(rig: Rig) -> None:
    await start_training(rig)
    rig.crash = KillAtEach()
    rig.put_image("3.0")
    rig.registry.digests.pop("registry/sim-driver:3.0-6.1.0-47-amd64")
    await _until(rig, lambda: _phase_of(rig, "sim-3.0-6.1.0-47-amd64") == "Unusable", stride=15)
    rig.registry.push("registry/sim-driver:3.0-6.1.0-47-amd64", "30")
    await _until(rig, lambda: _phase_of(rig, "sim-3.0-6.1.0-47-amd64") == "Ready")
    rig.trust = FakeTrust()
    await _until(rig, lambda: ("DriverImage", "Ready", "after-record") in rig.crash.hit)
    await _until(rig, lambda: _phase_of(rig, "sim-3.0-6.1.0-47-amd64") == "Ready")


async def _builds(rig: Rig) -> None:
    """One build fails for good; with other packages the next is in service."""
    wanted = Identity(vendor="sim", recipe="fakebridge", driver="1", kernel="6.1.0-50-amd64", os="bookworm")
    rig.builds = BuildSettings(repository="registry/drivers", builder_image="registry/builder@sha256:" + "d" * 64)
    rig.registry.push(packages_name("registry/drivers", wanted), "ee")
    spec = {"vendor": "sim", "recipe": "fakebridge", "version": "1", "kernel": wanted.kernel, "os": "bookworm"}
    rig.cluster.store.put(DRIVER_IMAGES, {"metadata": {"name": "built"}, "spec": spec})
    rig.crash = KillAtEach()
    await _until(rig, lambda: len(build_jobs(rig)) == 1)
    failure = BuildFailure(kind=FailureClass.COMPILE, first_error="too few arguments")
    build_ends(rig, BuildResult(identity=wanted, state=CellState.RED, failure=failure), code=1)
    await _until(rig, lambda: _phase_of(rig, "built") == "Unbuildable")
    rig.registry.push(packages_name("registry/drivers", wanted), "ff")
    await _until(rig, lambda: len(build_jobs(rig)) == 2)
    pinned = rig.registry.push(image_name("registry/drivers", wanted), "ab")
    build_ends(rig, BuildResult(identity=wanted, state=CellState.GREEN, digest=pinned))
    await _until(rig, lambda: _phase_of(rig, "built") == "Ready")
    assert len(build_jobs(rig)) == 2


def _phase_of(rig: Rig, image: str) -> str:
    found = rig.cluster.store.find(DRIVER_IMAGES, image)
    return found.get("status", {}).get("phase", "") if found else ""


SCENARIOS: dict[str, tuple[Callable[[Rig], Awaitable[None]], Callable[[Point], bool]]] = {
    "a rollout": (
        _rollout,
        lambda one: (
            one[0] == "NodeUpgrade"
            or (one[0] == "CheckpointRequest" and one[1] != RequestPhase.EXPIRED)
            or one[:2] in {("UpgradePlan", "Running"), ("UpgradePlan", "Proposed")}
        ),
    ),
    "a gang that never answers": (_silence, lambda one: one[1] == RequestPhase.EXPIRED),
    "a pause and an abort": (
        _pause_and_abort,
        lambda one: one[:2] in {("UpgradePlan", "Paused"), ("UpgradePlan", "Aborting")},
    ),
    "an image that comes late": (_images, lambda one: one[0] == "DriverImage" and one[1] not in BUILDS),
    "an image that is built": (_builds, lambda one: one[0] == "DriverImage" and one[1] in BUILDS),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_killed_at_every_place(name: str) -> None:
    play, mine = SCENARIOS[name]
    rig = Rig()
    await play(rig)
    rig.assert_nothing_left()
    missed = {point for point in crash_points() if mine(point)} - set(rig.crash.hit)
    assert not missed, f"never reached: {sorted(missed)}"


def test_every_place_belongs_to_a_scenario() -> None:
    assert [one for one in crash_points() if not any(mine(one) for _, mine in SCENARIOS.values())] == []
