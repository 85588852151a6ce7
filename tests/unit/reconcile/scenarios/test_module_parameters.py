"""Parameters of the driver's modules in virtual time: changed by a plan only, by an unload of the same driver."""

from typing import Any

import msgspec
import pytest

from tests.support.pools import pool
from upgrader.api import names
from upgrader.api.resources import JOBS
from upgrader.core.model.phases import PlanPhase
from upgrader.core.node_protocol.orders import (
    ORDER_VARIABLE,
    ModuleParameters,
    NodeDriver,
    OrderResult,
    Reason,
    UpgradeOrder,
)
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.apiserver.store import ObjectChange
from upgrader_dev.simulated.cluster.rig import Rig

WANTED = {"nvidia.NVreg_X": "1"}


@pytest.fixture
async def rig() -> Rig:
    """Two nodes on driver 1.0 with a gang over both."""
    made = Rig()
    await pool(made, nodes=2, images=("1.0", "2.0"))
    made.fleet.add_job("gang", members=2, gpus=8)
    await made.run_until(lambda: made.fleet.trainers["gang"].step > 10)
    return made


def with_parameters(rig: Rig, **parameters: str) -> dict[str, Any]:
    spec, named = rig.make_spec("1.0"), {f"nvidia.{name}": value for name, value in parameters.items()}
    return spec | {"driver": spec["driver"] | {"parameters": named}}


def drift(rig: Rig) -> dict[str, int]:
    return {row.reason: row.nodes for row in rig.stack_now().status.drift}


def on_nodes(rig: Rig) -> set[str | None]:
    return {node["metadata"].get("annotations", {}).get(names.ANNOTATION_PARAMETERS) for node in rig.nodes()}


def order_of(job: Object) -> UpgradeOrder:
    (variable,) = [
        entry["value"]
        for entry in job["spec"]["template"]["spec"]["containers"][0]["env"]
        if entry["name"] == ORDER_VARIABLE
    ]
    return msgspec.json.decode(variable, type=UpgradeOrder)


def ordered_upgrades(rig: Rig) -> list[UpgradeOrder]:
    """The orders of upgrade Jobs that are created from now on."""
    orders: list[UpgradeOrder] = []

    def record_order(change: ObjectChange) -> None:
        created = change.after if change.before is None and change.kind.kind == JOBS.kind else None
        if created is not None and created["metadata"]["name"].startswith("upgrade-"):
            orders.append(order_of(created))

    rig.cluster.store.listeners.append(record_order)
    return orders


async def test_they_wait_for_a_plan_and_the_same_driver_is_loaded_anew(rig: Rig) -> None:
    revision = rig.apply_stack(with_parameters(rig, NVreg_X="1"))
    await rig.run_until(lambda: drift(rig) == {"ModuleParameters": 2})
    assert (rig.upgrades("up"), rig.fleet.trainers["gang"].stops) == ([], 0)
    orders = ordered_upgrades(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: rig.is_over("up"))
    assert rig.plan_now("up").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert (rig.nodes_on(revision), rig.fleet.trainers["gang"].stops, rig.fleet.trainers["gang"].lost) == (2, 2, 0)
    assert [(order.unload, order.parameters) for order in orders] == [
        (NodeDriver(vendor="sim", version="1.0"), ModuleParameters(vendor="sim", values=WANTED))
    ] * 2
    assert on_nodes(rig) == {'{"nvidia.NVreg_X":"1"}'}
    assert drift(rig) == {}
    rig.assert_nothing_left()


async def test_a_plan_takes_them_back(rig: Rig) -> None:
    rig.apply_plan("up", rig.apply_stack(with_parameters(rig, NVreg_X="1")))
    await rig.run_until(lambda: rig.is_over("up"))
    rig.apply_plan("off", rig.apply_stack(rig.make_spec("1.0")))
    await rig.run_until(lambda: rig.is_over("off"))
    assert rig.plan_now("off").status.phase is PlanPhase.COMPLETED, rig.describe_state()
    assert on_nodes(rig) == {None}
    assert {str(upgrade.spec.source.module_parameters) for upgrade in rig.upgrades("off")} == {str(WANTED)}


async def test_a_node_that_fails_gets_the_former_ones_back(rig: Rig) -> None:
    def fails_forward(component: str, pod: Object) -> OrderResult | None:
        forward = component == "validate" and pod["metadata"]["name"].startswith("validate-gpu-1")
        return OrderResult(reason=Reason.DRIVER_MISMATCH, message="NVreg_X is 0") if forward else None

    rig.apply_plan("up", rig.apply_stack(with_parameters(rig, NVreg_X="0")))
    await rig.run_until(lambda: rig.is_over("up"))
    rig.fleet.pod_results = fails_forward
    rig.apply_plan("on", rig.apply_stack(with_parameters(rig, NVreg_X="1")))
    await rig.run_until(lambda: rig.plan_now("on").status.phase is PlanPhase.PAUSED, 3000, stride=5)
    await rig.run_until(lambda: all(request.status.phase == "Restored" for request in rig.requests()), 3000, stride=5)
    assert on_nodes(rig) == {'{"nvidia.NVreg_X":"0"}'}
    assert rig.fleet.trainers["gang"].lost == 0


async def test_an_upgrade_without_any_removes_those_that_the_disk_may_have(rig: Rig) -> None:
    """A node that was released keeps the file, and its Node has no annotation any more."""
    orders = ordered_upgrades(rig)
    rig.apply_plan("up", rig.apply_stack(rig.make_spec("2.0")))
    await rig.run_until(lambda: rig.is_over("up"))
    assert [order.parameters for order in orders] == [ModuleParameters(vendor="sim", values={})] * 2
