"""Nodes that get out of step while something else is read: what was decided from them is not begun (law 8)."""

import pytest

from upgrader.api.resources import JOBS, UPGRADE_PLANS
from upgrader.core.model.phases import NodePhase, PlanPhase, RequestPhase
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.apiserver.node_cache import FakeNodes
from upgrader_dev.simulated.cluster.rig import Rig, start_training


class Broken(FakeCluster):
    """Its watch of nodes breaks off during each read of the kind `breaks`, until the next step of a plan begins."""

    def __init__(self):
        super().__init__()
        self.breaks, self.broken = "", False

    async def get(self, kind, name, namespace=""):
        found = await super().get(kind, name, namespace)
        self.broken = kind != UPGRADE_PLANS and (self.broken or kind.kind == self.breaks)
        return found

    async def list(self, kind, namespace="", *, labels="", fields=""):
        found = await super().list(kind, namespace, labels=labels, fields=fields)
        self.broken = self.broken or kind.kind == self.breaks
        return found


class Watched:
    """The Nodes port over it."""

    def __init__(self, cluster):
        self._cluster, self._nodes = cluster, FakeNodes(cluster)

    def snapshot(self):
        return None if self._cluster.broken else self._nodes.snapshot()


def begun(rig):
    """What has begun: upgrades, requests, taints and stops."""
    tainted = [node["metadata"]["name"] for node in rig.nodes() if node["spec"].get("taints")]
    stopped = [job["metadata"]["name"] for job in rig.cluster.store.copy_all(JOBS) if job["spec"].get("suspend")]
    return len(rig.upgrades("up")), len(rig.requests()), tainted, stopped


BEFORE = {
    # What begins next, by what is read right before it, and since when it would.
    "a node upgrade": ("Pod", lambda rig: rig.plan_now("up").status.phase is PlanPhase.PROPOSED),
    "a checkpoint request": (
        "Pod",
        lambda rig: {one.status.phase for one in rig.upgrades("up")} == {NodePhase.PREPARING},
    ),
    "the taint": ("Node", lambda rig: {one.status.phase for one in rig.requests()} == {RequestPhase.PARKED}),
    "a stop": ("Pod", lambda rig: {one.status.phase for one in rig.requests()} == {RequestPhase.STOPPING}),
}


@pytest.mark.parametrize(("read", "reached"), BEFORE.values(), ids=BEFORE)
async def test_nothing_begins_while_the_nodes_are_out_of_step(read, reached):
    cluster = Broken()
    rig = Rig(cluster)
    rig.steps_at_once = 1  # seen in every phase
    rig.tolerant = True
    revision = await start_training(rig, nodes=2, members=2)
    rig.node_cache = Watched(cluster)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: reached(rig))
    before = begun(rig)
    cluster.breaks = read
    for _ in range(20):
        await rig.run_second()
        assert begun(rig) == before, rig.describe_state()
    cluster.breaks = ""
    await rig.run_until(lambda: rig.is_over("up"), 3000)
    assert rig.plan_now("up").status.phase == PlanPhase.COMPLETED, rig.describe_state()
    rig.assert_nothing_left()
