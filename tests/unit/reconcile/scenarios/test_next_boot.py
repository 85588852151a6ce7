"""Kernels that are installed and not booted yet, in virtual time: an image is made ahead, or people are warned."""

import json

import pytest

from tests.support.drifting import KERNEL, NEXT, asks, built, condition, images_of, made_by_recipe, plans, reboots
from tests.support.pools import labels_of
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, NODES, UPGRADE_PLANS
from upgrader.core.gpu_stack.drift import find_drift
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.observe.image_uses import read_uses
from upgrader_dev.simulated.cluster.readings import read_node_features
from upgrader_dev.simulated.cluster.rig import Rig


@pytest.fixture
async def rig() -> Rig:
    """Two labelled nodes on driver 1.0; the next kernel is installed on the first."""
    made = Rig()
    for number in range(2):
        made.fleet.add_node(f"gpu-{number}")
    made_by_recipe(made, "1.0")
    made.apply_stack(made.make_spec("1.0") | {"nodeFeatures": "Auto"})
    made.fleet.features = lambda node: read_node_features(
        node, kernels=[NEXT, KERNEL] if node["metadata"]["name"] == "gpu-0" else [KERNEL]
    )
    await made.settle()
    return made


async def pass_time(rig: Rig, seconds: int) -> None:
    for _ in range(seconds):
        await rig.run_second()


async def test_an_image_is_made_before_any_node_boots_the_kernel(rig: Rig) -> None:
    await pass_time(rig, 5)
    record = json.loads(
        rig.cluster.store.find(NODES, "gpu-0")["metadata"]["annotations"][names.ANNOTATION_NODE_FEATURES]
    )
    assert record["pending"] == NEXT
    assert images_of(rig, NEXT) == [("1.0", "sim", "Pending")]
    before = labels_of(rig, "gpu-0")
    built(rig, "1.0", NEXT)
    await rig.run_until(lambda: images_of(rig, NEXT) == [("1.0", "sim", "Ready")], 60)
    await rig.run_second()
    assert condition(rig, "NextBootSupported") == (
        "True",
        "Supported",
        "every kernel that a next boot would take has an image",
    )
    assert labels_of(rig, "gpu-0") == before
    reboots(rig, "gpu-0", boot="boot-2")
    revision = rig.stack_now().status.update_revision or "?"
    await pass_time(rig, 2)
    await rig.run_until(lambda: rig.nodes_on(revision) == 2, 60)
    assert not [one for one in rig.cluster.events if one.reason == "NoDriverImage"]


async def test_where_none_can_be_built_people_are_warned_and_nothing_is_drained(rig: Rig) -> None:
    await pass_time(rig, 5)
    (image,) = [one for one in rig.cluster.store.copy_all(DRIVER_IMAGES) if one["spec"]["kernel"] == NEXT]
    name = image["metadata"]["name"]
    status = {"phase": "Unbuildable", "message": "compile: no member named x", "retryAt": "2027-01-01T00:00:00Z"}
    rig.cluster.store.change(DRIVER_IMAGES, name, {"status": status})
    made_by_recipe(rig, "2.0", NEXT)
    await pass_time(rig, 10)
    missing = (
        f"There is no Ready DriverImage for sim 1.0 on kernel {NEXT}. DriverImage {name} is Unbuildable: compile: no "
        f"member named x. Alternatives: driver sim 2.0 for this kernel; kernel {KERNEL}."
    )
    assert condition(rig, "NextBootSupported") == (
        "False",
        "NoImage",
        f"1 node(s) (gpu-0) would have no driver image after a reboot: {missing}",
    )
    target = cluster_snapshot.target_of(rig.stack_now().spec, "pool-a")
    snapshot = await cluster_snapshot.read_snapshot(rig.context, rig.stack_now(), target)
    assert snapshot is not None
    found = {
        one.node: [(each.reason.value, each.counts, each.message) for each in one.findings]
        for one in find_drift(snapshot, target)
    }
    said = f"Kernel {NEXT} is installed and runs after the next reboot. {missing}"
    assert ("NextBootUnsupported", False, said) in found["gpu-0"]
    assert plans(rig) == []
    assert [one.spec.reason.value for one in rig.upgrades()] == ["Install", "Install"]


async def test_an_image_of_a_kernel_that_is_to_be_booted_is_not_swept(rig: Rig) -> None:
    await pass_time(rig, 5)
    for one in list(rig.cluster.store.copy_all(DRIVER_IMAGES)):
        rig.cluster.store.remove(DRIVER_IMAGES, one["metadata"]["name"])
    assert NEXT in (await read_uses(rig.cluster)).pending


async def test_a_report_of_an_earlier_boot_says_nothing_of_the_next_one(rig: Rig) -> None:
    await pass_time(rig, 5)
    rig.fleet.features = lambda _: None
    reboots(rig, "gpu-0", boot="boot-2", kernel=KERNEL)
    await pass_time(rig, 2)
    (node,) = [one for one in await rig.cluster.list(NODES) if one.metadata.name == "gpu-0"]
    assert node_facts(node, "nvidia.com/gpu").pending_kernel == ""


async def test_an_image_is_deleted_when_no_node_could_request_it(rig: Rig) -> None:
    await pass_time(rig, 5)
    rig.fleet.features = lambda node: read_node_features(node, kernels=[KERNEL])
    rig.cluster.clock.advance(6 * 86400)
    await pass_time(rig, 5)
    assert len(images_of(rig, NEXT)) == 1
    rig.cluster.clock.advance(86400)
    await pass_time(rig, 5)
    assert images_of(rig, NEXT) == []
    assert images_of(rig, KERNEL) == [("1.0", "sim", "Ready")]  # a person's, and in use


async def test_an_old_image_stays_while_its_kernel_is_installed(rig: Rig) -> None:
    await pass_time(rig, 5)
    rig.cluster.clock.advance(8 * 86400)
    await pass_time(rig, 5)
    assert images_of(rig, NEXT) == [("1.0", "sim", "Pending")]
    assert not [one for one in rig.cluster.writes if (one.verb, one.kind) == ("delete", "DriverImage")]


async def test_an_old_image_stays_while_a_plan_that_is_open_leads_to_its_kernel() -> None:
    """Although the stack asks for it no more, and no node runs it yet."""
    rig = Rig()
    rig.fleet.add_node("gpu-0")
    made_by_recipe(rig, "1.0")
    built(rig, "1.0", NEXT)
    spec = rig.make_spec("1.0")
    rig.apply_stack(spec)
    await rig.settle()
    revision = asks(rig, spec | {"reboot": {"kernel": NEXT, "select": ["/sbin/choose"]}}, "Propose")
    await rig.run_until(lambda: images_of(rig, NEXT) == [("1.0", "sim", "Ready")])
    rig.apply_stack(spec)
    rig.apply_plan("up", revision, approval=None)
    await rig.run_second()
    rig.cluster.clock.advance(8 * 86400)
    for _ in range(20):
        await rig.run_second()
    assert images_of(rig, NEXT) == [("1.0", "sim", "Ready")]
    rig.cluster.store.mark_deleted(UPGRADE_PLANS, "up")
    await rig.run_until(lambda: images_of(rig, NEXT) == [], 60)
