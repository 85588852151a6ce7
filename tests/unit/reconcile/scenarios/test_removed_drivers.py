"""A node with a kernel for which there is no image, in virtual time: nothing crash-loops, nobody waits."""

import json
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from tests.support.drifting import KERNEL, NEXT, built, condition, images_of, made_by_recipe, on_recipes_driver, reboots
from tests.support.pools import labels_of
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, NODES
from upgrader.core.model.phases import NodePhase
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.gpu_stack import driver_removal
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader_dev.simulated.cluster.rig import Rig


@pytest.fixture
async def rig() -> Rig:
    """One node on driver 1.0, made by a recipe."""
    return await on_recipes_driver()


def removed_driver(rig: Rig, name: str = "gpu-0") -> bool:
    return names.ANNOTATION_REMOVED_DRIVER in rig.cluster.store.find(NODES, name)["metadata"].get("annotations", {})


def brought_back(rig: Rig) -> list[tuple[str, NodePhase]]:
    return [(one.spec.target.kernel, one.status.phase) for one in rig.upgrades() if one.spec.reason == "Repair"]


async def test_an_image_is_asked_for_and_the_node_brought_back_with_it_by_nobodys_word(rig: Rig) -> None:
    revision = rig.stack_now().status.update_revision
    key = labels_of(rig, "gpu-0")[names.LABEL_DRIVER]
    reboots(rig, "gpu-0", boot="boot-2")
    await rig.run_until(lambda: removed_driver(rig), 10)
    assert {name: value for name, value in labels_of(rig, "gpu-0").items() if name != names.LABEL_DEVICE_PLUGIN} == {
        names.LABEL_DRIVER: "none",
        names.LABEL_OPERANDS: "off",
    }
    kept = json.loads(
        rig.cluster.store.find(NODES, "gpu-0")["metadata"]["annotations"][names.ANNOTATION_REMOVED_DRIVER]
    )
    assert kept == {"driver": key, "revision": revision, "kernel": NEXT}
    assert images_of(rig, NEXT) == [("1.0", "sim", "Pending")]
    await rig.run_second()
    (image,) = [one for one in rig.cluster.store.copy_all(DRIVER_IMAGES) if one["spec"]["kernel"] == NEXT]
    said = (
        f"1 node(s) (gpu-0): There is no Ready DriverImage for sim 1.0 on kernel {NEXT}. DriverImage "
        f"{image['metadata']['name']} is Pending: {image['status']['message']}. Alternatives: kernel {KERNEL}."
    )
    assert condition(rig, "Installed") == ("False", "NoDriverImage", said)
    built(rig, "1.0", NEXT)
    await rig.run_until(lambda: rig.nodes_on(revision or "?") == 1, 300)
    await rig.settle()
    assert brought_back(rig) == [(NEXT, NodePhase.SUCCEEDED)]
    assert not removed_driver(rig)
    await rig.run_second()
    assert (condition(rig, "Installed") or ())[:2] == ("True", "EveryNode")
    rig.assert_nothing_left()


async def test_while_it_has_no_driver_nothing_is_written_again(rig: Rig) -> None:
    reboots(rig, "gpu-0", boot="boot-2")
    await rig.run_until(lambda: removed_driver(rig), 10)
    for _ in range(5):
        await rig.run_second()
    before = len(rig.cluster.writes)
    for _ in range(60):
        await rig.run_second()
    assert rig.cluster.writes[before:] == []


async def test_a_reboot_into_the_kernel_that_it_had_brings_it_back_too(rig: Rig) -> None:
    revision = rig.stack_now().status.update_revision or "?"
    reboots(rig, "gpu-0", boot="boot-2")
    await rig.run_until(lambda: removed_driver(rig), 10)
    reboots(rig, "gpu-0", boot="boot-3", kernel=KERNEL)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1, 60)
    await rig.settle()
    assert brought_back(rig) == [(KERNEL, NodePhase.SUCCEEDED)]
    assert not removed_driver(rig)


async def test_pods_of_a_job_are_ended_by_nobody_while_their_node_has_no_driver(rig: Rig) -> None:
    rig.fleet.add_job("gang", members=1, gpus=8)
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > 3)
    reboots(rig, "gpu-0", boot="boot-2")
    await rig.run_until(lambda: removed_driver(rig), 10)
    for _ in range(30):
        await rig.run_second()
    assert rig.fleet.trainers["gang"].stops == 0
    assert not [one for one in rig.cluster.writes if one.verb == "evict"]


async def test_a_driver_that_was_approved_meanwhile_and_has_an_image_is_taken_instead(rig: Rig) -> None:
    reboots(rig, "gpu-0", boot="boot-2")
    await rig.run_until(lambda: removed_driver(rig), 10)
    made_by_recipe(rig, "2.0", NEXT)
    revision = rig.apply_stack(rig.make_spec("2.0"))
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1, 300)
    assert not removed_driver(rig)


async def test_a_node_is_left_as_it_is_where_a_person_said_so(rig: Rig) -> None:
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_SKIP: "true"}}})
    before = labels_of(rig, "gpu-0")
    reboots(rig, "gpu-0", boot="boot-2")
    for _ in range(10):
        await rig.run_second()
    assert (labels_of(rig, "gpu-0"), images_of(rig, NEXT)) == (before, [])


async def test_a_node_that_changed_since_it_was_seen_is_not_written(rig: Rig) -> None:
    reboots(rig, "gpu-0", boot="boot-2")
    await rig.run_second()
    rig.cluster.before_write = lambda write: (
        reboots(rig, "gpu-0", boot="boot-3", kernel=KERNEL) if write.kind == "Node" else None
    )
    await rig.run_second()
    rig.cluster.before_write = None
    for _ in range(5):
        await rig.run_second()
    assert not removed_driver(rig)


@pytest.mark.parametrize("change", [{"boot_id": "boot-0"}, {"kernel": "6.1.0-1-amd64"}, {"driver_key": "other"}])
async def test_what_was_seen_has_to_be_so_still(rig: Rig, change: dict[str, str]) -> None:
    """The nodes that a stack looks at may be behind the API server."""
    (node,) = await rig.cluster.list(NODES)
    facts = node_facts(node, "nvidia.com/gpu")
    nobody = cast("StackReading", SimpleNamespace(upgrades=[]))
    await driver_removal.remove_driver(rig.context, nobody, msgspec.structs.replace(facts, **change))
    assert not removed_driver(rig)
    await driver_removal.remove_driver(rig.context, nobody, facts)
    assert removed_driver(rig)


# ------------------------------------------------------------------------------- right after a reboot


async def test_the_old_kernel_in_the_node_right_after_a_reboot_causes_nothing(rig: Rig) -> None:
    """The kubelet has registered its new boot, the labeller has read the new kernel, nodeInfo has the old one still."""
    made_by_recipe(rig, "1.0", NEXT)
    reboots(rig, "gpu-0", boot="boot-2", kernel=KERNEL)
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_KERNEL_NFD: NEXT}}})
    for _ in range(20):
        await rig.run_second()
    assert [one.spec.reason.value for one in rig.upgrades()] == ["Install"]
    reboots(rig, "gpu-0", boot="boot-2", kernel=NEXT)
    await rig.run_until(lambda: any(one.spec.reason == "Repair" for one in rig.upgrades()), 10)
    await rig.settle()
    assert brought_back(rig) == [(NEXT, NodePhase.SUCCEEDED)]


async def test_a_kernel_that_is_seen_once_only_causes_nothing(rig: Rig) -> None:
    made_by_recipe(rig, "1.0", NEXT)
    await rig.run_second()
    reboots(rig, "gpu-0", boot="boot-2", kernel=NEXT)
    await rig.run_second()
    reboots(rig, "gpu-0", boot="boot-3", kernel=KERNEL)
    for _ in range(10):
        await rig.run_second()
    assert [one.spec.reason.value for one in rig.upgrades()] == ["Install"]


async def test_an_escaped_kernel_label_is_the_kernel(rig: Rig) -> None:
    kernel, escaped = "6.12.94+deb13-amd64", "6.12.94_deb13-amd64"
    made_by_recipe(rig, "1.0", kernel)
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {names.LABEL_KERNEL_NFD: escaped}}})
    reboots(rig, "gpu-0", boot="boot-2", kernel=kernel)
    await rig.run_until(lambda: any(one.spec.reason == "Repair" for one in rig.upgrades()), 10)
    await rig.settle()
    for _ in range(90):
        await rig.run_second()
    assert condition(rig, "LabelsAgree") is None
    assert brought_back(rig) == [(kernel, NodePhase.SUCCEEDED)]


async def test_a_new_node_is_told_to_lack_what_it_would_be_given_and_not_what_nobody_approved(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("2.0"))
    made_by_recipe(rig, "2.0", NEXT)
    await rig.run_second()
    revision = next(one for one in rig.upgrades() if one.spec.node.name == "gpu-0").spec.target.revision
    rig.cluster.store.change(GPU_STACKS, "pool-a", {"status": {"currentRevision": revision}})
    rig.fleet.add_node("gpu-1", kernel=NEXT)
    for _ in range(5):
        await rig.run_second()
    status, reason, message = condition(rig, "Installed") or ("", "", "")
    assert (status, reason) == ("False", "NoDriverImage")
    assert message.startswith(f"1 node(s) (gpu-1): There is no Ready DriverImage for sim 1.0 on kernel {NEXT}.")
