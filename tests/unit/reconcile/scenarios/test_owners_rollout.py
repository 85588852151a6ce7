"""A whole plan over gangs of each owner that is played here, asked by file and by the API.

The controller is killed at every place of their request.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import msgspec
import pytest

from upgrader.api import names
from upgrader.api.resources import JOBS, ResourceKind
from upgrader.core.model.phases import PlanPhase, RequestPhase, crash_points
from upgrader.core.workloads.owner_kinds import OWNERS
from upgrader.core.workloads.suspend_patches import record_of
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.controllers import (
    JOBSETS,
    STATEFULSETS,
    WORKLOADS,
    make_job,
    make_jobset,
    stateful_set,
)
from upgrader_dev.simulated.cluster.placing import trainer_spec
from upgrader_dev.simulated.cluster.ports import ProcessKilled
from upgrader_dev.simulated.cluster.responder import Responder
from upgrader_dev.simulated.cluster.rig import Rig
from upgrader_dev.simulated.cluster.trainers import Trainer

APPROVAL = {
    "by": "test",
    "at": "2026-11-21T09:00:00Z",
    "limits": {"maxInterruptions": 9, "placementUnguaranteed": True},  # no template of a JobSet can be steered
}
Point = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Case:
    kind: ResourceKind[object]
    make: Callable[..., Object]
    field: str
    on: object
    off: object
    trainer: str
    """What makes the pods."""
    put: ResourceKind[object] | None = None
    """What a person applies, where that is another object."""
    gang: str = ""
    """Kind in the gang's name, where that is another."""
    method: str = "file"


CASES = {
    "StatefulSet": Case(kind=STATEFULSETS, make=stateful_set, field="replicas", on=2, off=0, trainer="own"),
    "Workload": Case(
        kind=WORKLOADS,
        make=partial(make_job, queue="gpus"),
        field="active",
        on=True,
        off=False,
        trainer="own",
        put=JOBS,
        gang="Job",
    ),
    "Job, asked by the API": Case(
        kind=JOBS, make=make_job, field="suspend", on=False, off=True, trainer="own", gang="Job", method="api"
    ),
    "JobSet": Case(kind=JOBSETS, make=make_jobset, field="suspend", on=False, off=True, trainer="own-w-0"),
}


class KillAtEach:
    """Kills at every point the first time that it is passed."""

    def __init__(self) -> None:
        self.hit: list[Point] = []

    def reached(self, *points: Point) -> None:
        if {point for point in points if point[2] != "before-act"} - set(self.hit):
            self.hit += points
            raise ProcessKilled(points)


async def training(case: Case) -> tuple[Rig, str]:
    """A gang of two on two nodes, and the revision that they go to."""
    rig = Rig()
    rig.cluster.install(*(row for row in OWNERS if row.kind in {"JobSet", "Workload"}))
    rig.others.append(Responder(rig.cluster).tick)
    for number in range(2):
        rig.fleet.add_node(f"gpu-{number}")
    for version in ("1.0", "2.0"):
        rig.put_image(version)
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    rig.fleet.trainers[case.trainer] = Trainer()
    how = {names.ANNOTATION_METHOD: case.method}
    rig.cluster.store.put(case.put or case.kind, case.make("own", members=2, annotations=how, spec=trainer_spec(8)))
    await rig.run_until(lambda: rig.fleet.trainers[case.trainer].step > 10)
    return rig, rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))


def owner(rig: Rig, case: Case) -> Object:
    found = rig.cluster.store.find(case.kind, "own", "default")
    assert found is not None
    return found


def states(rig: Rig, case: Case) -> list[tuple[object, bool]]:
    """The switch and whether a record stands beside it, each time that either changed, from now on."""
    seen: list[tuple[object, bool]] = []

    def look(_: object) -> None:
        found = owner(rig, case)
        state = (found["spec"][case.field], record_of(found["metadata"].get("annotations", {})) is not None)
        if not seen or seen[-1] != state:
            seen.append(state)

    rig.cluster.store.listeners.append(look)
    return seen


async def until_over(rig: Rig, seconds: int = 2500) -> None:
    for _ in range(seconds):
        if rig.is_over("up"):
            return
        try:
            await rig.run_second()
        except ProcessKilled:
            rig.restart()
            rig.fleet.tick()
    raise AssertionError(rig.describe_state())


def of_requests(points: Iterable[Point]) -> set[Point]:
    return {one for one in points if one[0] == "CheckpointRequest" and one[1] != RequestPhase.EXPIRED}


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed at every place"])
@pytest.mark.parametrize("kind", CASES)
async def test_it_is_stopped_by_its_switch_and_comes_back_as_it_was(kind: str, *, killed: bool) -> None:
    case = CASES[kind]
    rig, revision = await training(case)
    seen = states(rig, case)
    rig.apply_plan("up", revision, approval=APPROVAL)
    crash = KillAtEach()
    if killed:
        rig.crash = crash
    await until_over(rig)
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    (request,) = rig.requests()
    assert (request.spec.gang, request.spec.owner.kind) == (f"default/{case.gang or kind}/own", case.kind.kind)
    assert request.spec.method == case.method
    assert seen == [(case.on, False), (case.off, True), (case.on, False)], "the switch and its record in one write"
    trainer = rig.fleet.trainers[case.trainer]
    assert (trainer.lost, trainer.stops) == (0, 2)
    assert request.status.phase is RequestPhase.RESTORED
    assert trainer.step > msgspec.to_builtins(request.status)["acknowledgedStep"]
    assert rig.nodes_on(revision) == 2
    assert not {names.ANNOTATION_STOPPED, names.ANNOTATION_FENCE} & owner(rig, case)["metadata"]["annotations"].keys()
    rig.assert_nothing_left()
    if killed:
        assert not of_requests(crash_points()) - set(crash.hit)
