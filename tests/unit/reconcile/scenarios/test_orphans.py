"""Claims of upgrades that are no more, in virtual time: healed, and never mistaken for those in force."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.support.pools import (
    claimed,
    in_phase,
    installed,
    invalid,
    labels_of,
    pool,
    remove_upgrades,
    well,
)
from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import JOBS, NODE_UPGRADES, NODES, PODS, UPGRADE_PLANS
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.reconcile.runtime.context import Context
from upgrader_dev.simulated.apiserver.node_cache import FakeNodes
from upgrader_dev.simulated.cluster.rig import Rig, start_training


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("phase", [NodePhase.TAINTING, NodePhase.UNLOADING, NodePhase.UPGRADING, NodePhase.LOADING])
async def test_a_node_whose_install_was_deleted_under_way_is_installed_anew(rig: Rig, phase: NodePhase) -> None:
    rig.steps_at_once = 1  # seen in every phase
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_until(lambda: in_phase(rig, phase) and bool(rig.nodes()[0]["metadata"].get("annotations")))
    gone = rig.upgrades()[0].metadata.uid
    remove_upgrades(rig)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1)
    taken = None if phase in {"Tainting", "Unloading"} else gone  # nothing was switched off yet: only its marks went
    assert [one.spec.takes_over for one in rig.upgrades()] == [taken]
    await rig.run_second()
    assert installed(rig)[:2] == ("True", "EveryNode")
    rig.assert_nothing_left()


async def test_a_node_upgrade_that_was_deleted_before_anything_was_off_leaves_no_mark_and_stops_nobody(
    rig: Rig,
) -> None:
    rig.steps_at_once = 1  # seen in every phase
    rig.apply_plan("up", await start_training(rig, nodes=1, members=1))
    before = labels_of(rig, "gpu-0")
    await rig.run_until(lambda: in_phase(rig, NodePhase.TAINTING, "up") and claimed(rig))
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await rig.run_second()
    remove_upgrades(rig, "up")
    await rig.run_until(lambda: not claimed(rig))
    assert (labels_of(rig, "gpu-0"), rig.upgrades()[1:]) == (before, [])
    assert [(one.reason, one.name) for one in rig.cluster.events if one.reason == "UpgradeDeleted"] == [
        ("UpgradeDeleted", "gpu-0")
    ]
    rig.assert_nothing_left()


async def test_a_claim_that_a_frozen_leader_writes_when_its_upgrade_was_given_up_is_taken_away(rig: Rig) -> None:
    rig.apply_plan("up", await start_training(rig, nodes=1, members=1))
    before, labels = rig.cluster.store.find(NODES, "gpu-0"), labels_of(rig, "gpu-0")
    await rig.run_until(lambda: in_phase(rig, NodePhase.TAINTING, "up") and claimed(rig))
    late = rig.nodes()[0]
    rig.cluster.store.save(NODES, "gpu-0", "", lambda _: before)  # its write is still on the way
    rig.cluster.store.change(UPGRADE_PLANS, "up", {"spec": {"state": "Aborted"}})
    await rig.run_until(lambda: in_phase(rig, NodePhase.FAILED, "up"))
    rig.cluster.store.save(NODES, "gpu-0", "", lambda _: late)
    await rig.run_until(lambda: not claimed(rig), 120)
    assert labels_of(rig, "gpu-0") == labels
    assert ("UpgradeDeleted", "gpu-0") in [(one.reason, one.name) for one in rig.cluster.events]
    rig.assert_nothing_left()


async def test_a_node_whose_rollout_was_deleted_gets_the_revision_of_its_plan(rig: Rig) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: sum(one.status.phase is NodePhase.UPGRADING for one in rig.upgrades("up")) == 2)
    remove_upgrades(rig, "up")
    await rig.run_until(lambda: rig.nodes_on(revision) == 2 and not claimed(rig), 4000, stride=10)
    assert rig.fleet.trainers["gang"].lost == 0


async def test_an_orphan_is_left_alone_while_pods_with_gpus_run_there(rig: Rig) -> None:
    await pool(rig)
    rig.fleet.add_job("alone")
    await rig.run_until(lambda: rig.fleet.trainers["alone"].step > 3)
    taint = {"key": names.TAINT_MAINTENANCE, "value": "c", "effect": "NoSchedule"}
    orphan = {
        "metadata": {"annotations": {names.ANNOTATION_CLAIMED_BY: "gone"}, "labels": {names.LABEL_REVISION: None}},
        "spec": {"taints": [taint]},
    }
    rig.cluster.store.change(NODES, "gpu-0", orphan)
    for _ in range(60):
        await rig.run_second()
    assert (len(rig.upgrades()), rig.fleet.trainers["alone"].stops) == (1, 0)
    assert installed(rig) == (
        "False",
        "UpgradeDeleted",
        (
            "the driver could not be installed on 1 node(s). gpu-0: the NodeUpgrade with UID gone was deleted; "
            "the driver is installed again when no GPU pod is left on the node"
        ),
    )
    rig.cluster.store.change(JOBS, "alone", {"spec": {"suspend": True}}, "default")
    await rig.run_until(lambda: not claimed(rig) and len(rig.upgrades()) == 2)
    rig.assert_nothing_left()


async def test_the_upgrade_job_of_a_deleted_upgrade_is_waited_for(rig: Rig) -> None:
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_until(lambda: in_phase(rig, NodePhase.UPGRADING))
    remove_upgrades(rig)
    labels = {names.LABEL_COMPONENT: "upgrade"}
    spec = {"nodeName": "gpu-0", "containers": []}
    meta = {"name": "still-at-work", "namespace": "gpu-upgrader-system", "labels": labels}
    rig.cluster.store.put(PODS, {"metadata": meta, "spec": spec, "status": {"phase": "Unknown"}})
    for _ in range(30):
        await rig.run_second()
    assert rig.upgrades() == []
    rig.cluster.store.remove(PODS, "still-at-work", "gpu-upgrader-system")
    await rig.run_until(lambda: in_phase(rig, NodePhase.SUCCEEDED))


class LateRig(Rig):
    """Its controller sees the nodes as they were."""

    seen: FakeNodes | None = None

    @property
    def context(self) -> Context:
        return replace(super().context, nodes=self.seen) if self.seen is not None else super().context


class Before(FakeNodes):
    """The node cache, far behind."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig.cluster)
        self._then = super().snapshot()

    def snapshot(self) -> Mapping[str, Node] | None:
        return self._then


async def test_a_claim_that_only_the_cache_still_shows_is_no_orphan() -> None:
    rig = LateRig()
    await pool(rig)
    before = rig.cluster.store.find(NODES, "gpu-0")
    off = {names.LABEL_DRIVER: "none", names.LABEL_REVISION: None}
    rig.cluster.store.change(
        NODES, "gpu-0", {"metadata": {"labels": off, "annotations": {names.ANNOTATION_CLAIMED_BY: "x"}}}
    )
    rig.seen = Before(rig)
    rig.cluster.store.save(NODES, "gpu-0", "", lambda _: before)
    version = rig.nodes()[0]["metadata"]["resourceVersion"]
    for _ in range(30):
        await rig.run_second()
    assert (len(rig.upgrades()), rig.nodes()[0]["metadata"]["resourceVersion"]) == (1, version)


@pytest.mark.parametrize("orphaned", [False, True], ids=["another", "orphaned, and they are coming"])
async def test_a_node_that_another_stack_s_upgrade_holds_or_is_about_to_is_left_alone(
    rig: Rig, *, orphaned: bool
) -> None:
    await pool(rig)
    body = rig.cluster.store.find(NODE_UPGRADES, rig.upgrades()[0].metadata.name)
    labels = body["metadata"]["labels"] | {names.LABEL_STACK: "pool-b"}
    spec = body["spec"] | {"stack": "pool-b", "plan": "other"}
    made = rig.cluster.store.put(
        NODE_UPGRADES,
        {"metadata": {"name": "other", "labels": labels}, "spec": spec, "status": {"phase": "Upgrading"}},
    )
    off = {names.LABEL_DRIVER: "none", names.LABEL_OPERANDS: "off", names.LABEL_REVISION: None}
    claim = {
        names.ANNOTATION_CLAIMED_BY: "gone" if orphaned else made["metadata"]["uid"],
        names.ANNOTATION_RELEASED_BY: "x",
    }
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": off, "annotations": claim}})
    for _ in range(30):
        await rig.run_second()
    assert (len(rig.upgrades()), rig.nodes()[0]["metadata"]["annotations"]) == (1, claim)


async def test_a_node_that_even_the_way_back_failed_at_is_installed_anew_when_its_upgrade_is_deleted(rig: Rig) -> None:
    old = await pool(rig)
    revision = rig.apply_stack(rig.make_spec("2.0"))
    rig.put_image("2.0")
    rig.fleet.pod_results = invalid
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.PAUSED, 4000, stride=5)
    (failed,) = rig.upgrades("up")
    assert (failed.status.reason, rig.upgrades()[1:]) == ("RevertFailed", [])
    assert failed.status.message.endswith(
        f"repair the node, then delete NodeUpgrade {failed.metadata.name} to have the node installed again"
    )
    assert installed(rig)[:2] == ("False", "RevertFailed")
    for _ in range(100):
        await rig.run_second()
        rig.cluster.clock.advance(60)
    assert rig.upgrades()[1:] == []
    rig.fleet.pod_results = well
    rig.cluster.store.mark_deleted(NODE_UPGRADES, failed.metadata.name)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1)
    assert old != revision
    await rig.run_second()
    assert installed(rig)[:2] == ("True", "EveryNode")
    rig.assert_nothing_left()


async def test_a_node_upgrade_that_was_deleted_when_its_gang_had_stopped_is_made_anew_and_asks_nobody(rig: Rig) -> None:
    revision = await start_training(rig, nodes=2, members=2)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: in_phase(rig, NodePhase.VALIDATING, "up"))
    rig.cluster.store.remove(NODE_UPGRADES, rig.upgrades("up")[0].metadata.name)
    await rig.run_until(lambda: rig.plan_now("up").status.phase is PlanPhase.COMPLETED, 300)
    assert {upgrade.spec.node.name: upgrade.status.phase for upgrade in rig.upgrades("up")} == {
        "gpu-0": NodePhase.SUCCEEDED,
        "gpu-1": NodePhase.SUCCEEDED,
    }
    trainer = rig.fleet.trainers["gang"]
    assert (rig.nodes_on(revision), trainer.stops, trainer.lost) == (2, 2, 0)  # one stop of two pods
    rig.assert_nothing_left()
