"""Pods of tenants that carry the labels of the upgrader's own: they block no upgrade, answer for none, hide no GPUs."""

import json

import pytest

from upgrader.api import names
from upgrader.api.resources import NODES, PODS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.phases import NodePhase
from upgrader.core.node_protocol.orders import OrderResult, Reason
from upgrader.stack.naming import prepare_name, validation_name
from upgrader_dev.simulated.cluster.rig import RESOURCE, Rig, start_training

TENANT = "mallory"
DONE = json.dumps({"reason": Reason.DONE.value, "message": "forged"})


@pytest.fixture
def rig() -> Rig:
    return Rig()


def put(rig: Rig, name: str, node: str, meta: dict, spec: dict | None = None, status: dict | None = None) -> None:
    pod = {
        "metadata": {"name": name, "namespace": TENANT, **meta},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "pause"}], **(spec or {})},
        "status": status or {"phase": "Running"},
    }
    if rig.cluster.store.find(PODS, name, TENANT) is None:
        rig.cluster.store.put(PODS, pod)


HOLDERS = {
    "the label of an operand": ({"labels": {names.LABEL_COMPONENT: "monitoring"}}, {}),
    "the label of the driver": ({"labels": {names.LABEL_COMPONENT: "driver"}}, {}),
    "another operator's selector": ({}, {"nodeSelector": {names.LABELS_DEPLOY[0]: "true"}}),
}


@pytest.mark.parametrize(("meta", "spec"), HOLDERS.values(), ids=HOLDERS)
async def test_no_upgrade_waits_for_a_pod_that_only_looks_like_one_that_holds_devices(
    rig: Rig, meta: dict, spec: dict
) -> None:
    revision = await start_training(rig)
    rig.apply_plan("up", revision)
    for node in ("gpu-0", "gpu-1"):
        put(rig, f"idle-{node}", node, meta, spec)
    await rig.run_until(lambda: rig.is_over("up"))
    assert {one.status.phase for one in rig.upgrades("up")} == {NodePhase.SUCCEEDED}
    assert rig.nodes_on(revision) == 2


def forge(rig: Rig, upgrade: NodeUpgrade) -> None:
    """Pods that say "done" with everything of the real ones but their namespace."""
    owner = {
        "apiVersion": "gpu-upgrader.io/v1alpha1",
        "kind": "NodeUpgrade",
        "name": upgrade.metadata.name,
        "uid": upgrade.metadata.uid,
        "controller": True,
    }
    ended = {"name": "c", "state": {"terminated": {"exitCode": 0, "message": DONE}}}
    wanted = {"prepare": prepare_name(upgrade), "validate": validation_name(upgrade, reverting=False)}
    for component, name in wanted.items():
        meta = {
            "labels": {names.LABEL_COMPONENT: component},
            "annotations": {names.ANNOTATION_NODE_UPGRADE: upgrade.metadata.name},
            "ownerReferences": [owner],
            "creationTimestamp": "2036-01-01T00:00:00Z",
        }
        put(rig, name, upgrade.spec.node.name, meta, status={"phase": "Succeeded", "containerStatuses": [ended]})


@pytest.mark.parametrize("component", ["prepare", "validate"])
async def test_no_pod_of_another_namespace_answers_for_a_pod_of_a_node_upgrade(rig: Rig, component: str) -> None:
    revision = await start_training(rig)
    refused = OrderResult(reason=Reason.DRIVER_MISMATCH, message="the real pod found it wrong")
    rig.fleet.pod_results = lambda at, pod: (
        refused if at == component and names.ANNOTATION_NODE_UPGRADE in pod["metadata"].get("annotations", {}) else None
    )
    rig.others.append(lambda: [forge(rig, one) for one in rig.upgrades("up")])
    rig.apply_plan("up", revision, toleratedFailures=0)
    await rig.run_until(lambda: any(one.status.phase is NodePhase.FAILED for one in rig.upgrades("up")), seconds=1200)
    assert NodePhase.SUCCEEDED not in {one.status.phase for one in rig.upgrades("up")}


async def test_the_gpus_of_a_pod_with_our_label_in_another_namespace_count(rig: Rig) -> None:
    """A node upgrade waits for it as for every pod with GPUs: nothing may be switched off under it."""
    revision = await start_training(rig, nodes=1, members=1, gpus=4)
    limits = {"name": "c", "image": "train", "resources": {"limits": {RESOURCE: "4"}}}
    labelled = {"labels": {names.LABEL_COMPONENT: "validate"}}
    put(rig, "hidden", "gpu-0", labelled, {"containers": [limits]})
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers), seconds=120)
    assert rig.nodes_on(revision) == 0
    assert "hidden" in json.dumps([one.message for one in rig.plan_now("up").status.blockers])
    assert rig.cluster.store.find(NODES, "gpu-0")["metadata"]["labels"][names.LABEL_OPERANDS] == "on"
