"""One reading of pods and their owners serves all loops for seconds, and none that decides."""

import asyncio

import pytest

from upgrader.api.resources import GPU_STACKS, PODS
from upgrader.core.errors import UnreachableError
from upgrader.core.model.phases import PlanPhase
from upgrader.reconcile.facts.workloads import SHARED_SECONDS, Workloads
from upgrader.reconcile.runtime.context import with_fresh_pods
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.cluster.rig import STACK, Rig, start_training


class Counting(FakeCluster):
    """Counts the lists of all pods, and fails while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0
        self.away = False

    async def list(self, kind, namespace="", *, labels="", fields=""):
        if kind is PODS and not (namespace or labels or fields):
            self.lists += 1
            if self.away:
                raise UnreachableError("no answer")
        return await super().list(kind, namespace, labels=labels, fields=fields)


@pytest.fixture
def cluster() -> Counting:
    return Counting()


def shared(cluster: Counting) -> Workloads:
    return Workloads(seconds=5, clock=lambda: cluster.clock.now().timestamp())


async def test_looks_within_seconds_share_one_reading_and_later_ones_do_not(cluster: Counting) -> None:
    workloads = shared(cluster)
    await asyncio.gather(*(workloads.read(cluster) for _ in range(9)))
    cluster.clock.advance(4.9)
    await workloads.read(cluster)
    assert cluster.lists == 1
    cluster.clock.advance(0.1)
    await workloads.read(cluster)
    assert cluster.lists == 2


async def test_a_reading_that_failed_is_nobodys(cluster: Counting) -> None:
    workloads, cluster.away = shared(cluster), True
    for _ in range(2):
        with pytest.raises(UnreachableError):
            await workloads.read(cluster)
    cluster.away = False
    assert (await workloads.read(cluster)).pods == []
    assert cluster.lists == 3


async def test_an_old_reading_is_none_when_the_next_one_fails(cluster: Counting) -> None:
    workloads = shared(cluster)
    await workloads.read(cluster)
    cluster.clock.advance(5)
    cluster.away = True
    with pytest.raises(UnreachableError):
        await workloads.read(cluster)


async def test_whoever_decides_reads_anew(cluster: Counting) -> None:
    rig = Rig(cluster)
    rig.share_pod_lists(3600)
    await rig.context.workloads.read(cluster)
    await with_fresh_pods(rig.context).workloads.read(cluster)
    assert cluster.lists == 2


async def test_three_idle_stacks_and_a_plan_list_all_pods_once_in_a_while() -> None:
    rig = Rig(Counting())
    await start_training(rig, nodes=1, members=1)
    for name in ("b", "c"):
        rig.apply_stack(rig.make_spec("1.0") | {"nodeSelector": {"pool": name}}, name)
    rig.apply_plan("up", "0000000000")
    rig.share_pod_lists(SHARED_SECONDS)
    assert isinstance(rig.cluster, Counting)
    before = rig.cluster.lists
    for _ in range(60):
        await rig.run_second()
    assert rig.cluster.lists - before <= 60 / SHARED_SECONDS


@pytest.mark.parametrize("side_by_side", [True, False])
async def test_a_rollout_from_shared_readings_goes_as_any_other(*, side_by_side: bool) -> None:
    rig = Rig()
    revision = await start_training(rig, nodes=4)
    rig.share_pod_lists(SHARED_SECONDS)
    rig.side_by_side = side_by_side
    rig.apply_plan("up", revision)
    alarms = []
    rig.others.append(
        lambda: alarms.extend(one for one in rig.stack_now().status.conditions if one.type == "StoppedOwners")
    )
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED
    assert rig.nodes_on(revision) == 4
    assert (rig.fleet.trainers["gang"].stops, rig.fleet.trainers["gang"].lost) == (2, 0)
    assert alarms == []
    rig.assert_nothing_left()


async def test_a_gang_that_came_since_the_shared_reading_is_in_the_batch_that_is_started() -> None:
    rig = Rig()
    revision = await start_training(rig, nodes=2, members=1)
    rig.share_pod_lists(3600)
    await rig.run_second()
    rig.fleet.add_job("late", members=1, gpus=8)
    for _ in range(5):
        rig.fleet.tick()
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: bool(rig.plan_now("up").status.batches))
    (batch,) = rig.plan_now("up").status.batches
    assert {gang for one in batch.groups for gang in one.gangs} == {"default/Job/gang", "default/Job/late"}


async def test_a_node_that_came_to_be_used_since_is_not_installed_over_a_job() -> None:
    """A node without a driver, on which a pod has come that the shared reading does not know."""
    rig = Rig()
    await start_training(rig, nodes=1, members=1)
    rig.share_pod_lists(3600)
    await rig.run_second()
    rig.fleet.add_node("bare")
    rig.fleet.add_bare_pod("early", node="bare", gpus=1)
    for _ in range(5):
        await rig.run_second()
    assert [one.spec.node.name for one in rig.upgrades() if one.spec.node.name == "bare"] == []
    assert rig.cluster.store.find(GPU_STACKS, STACK) is not None
