"""A node that two stacks select: no upgrade begins, both report it, and it continues when only one selects the node."""

from upgrader.api import names
from upgrader.api.resources import GPU_STACKS, NODE_UPGRADES, NODES
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader_dev.simulated.cluster.rig import STACK, Rig, start_training

OTHER = "pool-b"


def other(rig, version="2.0", **selector):
    spec = rig.make_spec(version)
    rig.apply_stack(spec | {"nodeSelector": selector}, OTHER)


def overlap(rig, stack):
    return told_of(rig, stack, "Overlaps")


def told_of(rig, stack, kind):
    found = next(one for one in rig.list_objects(GPU_STACKS, GpuStack) if one.metadata.name == stack)
    return [(one.status, one.reason, one.message) for one in found.status.conditions if one.type == kind]


def marks(rig, node):
    return {key for key in rig.cluster.store.find(NODES, node)["metadata"]["labels"] if key.startswith(names.GROUP)}


async def test_a_new_node_of_two_stacks_is_installed_by_none_of_them():
    rig = Rig()
    rig.put_image("1.0")
    rig.put_image("2.0")
    rig.fleet.add_node("gpu-0", disk="fast")
    rig.fleet.add_node("gpu-1")
    rig.apply_stack(rig.make_spec("1.0"))
    other(rig, disk="fast")
    await rig.run_until(
        lambda: sum("gpu-upgrader.io/revision" in one["metadata"]["labels"] for one in rig.nodes()) == 1
    )
    for _ in range(30):
        await rig.run_second()
    assert [one["spec"]["node"]["name"] for one in rig.cluster.store.copy_all(NODE_UPGRADES)] == ["gpu-1"]
    told = "1 node(s) are selected by other stacks too, and no upgrade begins on them: gpu-0 by "
    assert overlap(rig, STACK) == [("True", "TwoStacks", f"{told}{OTHER}")]
    assert overlap(rig, OTHER) == [("True", "TwoStacks", f"{told}{STACK}")]

    nobody = "no node waits for its first driver, or for a driver for a new kernel"
    alone = f"{nobody}; 1 node(s) that need a driver are excluded"
    assert told_of(rig, STACK, "Installed") == told_of(rig, OTHER, "Installed") == [("True", "EveryNode", alone)]

    rig.cluster.store.remove(GPU_STACKS, OTHER)
    await rig.settle()
    await rig.run_second()
    assert told_of(rig, STACK, "Installed") == [("True", "EveryNode", nobody)]
    assert overlap(rig, STACK) == [("False", "NoOverlap", "no other stack selects a node of this one")]


async def test_a_plan_leaves_a_node_alone_that_another_stack_selects_too():
    rig = Rig()
    revision = await start_training(rig, members=1)
    nodes = {one["metadata"]["name"]: one for one in rig.nodes()}
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {"disk": "fast"}}})
    assert len(nodes) == 2
    other(rig, version="1.0", disk="fast")
    rig.apply_plan("p", revision)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1)
    for _ in range(30):
        await rig.run_second()
    assert rig.plan_now("p").status.phase is PlanPhase.RUNNING
    (blocked,) = [one for one in rig.plan_now("p").status.blockers if one.reason == "TwoStacks"]
    assert blocked.message == (
        f"Node gpu-0 is selected by GpuStack {OTHER} too, so no upgrade begins on it; change a nodeSelector so that "
        "only one of them selects it."
    )
    rig.cluster.store.remove(GPU_STACKS, OTHER)
    await rig.run_until(lambda: rig.is_over("p"))
    assert rig.nodes_on(revision) == 2


async def test_a_node_upgrade_under_way_goes_to_its_end_when_another_stack_comes_to_select_its_node():
    rig = Rig()
    revision = await start_training(rig)
    rig.apply_plan("p", revision)
    await rig.run_until(lambda: {one.status.phase for one in rig.upgrades("p")} == {NodePhase.UPGRADING})
    for node in ("gpu-0", "gpu-1"):
        rig.cluster.store.change(NODES, node, {"metadata": {"labels": {"disk": "fast"}}})
    other(rig, version="1.0", disk="fast")
    await rig.run_until(lambda: rig.is_over("p"))
    assert (rig.plan_now("p").status.phase, rig.nodes_on(revision)) == (PlanPhase.COMPLETED, 2)
    assert rig.fleet.trainers["gang"].lost == 0
    upgrades = len(rig.upgrades())
    for _ in range(60):
        await rig.run_second()
    assert (len(rig.upgrades()), rig.nodes_on(revision)) == (upgrades, 2), "the other stack begins nothing"
    assert overlap(rig, OTHER)[0][:2] == ("True", "TwoStacks")
    rig.assert_nothing_left()
