"""An upgrade Job is made suspended and started by a second write: one that arrives too late does nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import CHECKPOINT_REQUESTS, JOBS, NODES, PODS, ResourceKind
from upgrader.core.errors import ConfigurationError, ConflictError, NotFoundError, UnreachableError
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader_dev.simulated.cluster.rig import Rig, start_training

LONG = 6000


class Starting(Rig):
    """Starts of upgrade Jobs that are there meet what `fails` says, and are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[Any, ...]] = []
        self.fails = True
        self._edit = self.cluster.edit
        self.cluster.edit = self._start  # type: ignore[method-assign]

    async def _start(
        self, kind: ResourceKind[Any], meta: ObjectMeta, operations: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> Any:
        of_a_node_upgrade = kind == JOBS and meta.name.startswith(("upgrade-", "revert-"))
        if (
            self.fails
            and of_a_node_upgrade
            and self.cluster.store.find_stored(JOBS, meta.name, meta.namespace) is not None
        ):
            self.sent.append((kind, meta, operations))
            raise UnreachableError("no answer")
        return await self._edit(kind, meta, operations, subresource)

    async def arrive(self) -> None:
        """The last start that was sent arrives now."""
        await self._edit(*self.sent[-1])

    async def begin(self) -> None:
        """A plan goes over a node with a gang, up to the first start."""
        self.fails = False
        revision = await start_training(self, nodes=1, members=1)
        self.fails = True
        self.apply_plan("up", revision)
        await self.run_until(lambda: bool(self.sent))

    @property
    def status(self) -> Any:
        return self.upgrades("up")[0].status

    @property
    def job(self) -> dict[str, Any] | None:
        """The Job whose start was sent last."""
        meta = self.sent[-1][1]
        stored = self.cluster.store.find_stored(JOBS, meta.name, meta.namespace)
        return stored.value if stored is not None else None

    @property
    def pods(self) -> list[str]:
        """Pods of that Job."""
        made = [pod["metadata"]["name"] for pod in self.cluster.store.list_values(PODS)]
        return [name for name in made if name.startswith(self.sent[-1][1].name)]

    async def pass_by(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.run_second()


@pytest.fixture
async def rig() -> Starting:
    rig = Starting()
    await rig.begin()
    return rig


async def test_one_that_was_not_started_is_started_by_the_next_look(rig: Starting) -> None:
    assert rig.job is not None
    assert (rig.job["spec"]["suspend"], rig.pods) == (True, [])
    rig.fails = False
    rig.restart()
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED
    rig.assert_nothing_left()


async def test_one_that_is_made_when_its_upgrade_is_over_does_nothing_on_another_node_of_that_name(
    rig: Starting,
) -> None:
    assert rig.job is not None
    body = {key: value for key, value in rig.job.items() if key != "status"}
    rig.cluster.store.remove(NODES, "gpu-0")
    await rig.run_until(lambda: rig.status.phase is NodePhase.NODE_DELETED)
    assert rig.job is None
    rig.fails = False
    rig.cluster.store.put(JOBS, body)
    rig.fleet.add_node("gpu-0")
    await rig.pass_by(60)
    assert (rig.job["spec"]["suspend"], rig.pods) == (True, [])


async def test_a_start_that_is_late_finds_no_job_where_the_node_is_gone_long_after_the_deadline(rig: Starting) -> None:
    rig.cluster.clock.advance(1195)
    rig.cluster.store.remove(NODES, "gpu-0")
    rig.cluster.clock.advance(10)
    await rig.run_until(lambda: rig.status.phase is NodePhase.NODE_DELETED)
    with pytest.raises(NotFoundError):
        await rig.arrive()


async def test_a_start_that_is_late_finds_no_job_where_even_the_way_back_could_not_be_started(rig: Starting) -> None:
    await rig.run_until(lambda: rig.status.phase is NodePhase.FAILED, LONG)
    assert rig.status.reason == "RevertFailed"
    assert rig.sent[-1][1].name.startswith("revert-")
    with pytest.raises(NotFoundError):
        await rig.arrive()


async def test_a_start_that_is_late_finds_no_job_where_a_pod_has_come_meanwhile(rig: Starting) -> None:
    rig.fleet.add_bare_pod("late", node="gpu-0", gpus=1)
    rig.fails = False
    rig.restart()
    await rig.pass_by(15)
    assert [each.reason for each in rig.status.conditions if each.type == "Blocked"] == ["PodsArrived"]
    with pytest.raises((NotFoundError, ConflictError)):
        await rig.arrive()
    await rig.pass_by(15)
    assert rig.pods == []
    rig.cluster.store.remove(PODS, "late", "default")
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED


async def test_pods_are_looked_for_between_making_and_starting() -> None:
    rig = Rig()
    revision = await start_training(rig, nodes=1, members=1)
    before, made = rig.cluster.create, []

    async def create(kind: Any, body: Any) -> Any:
        found = await before(kind, body)
        if kind == JOBS and body["metadata"]["name"].startswith("upgrade-"):
            made.append(body["metadata"]["name"])
            rig.fleet.add_bare_pod("late", node="gpu-0", gpus=1)
        return found

    rig.cluster.create = create  # type: ignore[method-assign]
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: bool(made))
    for _ in range(30):
        await rig.run_second()
    pods = [pod["metadata"]["name"] for pod in rig.cluster.store.list_values(PODS)]
    assert ("late" in pods, [name for name in pods if name.startswith(made[0])]) == (True, [])


async def test_one_that_somebody_else_suspends_is_waited_for(rig: Starting) -> None:
    rig.fleet.hangs = lambda _pod: True
    rig.fails = False
    await rig.run_until(lambda: bool(rig.pods))
    meta = rig.sent[-1][1]
    rig.cluster.store.change(JOBS, meta.name, {"spec": {"suspend": True}}, meta.namespace)
    await rig.pass_by(60)
    assert rig.job is not None
    assert (rig.job["spec"]["suspend"], rig.status.phase) == (True, NodePhase.UPGRADING)
    assert rig.status.message == f"Job {meta.name} was suspended by another client"
    rig.fleet.hangs = lambda _pod: False
    rig.cluster.store.change(JOBS, meta.name, {"spec": {"suspend": False}}, meta.namespace)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED


async def test_without_the_right_to_start_one_nobody_is_asked() -> None:
    rig = Rig()
    revision = await start_training(rig, nodes=1, members=1)
    before = rig.cluster.edit

    async def edit(kind: Any, meta: Any, operations: Any, subresource: str = "") -> Any:
        if kind == JOBS and meta.namespace == rig.context.stack.namespace:
            raise ConfigurationError("patch of jobs is forbidden")
        return await before(kind, meta, operations, subresource)

    rig.cluster.edit = edit  # type: ignore[method-assign]
    rig.apply_plan("up", revision)
    await rig.run_until(
        lambda: bool(rig.upgrades("up")) and rig.upgrades("up")[0].status.phase is NodePhase.FAILED, LONG
    )
    status = rig.upgrades("up")[0].status
    assert (status.reason, rig.fleet.trainers["gang"].stops) == ("NotPrepared", 0)
    assert "would refuse to start Job upgrade-" in status.message
    assert list(rig.cluster.store.list_values(CHECKPOINT_REQUESTS)) == []
