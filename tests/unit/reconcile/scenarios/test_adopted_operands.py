"""Other operands of another operator on adopted nodes: paused while the driver is unloaded, and running again on every
way out; and a take-over that fails again and again, which waits for a user.

The other operator is a stand-in: labels as NVIDIA's writes them, and DaemonSets that they select.
"""

import json

import pytest

from tests.support.drifting import condition
from tests.support.pools import in_phase, invalid, labels_of, well
from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, NODE_UPGRADES, NODES, PODS
from upgrader.cli.admin import adoption, uninstallation
from upgrader.core.gpu_stack.adoption import PAUSED
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig

DRIVER, PLUGIN = names.LABELS_DEPLOY
DCGM, EXPORTER, MIG = (f"nvidia.com/gpu.deploy.{name}" for name in ("dcgm", "dcgm-exporter", "mig-manager"))
ON = {DRIVER: "true", PLUGIN: "true", DCGM: "true", EXPORTER: "true", MIG: "false"}
TAKEN = ON | {DRIVER: "false", PLUGIN: "false"}
HELD = TAKEN | {DCGM: PAUSED, EXPORTER: PAUSED}


@pytest.fixture
def rig() -> Rig:
    """A node that another operator has, with pods of its own for driver and DCGM."""
    made = Rig()
    made.steps_at_once = 1  # seen in every phase
    made.fleet.add_node("gpu-1")
    made.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": ON}})
    for name, key in (("nvidia-driver-daemonset", DRIVER), ("nvidia-dcgm", DCGM)):
        template = {"spec": {"nodeSelector": {key: "true"}, "containers": [{"name": "operand"}]}}
        meta = {"name": name, "namespace": "gpu-operator"}
        made.cluster.store.put(DAEMONSETS, {"metadata": meta, "spec": {"template": template}})
    made.put_image("1.0")
    return made


def deployed(rig: Rig) -> dict[str, str]:
    labels = rig.cluster.store.find(NODES, "gpu-1")["metadata"]["labels"]
    return {key: value for key, value in labels.items() if key in ON}


def record(rig: Rig) -> dict[str, str] | None:
    text = rig.cluster.store.find(NODES, "gpu-1")["metadata"].get("annotations", {}).get(names.ANNOTATION_ADOPTED)
    return json.loads(text) if text is not None else None


def their_pods(rig: Rig) -> set[str]:
    pods = (pod["metadata"] for pod in rig.cluster.store.copy_all(PODS))
    return {meta["name"].split(".")[0] for meta in pods if meta["namespace"] == "gpu-operator"}


def phase(rig: Rig) -> NodePhase | None:
    """The phase of the first upgrade."""
    return next((upgrade.status.phase for upgrade in rig.upgrades()), None)


async def pass_time(rig: Rig, seconds: int = 30) -> None:
    for _ in range(seconds):
        await rig.run_second()


async def adopt(rig: Rig, *, by: str = "ada") -> str:
    (line,) = await adoption.adopt_nodes(rig.context, ["gpu-1"], None, by=by)
    return line


async def adopted(rig: Rig) -> str:
    """The node runs the stack; gives its revision."""
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    await adopt(rig)
    await rig.run_until(lambda: rig.nodes_on(revision) == 1)
    return revision


# ------------------------------------------------------------------------------- paused, and running again


async def test_they_are_paused_while_the_driver_is_unloaded_and_run_again_with_the_new_one(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    assert their_pods(rig) == {"nvidia-driver-daemonset", "nvidia-dcgm"}
    await adopt(rig)
    await rig.run_until(lambda: phase(rig) is NodePhase.UPGRADING)
    assert (deployed(rig), their_pods(rig)) == (HELD, set())
    assert record(rig) == {key: value for key, value in ON.items() if value == "true"}
    await rig.run_until(lambda: labels_of(rig, "gpu-1").get(names.LABEL_OPERANDS) == "on")
    assert (deployed(rig), record(rig)) == (TAKEN, {DRIVER: "true", PLUGIN: "true"})
    await rig.run_until(lambda: rig.nodes_on(revision) == 1)
    await rig.run_second()
    assert their_pods(rig) == {"nvidia-dcgm"}


@pytest.mark.parametrize("operand", ["nvidia-driver-daemonset", "nvidia-dcgm"])
async def test_the_driver_is_not_unloaded_before_their_pods_have_ended(rig: Rig, operand: str) -> None:
    rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    (other_pod,) = [pod for pod in rig.cluster.store.copy_all(PODS) if pod["metadata"]["name"].startswith(operand)]
    rig.others.append(lambda: rig.cluster.store.put(PODS, other_pod))  # it does not end
    await adopt(rig)
    await rig.run_until(lambda: in_phase(rig, NodePhase.UNLOADING))
    await pass_time(rig, 60)
    (upgrade,) = rig.upgrades()
    waits = (NodePhase.UNLOADING, "waiting for 1 pod(s) of another operator to end")
    assert (upgrade.status.phase, upgrade.status.message) == waits
    rig.others.clear()
    rig.cluster.store.remove(PODS, other_pod["metadata"]["name"], "gpu-operator")
    await rig.settle()


async def test_a_label_that_a_user_sets_meanwhile_keeps_the_value_of_the_user(rig: Rig) -> None:
    revision = rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    await adopt(rig)
    await rig.run_until(lambda: phase(rig) is NodePhase.UPGRADING)
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {EXPORTER: "false"}}})
    await rig.run_until(lambda: rig.nodes_on(revision) == 1)
    assert (deployed(rig), record(rig)) == (TAKEN | {EXPORTER: "false"}, {DRIVER: "true", PLUGIN: "true"})


async def test_one_that_is_switched_on_before_the_driver_is_unloaded_is_paused_again(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    await adopt(rig)
    await rig.run_until(lambda: deployed(rig) == HELD)
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": {DCGM: "true"}}})
    await rig.run_until(lambda: phase(rig) is NodePhase.UPGRADING)
    assert deployed(rig) == HELD


async def test_a_later_upgrade_pauses_them_too(rig: Rig) -> None:
    await adopted(rig)
    rig.put_image("2.0")
    revision = rig.apply_stack(rig.make_spec("2.0"))
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: bool(rig.upgrades("up")) and rig.upgrades("up")[0].status.phase is NodePhase.UPGRADING)
    assert (deployed(rig), their_pods(rig)) == (HELD, set())
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED
    assert (deployed(rig), record(rig)) == (TAKEN, {DRIVER: "true", PLUGIN: "true"})


async def test_a_later_upgrade_that_reverts_pauses_them_twice_and_they_run_again(rig: Rig) -> None:
    await adopted(rig)
    rig.put_image("2.0")

    def fails_forward(component: str, pod: Object) -> OrderResult | None:
        forward = component == "validate" and pod["metadata"]["name"].startswith("validate-")
        return OrderResult(reason=Reason.DEVICE_FAILED, message="GPU 3 is gone") if forward else None

    rig.fleet.pod_results = fails_forward
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0")))
    await rig.run_until(lambda: bool(rig.upgrades("up")) and rig.upgrades("up")[0].status.phase is NodePhase.VALIDATING)
    assert deployed(rig) == TAKEN
    await rig.run_until(lambda: rig.upgrades("up")[0].status.reverting)
    await rig.run_until(lambda: rig.upgrades("up")[0].status.phase is NodePhase.UPGRADING)
    assert deployed(rig) == HELD
    await rig.run_until(lambda: rig.upgrades("up")[0].status.phase is NodePhase.FAILED, 900)
    assert (deployed(rig), record(rig)) == (TAKEN, {DRIVER: "true", PLUGIN: "true"})
    assert labels_of(rig, "gpu-1")[names.LABEL_OPERANDS] == "on"


async def test_a_node_whose_revert_failed_stays_paused_until_it_is_installed_again(rig: Rig) -> None:
    await adopted(rig)
    rig.put_image("2.0")
    rig.fleet.pod_results = invalid
    revision = rig.apply_stack(rig.make_spec("2.0"))
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: any(one.status.reason == "RevertFailed" for one in rig.upgrades("up")), 3000, stride=5)
    assert deployed(rig) == HELD
    rig.fleet.pod_results = well
    (failed,) = rig.upgrades("up")
    rig.cluster.store.remove(NODE_UPGRADES, failed.metadata.name)
    await rig.run_until(lambda: labels_of(rig, "gpu-1").get(names.LABEL_OPERANDS) == "on", 1200, stride=5)
    assert (deployed(rig), record(rig)) == (TAKEN, {DRIVER: "true", PLUGIN: "true"})


async def test_uninstall_starts_those_that_are_still_paused(rig: Rig) -> None:
    await adopted(rig)
    kept = {names.ANNOTATION_ADOPTED: json.dumps({key: value for key, value in ON.items() if value == "true"})}
    rig.cluster.store.change(NODES, "gpu-1", {"metadata": {"labels": HELD, "annotations": kept}})

    async def sleep(_: float) -> None:
        await rig.run_second()

    await uninstallation.uninstall_all(rig.context, patience=600, crds=False, tell=lambda _: None, sleep=sleep)
    assert (deployed(rig), record(rig)) == (TAKEN, {DRIVER: "true", PLUGIN: "true"})


# ------------------------------------------------------------------------------- a take-over that fails


async def failed_twice(rig: Rig) -> None:
    """Two upgrades that take the node over have failed."""
    rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    rig.fleet.pod_results = invalid
    await adopt(rig)
    await rig.run_until(
        lambda: {one.spec.attempt for one in rig.upgrades()} == {2} and in_phase(rig, NodePhase.FAILED), 3000
    )


async def test_a_take_over_that_failed_gives_back_what_it_paused(rig: Rig) -> None:
    rig.apply_stack(rig.make_spec("1.0"))
    await pass_time(rig)
    rig.fleet.pod_results = invalid
    await adopt(rig)
    await rig.run_until(lambda: in_phase(rig, NodePhase.FAILED))
    assert (deployed(rig), record(rig)) == (ON, None)


async def test_after_two_failures_it_waits_for_a_user_and_says_how_it_continues(rig: Rig) -> None:
    await failed_twice(rig)
    writes = len(rig.cluster.writes)
    await _long(rig)
    assert [one.spec.attempt for one in rig.upgrades()] == [2]
    assert not [
        one for one in rig.cluster.writes[writes:] if one.kind in {"Node", "NodeUpgrade"} and one.verb == "create"
    ]
    assert deployed(rig) == ON
    status, reason, message = condition(rig, "Installed")
    assert (status, reason) == ("False", "AdoptionFailed")
    assert "Install NotValid, attempt 2" in message
    assert message.endswith("(continue with `upgrader adopt gpu-1`)")
    assert condition(rig, "Adopted")[:2] == ("False", "AdoptionFailed")
    assert "run `upgrader adopt` again" in condition(rig, "Adopted")[2]


async def _long(rig: Rig) -> None:
    for _ in range(120):
        rig.cluster.clock.advance(30)
        await rig.run_second()


async def test_the_user_hands_it_over_again_and_the_attempts_begin_anew_without_a_pause(rig: Rig) -> None:
    await failed_twice(rig)
    await _long(rig)
    assert await adopt(rig, by="bob") == (
        f"node gpu-1 is handed over again by bob; its first upgrade sets {DRIVER} and {PLUGIN} to false"
    )
    await pass_time(rig, 5)
    (begun,) = [one for one in rig.upgrades() if one.status.phase is not NodePhase.FAILED]
    assert begun.spec.attempt == 1
    assert await adopt(rig) == "node gpu-1 is already handed over"
    rig.fleet.pod_results = well
    await rig.run_until(lambda: labels_of(rig, "gpu-1").get(names.LABEL_REVISION) is not None, 1200)
    assert deployed(rig) == TAKEN
    await rig.run_until(lambda: condition(rig, "Installed")[0] == "True")
    assert condition(rig, "Adopted")[:2] == ("True", "Adopted")
