"""Services beside the driver in a whole rollout: their containers exist, and end before the driver is unloaded."""

import pytest

from upgrader.api import names
from upgrader.api.resources import PODS
from upgrader.core.model.phases import PlanPhase
from upgrader.core.node_protocol.driver_services import SERVICES_LABEL
from upgrader_dev.simulated.apiserver.store import ObjectChange
from upgrader_dev.simulated.cluster.rig import Rig, start_training


@pytest.fixture
def rig() -> Rig:
    """All driver images of the registry contain services."""
    rig = Rig()
    for version in ("1.0", "2.0"):
        rig.put_image(version)
    rig.registry.labels_of = {pinned: {SERVICES_LABEL: "fabricmanager,persistenced"} for pinned in rig.registry.digests}
    return rig


def driver_containers(rig: Rig, node: str) -> list[list[str]]:
    """The names of the containers of each driver pod on a node."""
    return [
        [container["name"] for container in pod["spec"]["containers"]]
        for pod in rig.cluster.store.copy_all(PODS)
        if pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "driver" and pod["spec"]["nodeName"] == node
    ]


async def test_no_service_is_left_on_a_node_when_its_driver_is_unloaded(rig: Rig) -> None:
    revision = await start_training(rig)
    beside_upgrades: dict[str, list[list[str]]] = {}

    def see_upgrade_pod(change: ObjectChange) -> None:
        pod = change.after
        if change.kind is not PODS or change.before is not None or pod is None:
            return
        if pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "upgrade":
            node = pod["spec"]["nodeName"]
            beside_upgrades[node] = driver_containers(rig, node)

    expected = {node: [["driver", "fabricmanager", "persistenced"]] for node in ("gpu-0", "gpu-1")}
    assert {node: driver_containers(rig, node) for node in expected} == expected
    rig.cluster.store.listeners.append(see_upgrade_pod)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert beside_upgrades == {"gpu-0": [], "gpu-1": []}
    assert {node: driver_containers(rig, node) for node in expected} == expected
