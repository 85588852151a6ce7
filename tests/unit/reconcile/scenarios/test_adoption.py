"""Nodes of another operator: refused until they are handed over, taken over by an upgrade, released where that fails.

The other operator is a stand-in: labels as NVIDIA's writes them, and a DaemonSet that they select. It does nothing.
"""

import json

import pytest

from tests.support.drifting import condition, plans
from tests.support.pools import full_disk, in_phase, invalid, labels_of, well
from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, NODES, PODS
from upgrader.cli.admin import adoption, uninstallation
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.phases import NodePhase
from upgrader_dev.simulated.cluster.rig import STACK, Rig

DRIVER, PLUGIN = names.LABELS_DEPLOY
ON = {DRIVER: "true", PLUGIN: "true"}


@pytest.fixture
def rig() -> Rig:
    """Two nodes, one of which another operator has, with a driver pod of its own."""
    made = Rig()
    made.fleet.add_node("gpu-0")
    made.fleet.add_node("gpu-1")
    made.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": ON}})
    template = {"spec": {"nodeSelector": {DRIVER: "true"}, "containers": [{"name": "driver"}]}}
    meta = {"name": "nvidia-driver-daemonset", "namespace": "gpu-operator"}
    made.cluster.store.put(DAEMONSETS, {"metadata": meta, "spec": {"template": template}})
    made.put_image("1.0")
    return made


def deployed(rig: Rig, name: str = "gpu-1") -> dict[str, str]:
    labels = rig.cluster.store.find(NODES, name)["metadata"]["labels"]
    return {key: value for key, value in labels.items() if key in names.LABELS_DEPLOY}


def annotations(rig: Rig, name: str = "gpu-1") -> dict[str, str]:
    return dict(rig.cluster.store.find(NODES, name)["metadata"].get("annotations", {}))


def their_pods(rig: Rig) -> int:
    return sum(pod["metadata"]["namespace"] == "gpu-operator" for pod in rig.cluster.store.copy_all(PODS))


async def pass_time(rig: Rig, seconds: int = 30) -> None:
    for _ in range(seconds):
        await rig.run_second()


async def test_a_node_of_another_operator_is_neither_installed_nor_written(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    assert [one.spec.node.name for one in rig.upgrades()] == ["gpu-0"]
    assert (labels_of(rig, "gpu-1"), deployed(rig), annotations(rig)) == ({}, ON, {})
    nobody = "no node waits for its first driver, or for a driver for a new kernel"
    alone = "1 node(s) that need a driver are excluded"
    assert condition(rig, "Installed") == ("True", "EveryNode", f"{nobody}; {alone}")


async def test_a_plan_holds_it_and_says_how_it_is_handed_over(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    rig.apply_plan("up", revision)
    await pass_time(rig, 5)
    (blocker,) = rig.plan_now("up").status.blockers
    assert (blocker.subject, blocker.reason) == ("gpu-1", "NodeNotAdopted")
    assert "`upgrader adopt gpu-1`" in blocker.message


async def test_drift_of_such_a_node_makes_no_plan(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("1.0") | {"onDrift": "Propose"})
    await pass_time(rig, 150)
    assert plans(rig) == []


async def test_handed_over_it_is_taken_with_the_write_that_switches_it_off(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    (line,) = await adoption.adopt_nodes(rig.context, ["gpu-1"], None, by="ada")
    assert line == f"node gpu-1 is handed over by ada; its first upgrade sets {DRIVER} and {PLUGIN} to false"
    before = len(rig.cluster.writes)
    await rig.run_until(lambda: labels_of(rig, "gpu-1").get(names.LABEL_DRIVER) == "none")
    assert deployed(rig) == dict.fromkeys(ON, "false")
    assert json.loads(annotations(rig)[names.ANNOTATION_ADOPTED]) == ON
    assert [one.verb for one in rig.cluster.writes[before:] if one.kind == "Node"] == ["merge", "merge"]  # taint, off
    await rig.run_until(lambda: rig.nodes_on(revision) == 2)
    await rig.settle()
    await rig.run_second()
    assert their_pods(rig) == 0
    assert condition(rig, "Adopted") == (
        "True",
        "Adopted",
        "no other operator deploys a driver or device plugin on these nodes",
    )
    assert json.loads(annotations(rig)[names.ANNOTATION_ADOPT])["by"] == "ada"


async def test_a_first_upgrade_that_fails_gives_it_back_and_the_next_takes_it_again(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    rig.fleet.pod_results = invalid
    await adoption.adopt_nodes(rig.context, ["gpu-1"], None, by="ada")
    await rig.run_until(lambda: in_phase(rig, NodePhase.FAILED))
    assert deployed(rig) == ON
    assert names.ANNOTATION_ADOPTED not in annotations(rig)
    rig.assert_nothing_left()
    rig.fleet.pod_results = well
    await rig.run_until(lambda: rig.nodes_on(revision) == 2, 1200, stride=10)
    assert deployed(rig) == dict.fromkeys(ON, "false")


async def test_what_fails_before_the_node_is_off_takes_nothing_over(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    rig.fleet.pod_results = full_disk
    await adoption.adopt_nodes(rig.context, ["gpu-1"], None, by="ada")
    await rig.run_until(lambda: in_phase(rig, NodePhase.FAILED))
    assert (deployed(rig), names.ANNOTATION_ADOPTED in annotations(rig)) == (ON, False)


async def test_all_nodes_of_a_stack_are_handed_over_at_once_and_only_once(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("1.0"))
    rig.cluster.store.change(NODES, "gpu-0", {"metadata": {"labels": {PLUGIN: "pre-installed"}}})
    lines = await adoption.adopt_nodes(rig.context, [], STACK, by="ada")
    assert lines == [
        f"node gpu-0 is handed over by ada; its first upgrade sets {PLUGIN} to false",
        f"node gpu-1 is handed over by ada; its first upgrade sets {DRIVER} and {PLUGIN} to false",
    ]
    before = len(rig.cluster.writes)
    assert await adoption.adopt_nodes(rig.context, ["gpu-1"], None, by="bob") == ["node gpu-1 is already handed over"]
    assert rig.cluster.writes[before:] == []


async def test_nothing_is_handed_over_where_there_is_nothing(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("1.0"))
    (line,) = await adoption.adopt_nodes(rig.context, ["gpu-0"], None, by="ada")
    assert line == "node gpu-0 is not managed by another operator; nothing to hand over"
    for nodes, stack in ((["gpu-7"], None), ([], "other")):
        with pytest.raises(ConfigurationError):
            await adoption.adopt_nodes(rig.context, nodes, stack, by="ada")
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {"pool": "b"}}})
    for nodes, stack in ((["gpu-1"], None), ([], STACK)):
        with pytest.raises(ConfigurationError):
            await adoption.adopt_nodes(rig.context, nodes, stack, by="ada")


async def _uninstalled(rig: Rig) -> list[str]:
    said: list[str] = []

    async def sleep(_: float) -> None:
        await rig.run_second()

    await uninstallation.uninstall_all(rig.context, patience=600, crds=False, tell=said.append, sleep=sleep)
    return said


def adoption_annotations(rig: Rig, name: str) -> dict[str, str]:
    return {key: value for key, value in annotations(rig, name).items() if key.startswith(names.GROUP)}


async def _adopted(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    await adoption.adopt_nodes(rig.context, ["gpu-1"], None, by="ada")
    await rig.settle()


async def test_uninstall_keeps_adopted_nodes_and_releases_the_others(rig: Rig) -> None:
    await _adopted(rig)
    rig.fleet.add_node("gpu-2")
    before = {names.ANNOTATION_ADOPTED: json.dumps(ON), names.ANNOTATION_ADOPT: "{}"}
    off = {names.LABEL_OPERANDS: "off", names.LABEL_SKIP: "true", **dict.fromkeys(ON, "false")}
    rig.cluster.store.change(NODES, "gpu-2", {"metadata": {"labels": off, "annotations": before}})
    said = await _uninstalled(rig)
    assert (deployed(rig, "gpu-1"), deployed(rig, "gpu-2")) == (dict.fromkeys(ON, "false"), ON)
    assert {name: json.loads(text) for name, text in adoption_annotations(rig, "gpu-1").items()} == {
        names.ANNOTATION_ADOPTED: ON
    }
    assert adoption_annotations(rig, "gpu-2") == {}
    stays = "annotation gpu-upgrader.io/adopted stays on 1 node: it stores the labels of another operator"
    assert stays in said


async def test_a_second_uninstall_changes_nothing_on_them(rig: Rig) -> None:
    """The node still has the driver of the stack loaded: the other operator must not begin beside it."""
    await _adopted(rig)
    await _uninstalled(rig)
    before = rig.nodes()
    await _uninstalled(rig)
    assert rig.nodes() == before


async def test_who_gave_it_back_by_hand_is_not_overruled_by_an_earlier_life(rig: Rig) -> None:
    """The consent went with us, so the node is refused again; handed over anew, what it says now is what is kept."""
    await _adopted(rig)
    await _uninstalled(rig)
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {DRIVER: "pre-installed"}}})
    rig.put_image("1.0")
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    assert deployed(rig) == {DRIVER: "pre-installed", PLUGIN: "false"}
    assert rig.nodes_on(revision) == 1
    await adoption.adopt_nodes(rig.context, ["gpu-1"], None, by="bob")
    assert json.loads(annotations(rig)[names.ANNOTATION_ADOPTED]) == {PLUGIN: "true"}
    await rig.run_until(lambda: rig.nodes_on(revision) == 2)
    assert deployed(rig) == dict.fromkeys(ON, "false")
    assert json.loads(annotations(rig)[names.ANNOTATION_ADOPTED]) == {DRIVER: "pre-installed", PLUGIN: "true"}


async def test_uninstall_forgets_what_was_taken_over_where_somebody_has_set_it_since(rig: Rig) -> None:
    await _adopted(rig)
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": ON}})
    await _uninstalled(rig)
    assert (deployed(rig), adoption_annotations(rig, "gpu-1")) == (ON, {})
