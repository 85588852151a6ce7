"""What a cache of nodes that has fallen behind without a sign of it may cause: looks, and no batch."""

from dataclasses import replace

from upgrader.api.resources import NODES
from upgrader.reconcile.observe.listed_nodes import ListedNodes
from upgrader.reconcile.runtime.context import Context
from upgrader_dev.simulated.apiserver.node_cache import FakeNodes
from upgrader_dev.simulated.cluster.rig import Rig, start_training


class StaleRig(Rig):
    """Its controller sees nodes as they were at a moment of the past."""

    stale: ListedNodes | None = None

    @property
    def context(self) -> Context:
        return super().context if self.stale is None else replace(super().context, nodes=self.stale)

    def fall_behind(self) -> None:
        self.stale = ListedNodes(nodes=FakeNodes(self.cluster).snapshot())


async def test_a_batch_is_started_from_nodes_that_are_listed_for_it() -> None:
    rig = StaleRig()
    revision = await start_training(rig, nodes=2, members=1)
    rig.fall_behind()
    for name in ("gpu-0", "gpu-1"):
        rig.cluster.store.change(NODES, name, {"metadata": {"labels": {"gpu-upgrader.io/skip": "true"}}})
    rig.apply_plan("up", revision)
    for _ in range(30):
        await rig.run_second()
    assert rig.plan_now("up").status.batches == []
    assert rig.upgrades("up") == []
