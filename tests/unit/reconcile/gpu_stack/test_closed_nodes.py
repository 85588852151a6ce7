"""Nodes that upgrades and plans closed, where no NodeUpgrade, plan or GpuStack is left that would open them."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.closed_nodes import (
    FOREIGN,
    RESERVED,
    closed,
    delete_stack,
    faults,
    keep_cache,
    look,
    refuse,
    shown,
    strip_all,
    upgraded,
)
from tests.support.pools import claimed, in_phase
from tests.support.torn import strip_stack
from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES, NODE_UPGRADES, NODES, UPGRADE_PLANS, ResourceKind
from upgrader.core.errors import ConfigurationError, ConflictError, UnreachableError
from upgrader.core.model.phases import NodePhase
from upgrader.reconcile.gpu_stack.stackless import PAUSE_SECONDS, StacklessPass
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import STACK, Rig, start_training

OFF, NOT_ON = "its driver was switched off", "its operands are not switched on"
STAYS = "nodes stay tainted by deleted NodeUpgrades, and no GpuStack selects them"
NOT_PROVEN = "its driver was switched on and was not validated"


class OutOfStep:
    def snapshot(self) -> None:
        return None


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("gone", [strip_all, delete_stack])
@pytest.mark.parametrize("restarted", [False, True], ids=["led", "while nobody led"])
@pytest.mark.parametrize("phase", [NodePhase.TAINTING, NodePhase.DRAINING])
async def test_a_node_is_opened_whose_upgrade_had_taken_nothing_away(
    rig: Rig, phase: NodePhase, gone: Callable[[Rig], None], *, restarted: bool
) -> None:
    before = await upgraded(rig, phase)
    gone(rig)
    if restarted:
        rig.restart()
    await rig.run_until(lambda: not claimed(rig), 180)
    assert shown(rig) == before
    assert [(one.reason, one.name) for one in rig.cluster.events if one.kind == "Node"][-1:] == [
        ("UpgradeDeleted", "gpu-0")
    ]
    await rig.run_until(lambda: not rig.leftovers(), 180)


async def test_a_new_node_is_opened_that_never_had_a_driver(rig: Rig) -> None:
    rig.fleet.add_node("gpu-0")
    rig.put_image("1.0")
    before = shown(rig)
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.run_until(lambda: in_phase(rig, NodePhase.TAINTING) and claimed(rig))
    rig.cluster.store.put(UPGRADE_PLANS, {"metadata": {"name": "up"}, "spec": {"stack": STACK, "targetRevision": "r"}})
    strip_all(rig)
    assert await look(rig, 2) == [(5.0, True), (PAUSE_SECONDS, False)]
    assert {**shown(rig), "labels": before["labels"]} == before
    assert not [key for key in shown(rig)["labels"] if key.startswith(f"{names.GROUP}/")]


@pytest.mark.parametrize(
    ("phase", "why"),
    [
        (NodePhase.UPGRADING, OFF),
        (NodePhase.LOADING, NOT_ON),
        (NodePhase.VALIDATING, NOT_PROVEN),
    ],
)
async def test_a_node_stays_closed_whose_driver_was_switched_off_and_is_named(
    rig: Rig, phase: NodePhase, why: str
) -> None:
    await upgraded(rig, phase)
    if phase is NodePhase.LOADING:
        await rig.run_until(lambda: shown(rig)["labels"][names.LABEL_DRIVER] != names.NONE)
    (upgrade,) = rig.upgrades("up")
    strip_all(rig)
    was = shown(rig)
    with capture_logs() as logs:
        looks = await look(rig, 4)
    assert (looks, shown(rig), faults()) == ([(5.0, True), *[(PAUSE_SECONDS, True)] * 3], was, 1.0)
    said = [one for one in logs if one["event"] == STAYS]
    assert [(one["log_level"], one["nodes"]) for one in said] == [
        ("warning", f"gpu-0: {why} (UID of the NodeUpgrade: {upgrade.metadata.uid})")
    ]
    assert said[0]["resolution"] == (
        "Apply a GpuStack that selects them, which installs the driver on them again. Or repair them manually, "
        "then run `upgrader uninstall`, which removes all labels, annotations and taints of the operator."
    )


@pytest.mark.parametrize(("pool", "claims"), [("a", [True] * 3), ("b", [True, False, False])])
async def test_the_stack_of_another_pool_keeps_no_node_closed(rig: Rig, pool: str, claims: list[bool]) -> None:
    await closed(rig)
    rig.apply_stack({**rig.make_spec("1.0"), "nodeSelector": {"pool": pool}}, "other")
    assert [claimed for _, claimed in await look(rig, 3)] == claims


async def test_a_node_that_stays_closed_is_named_beside_the_stack_of_another_pool(rig: Rig) -> None:
    await closed(rig, NodePhase.UPGRADING)
    rig.apply_stack({**rig.make_spec("1.0"), "nodeSelector": {"pool": "b"}}, "other")
    with capture_logs() as logs:
        await look(rig, 3)
    assert [one["nodes"].partition(" (")[0] for one in logs if one["event"] == STAYS] == [f"gpu-0: {OFF}"]


async def test_a_node_that_stays_closed_is_named_again_when_there_is_news_of_it(rig: Rig) -> None:
    await closed(rig, NodePhase.UPGRADING)
    loop = StacklessPass()
    with capture_logs() as logs:
        for labels in ({}, {}, {names.LABEL_DRIVER: "x"}, {}, {names.LABEL_DRIVER: names.NONE}):
            rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": labels}})
            await loop.run_pass(rig.context)
        rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"annotations": {names.ANNOTATION_CLAIMED_BY: None}}})
        await loop.run_pass(rig.context)
    said = [one["nodes"] for one in logs if one["event"] == STAYS]
    assert [text.partition(" (")[0] for text in said] == [f"gpu-0: {why}" for why in (OFF, NOT_ON, OFF)]


async def test_a_node_that_stays_closed_is_named_again_after_a_stack_came_and_went(rig: Rig) -> None:
    await closed(rig, NodePhase.UPGRADING)
    loop, looks = StacklessPass(), []
    for there in (False, False, True, False, False, False):
        rig.node_cache = OutOfStep() if len(looks) == 3 else None
        if there:
            rig.apply_stack(rig.make_spec("1.0"))
        with capture_logs() as logs:
            await loop.run_pass(rig.context)
        looks.append((sum("nodes" in one for one in logs), faults()))
        if there:
            strip_stack(rig)
    assert looks == [(0, 0.0), (1, 1.0), *[(0, 0.0)] * 3, (1, 1.0)]


async def test_a_node_that_stays_closed_is_not_read_at_each_look(rig: Rig) -> None:
    await closed(rig, NodePhase.UPGRADING)
    read, before = [], rig.cluster.get

    async def noted(kind: ResourceKind[Any], name: str, namespace: str = "") -> Any:
        read.append((kind.kind, name))
        return await before(kind, name, namespace)

    rig.cluster.get = noted  # type: ignore[method-assign]
    await look(rig, 3)
    assert ("Node", "gpu-0") not in read


async def test_the_log_names_ten_nodes_and_counts_the_others(rig: Rig) -> None:
    for number in range(12):
        rig.fleet.add_node(f"gpu-{number:02}")
        claim = {"annotations": {names.ANNOTATION_CLAIMED_BY: "v"}, "labels": {names.LABEL_DRIVER: names.NONE}}
        rig.cluster.store.change(NODES, f"gpu-{number:02}", {"metadata": claim})
    with capture_logs() as logs:
        await look(rig, 2)
    (said,) = [one["nodes"] for one in logs if "nodes" in one]
    named = [f"gpu-{number:02}: {OFF} (UID of the NodeUpgrade: v)" for number in range(10)]
    assert (said, faults()) == ("; ".join([*named, "and 2 more"]), 12.0)


async def test_a_node_that_stayed_closed_is_installed_anew_by_the_next_stack(rig: Rig) -> None:
    await closed(rig, NodePhase.UPGRADING)
    await look(rig, 2)
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await rig.stackless.run_pass(rig.context)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1, 1800)
    assert (claimed(rig), faults()) == (False, 0.0)


async def test_a_stack_between_two_looks_has_the_first_made_anew(rig: Rig) -> None:
    await closed(rig)
    loop, context = StacklessPass(), rig.context
    await loop.run_pass(context)
    rig.apply_stack(rig.make_spec("1.0"))
    await loop.run_pass(context)
    strip_stack(rig)
    assert [(await loop.run_pass(context), claimed(rig)) for _ in range(2)] == [(5.0, True), (PAUSE_SECONDS, False)]


@pytest.mark.parametrize("kind", [NODE_UPGRADES, DRIVER_IMAGES])
async def test_a_node_stays_closed_while_upgrades_or_images_cannot_be_listed(rig: Rig, kind: ResourceKind[Any]) -> None:
    await closed(rig)
    was = shown(rig)
    refuse(rig, kind, UnreachableError("no answer"))
    pauses = [pause for pause, _ in await look(rig, 3)]
    first = 15.0 if kind == NODE_UPGRADES else 5.0
    assert (pauses, shown(rig)) == ([first, 15.0, *([15.0] if kind == NODE_UPGRADES else [5.0])], was)


async def test_a_node_is_not_opened_while_the_nodes_are_out_of_step(rig: Rig) -> None:
    await closed(rig)
    rig.node_cache = OutOfStep()
    assert await look(rig, 3) == [(5.0, True)] * 3


@pytest.mark.parametrize(
    "meanwhile",
    [
        {"metadata": {"labels": {names.LABEL_DRIVER: names.NONE}}},
        {"metadata": {"annotations": {names.ANNOTATION_CLAIMED_BY: "another"}}},
    ],
    ids=["switched off", "claimed anew"],
)
async def test_a_node_is_opened_from_what_it_is_now(rig: Rig, meanwhile: Object) -> None:
    await closed(rig)
    keep_cache(rig)
    rig.cluster.store.change(NODES, "gpu-0", meanwhile)
    was = shown(rig)
    await look(rig, 3)
    assert shown(rig) == was


async def test_another_node_of_that_name_keeps_what_it_has(rig: Rig) -> None:
    await closed(rig)
    rig.cluster.store.change(NODES, "gpu-0", {"spec": {"taints": [FOREIGN, RESERVED]}})
    keep_cache(rig)
    there = rig.cluster.store.find(NODES, "gpu-0")
    rig.cluster.store.remove(NODES, "gpu-0")
    assert await look(rig, 3) == [(5.0, False), *[(PAUSE_SECONDS, False), (5.0, False)]]
    rig.cluster.store.put(NODES, {**there, "metadata": {**there["metadata"], "uid": "another"}})
    was = shown(rig)
    await look(rig, 3)
    assert shown(rig) == {**was, "taints": [FOREIGN]}  # that plan is gone, whichever node it kept free


@pytest.mark.parametrize(
    ("phase", "reason", "opened"),
    [("Failed", "RevertFailed", False), ("Failed", "NotDrained", True), ("Tainting", "", False)],
)
async def test_a_claim_is_left_to_a_node_upgrade_that_is_there(
    rig: Rig, phase: str, reason: str, *, opened: bool
) -> None:
    await upgraded(rig, NodePhase.TAINTING)
    (upgrade,) = rig.upgrades("up")
    rig.cluster.store.change(NODE_UPGRADES, upgrade.metadata.name, {"status": {"phase": phase, "reason": reason}})
    strip_stack(rig)
    looks = await look(rig, 2)
    assert looks == ([(5.0, True), (PAUSE_SECONDS, False)] if opened else [(PAUSE_SECONDS, True)] * 2)


async def test_a_node_that_a_node_upgrade_is_coming_to_is_left_to_it(rig: Rig) -> None:
    await upgraded(rig, NodePhase.TAINTING)
    strip_stack(rig)
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"annotations": {names.ANNOTATION_CLAIMED_BY: "older"}}})
    was = shown(rig)
    await look(rig, 3)
    assert shown(rig) == was


async def test_a_node_stays_closed_that_came_up_with_a_kernel_that_its_driver_is_not_for(rig: Rig) -> None:
    await closed(rig)
    rig.cluster.store.change(NODES, "gpu-0", {"status": {"nodeInfo": {"kernelVersion": "6.1.0-50-amd64"}}})
    assert await look(rig, 2) == [(5.0, True), (PAUSE_SECONDS, True)]


@pytest.mark.parametrize(
    ("error", "pause", "count"),
    [(ConfigurationError("forbidden"), 15.0, 1.0), (ConflictError("changed"), 5.0, 0.0)],
    ids=["refused", "changed meanwhile"],
)
async def test_a_node_that_cannot_be_written_now_is_tried_again(
    rig: Rig, error: Exception, pause: float, count: float
) -> None:
    await closed(rig)
    rig.cluster.store.change(NODES, "gpu-0", {"spec": {"taints": [FOREIGN, RESERVED]}})

    def refused(write: Any) -> None:
        if write.kind == NODES.kind:
            raise error

    rig.cluster.before_write = refused
    assert await look(rig, 3) == [(5.0, True), *[(pause, True)] * 2]
    assert (shown(rig)["taints"], faults()) == ([FOREIGN, RESERVED], count)


@pytest.mark.parametrize("mark", ["claim", "wait for completion"])
async def test_a_node_that_cannot_be_written_keeps_no_other_closed(rig: Rig, mark: str) -> None:
    claim = {"metadata": {"annotations": {names.ANNOTATION_CLAIMED_BY: "v"}}}
    for name in ("gpu-0", "gpu-1"):
        rig.fleet.add_node(name)
        rig.cluster.store.change(NODES, name, claim if mark == "claim" else {"spec": {"taints": [RESERVED]}})

    def refused(write: Any) -> None:
        if write.name == "gpu-0":
            raise ConfigurationError("forbidden")

    rig.cluster.before_write = refused
    loop = StacklessPass()
    assert [(await loop.run_pass(rig.context), faults()) for _ in range(2)] == [(5.0, 0.0), (15.0, 1.0)]
    kept = [bool(shown(rig, name)["annotations"] or shown(rig, name)["taints"]) for name in ("gpu-0", "gpu-1")]
    assert kept == [True, False]


async def test_a_node_kept_free_for_a_plan_that_is_gone_is_so_no_more_at_the_second_look(rig: Rig) -> None:
    await start_training(rig, nodes=2)
    rig.apply_plan("later", "r", approval=None)
    strip_stack(rig)
    for name, taint in (("gpu-0", RESERVED), ("gpu-1", RESERVED | {"value": "later"})):
        rig.cluster.store.change(NODES, name, {"spec": {"taints": [FOREIGN, taint]}})
    loop, context, looks = StacklessPass(), rig.context, []
    for _ in range(3):
        pause = await loop.run_pass(context)
        looks.append((pause, [shown(rig, name)["taints"] for name in ("gpu-0", "gpu-1")]))
    kept = [FOREIGN, RESERVED | {"value": "later"}]
    assert looks == [(5.0, [[FOREIGN, RESERVED], kept]), *[(PAUSE_SECONDS, [[FOREIGN], kept])] * 2]


async def test_a_node_stays_closed_that_is_kept_free_for_a_plan_that_is_gone(rig: Rig) -> None:
    await closed(rig, NodePhase.UPGRADING)
    maintenance = [one for one in shown(rig)["taints"] if one["key"] == names.TAINT_MAINTENANCE]
    rig.cluster.store.change(NODES, "gpu-0", {"spec": {"taints": [FOREIGN, *maintenance, RESERVED]}})
    assert await look(rig, 3) == [(5.0, True), *[(PAUSE_SECONDS, True)] * 2]
    assert shown(rig)["taints"] == [FOREIGN, *maintenance]


async def test_plans_that_cannot_be_listed_keep_no_node_closed_and_no_node_is_taken_for_forgotten(rig: Rig) -> None:
    await closed(rig)
    rig.cluster.store.change(NODES, "gpu-0", {"spec": {"taints": [FOREIGN, RESERVED]}})
    rig.fleet.add_node("gpu-1")
    rig.cluster.store.change(NODES, "gpu-1", {"spec": {"taints": [RESERVED]}})
    refuse(rig, UPGRADE_PLANS, UnreachableError("no answer"))
    assert await look(rig, 3) == [(15.0, True), *[(15.0, False)] * 2]
    assert [shown(rig, name)["taints"] for name in ("gpu-0", "gpu-1")] == [[FOREIGN], [RESERVED]]


async def test_a_mark_that_another_plan_sets_meanwhile_stays(rig: Rig) -> None:
    rig.fleet.add_node("gpu-0")
    rig.cluster.store.change(NODES, "gpu-0", {"spec": {"taints": [RESERVED]}})
    keep_cache(rig)
    rig.cluster.store.change(NODES, "gpu-0", {"spec": {"taints": [RESERVED | {"value": "later"}]}})
    await look(rig, 3)
    assert shown(rig)["taints"] == [RESERVED | {"value": "later"}]
