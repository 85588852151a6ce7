"""Nodes that are rebooted if their driver cannot be unloaded: their pods are judged and end as before any reboot."""

import json

import pytest

from tests.support.drifting import reboots
from tests.support.two_kernels import NEXT, NOW, reboot_into, rig_with_gang
from upgrader.api.resources import JOBS, NODES, PODS
from upgrader.api.v1alpha1 import RebootState
from upgrader.core.model.phases import NodePhase, PlanPhase
from upgrader.core.node_protocol.orders import FORMER_BOOT, ORDER_VARIABLE, OrderResult, Reason
from upgrader.stack.naming import upgrade_name
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig

REBOOT = reboot_into(NOW)


@pytest.fixture
async def rig() -> Rig:
    return await rig_with_gang(nodes=1)


def start(rig: Rig, version: str = "2.0", *, action: str = "Reboot", **spec: str) -> None:
    wanted = rig.make_spec(version, **spec)
    wanted["driver"]["onUnloadFailure"] = action
    rig.apply_plan("up", rig.apply_stack(wanted | {"reboot": REBOOT}))


def jobs(rig: Rig) -> list[Object]:
    """The upgrade Jobs of the plan."""
    names_of_jobs = {upgrade_name(upgrade, reverting=False) for upgrade in rig.upgrades("up")}
    return [job for job in rig.cluster.store.copy_all(JOBS) if job["metadata"]["name"] in names_of_jobs]


def pods(rig: Rig) -> set[str]:
    return {pod["metadata"]["name"] for pod in rig.cluster.store.copy_all(PODS)}


async def completed(rig: Rig) -> bool:
    await rig.run_until(lambda: rig.is_over("up"))
    return rig.plan_now("up").status.phase is PlanPhase.COMPLETED


async def test_a_pod_that_no_owner_creates_again_blocks_the_node_before_any_request(rig: Rig) -> None:
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=0)
    start(rig)
    await rig.run_until(lambda: bool(rig.plan_now("up").status.blockers))
    (blocker,) = rig.plan_now("up").status.blockers
    assert (blocker.subject, blocker.reason, rig.requests()) == ("default/Pod/solo", "GangUndeclared", [])
    assert "but a reboot, in case the driver cannot be unloaded, of gpu-0 would end solo;" in blocker.message
    rig.cluster.store.remove(PODS, "solo", "default")
    assert await completed(rig), rig.describe_state()


async def test_the_upgrade_records_the_reboot_evicts_and_does_not_reboot_a_node_whose_driver_is_unloaded(
    rig: Rig,
) -> None:
    rig.fleet.add_replica("web", node="gpu-0", gpus=0)
    start(rig)
    await rig.run_until(lambda: rig.upgrades("up") and rig.upgrades("up")[0].status.phase is NodePhase.UPGRADING)
    (upgrade,) = rig.upgrades("up")
    assert upgrade.spec.reboot == RebootState(
        source=NOW, target=NOW, select=["/sbin/choose"], restart=["/sbin/reboot"], when="UnloadFailed"
    )
    assert "web" not in pods(rig)
    await rig.run_until(lambda: bool(jobs(rig)))
    (job,) = jobs(rig)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    order = json.loads(next(entry["value"] for entry in container["env"] if entry["name"] == ORDER_VARIABLE))
    assert (order["reboot"]["kernel"], order["reboot"]["only_after_failed_unload"]) == (NOW, True)
    assert await completed(rig), rig.describe_state()
    assert (rig.fleet.reboots, rig.fleet.trainers["gang"].lost) == ([], 0)
    rig.assert_nothing_left()


@pytest.mark.parametrize(("version", "action", "spec"), [("2.0", "Fail", {}), ("1.0", "Reboot", {"kubelet": "1.35.4"})])
async def test_pods_without_gpus_stay_without_this_setting_and_in_an_upgrade_that_keeps_the_driver(
    rig: Rig, version: str, action: str, spec: dict[str, str]
) -> None:
    rig.fleet.add_bare_pod("solo", node="gpu-0", gpus=0)
    start(rig, version, action=action, **spec)
    assert await completed(rig), rig.describe_state()
    assert ([upgrade.spec.reboot for upgrade in rig.upgrades("up")], "solo" in pods(rig)) == ([None], True)


async def test_a_node_whose_driver_cannot_be_unloaded_is_rebooted_once_and_its_upgrade_continues(rig: Rig) -> None:
    rig.fleet.stuck_drivers = {"gpu-0"}
    rig.fleet.shows_boot_after = 30
    rig.fleet.add_replica("web", node="gpu-0", gpus=0)
    start(rig)
    assert await completed(rig), rig.describe_state()
    (upgrade,) = rig.upgrades("up")
    assert (rig.fleet.reboots, upgrade.status.phase, upgrade.status.reverting) == (
        [("gpu-0", NOW)],
        NodePhase.SUCCEEDED,
        False,
    )
    assert rig.fleet.trainers["gang"].lost == 0
    rig.assert_nothing_left()


async def test_without_this_setting_such_an_upgrade_fails_and_nothing_reboots(rig: Rig) -> None:
    rig.fleet.stuck_drivers = {"gpu-0"}
    start(rig, action="Fail")
    await rig.run_until(lambda: rig.upgrades("up") and rig.upgrades("up")[0].status.reverting)
    assert (rig.upgrades("up")[0].status.reason, rig.fleet.reboots) == ("UpgradeFailed", [])


async def test_a_node_object_that_shows_the_boot_before_is_not_validated(rig: Rig) -> None:
    def pod_results(component, _):
        facts = {FORMER_BOOT: boot}
        return OrderResult(reason=Reason.DONE, message="rebooted", facts=facts) if component == "upgrade" else None

    boot = rig.nodes()[0]["status"]["nodeInfo"]["bootID"]
    rig.fleet.pod_results = pod_results
    start(rig)
    await rig.run_until(lambda: rig.upgrades("up") and rig.upgrades("up")[0].status.phase is NodePhase.UPGRADING)
    for _ in range(40):
        await rig.run_second()
        assert rig.upgrades("up")[0].status.phase is NodePhase.UPGRADING
    reboots(rig, "gpu-0", boot="boot-2", kernel=NOW)
    assert await completed(rig), rig.describe_state()


async def test_a_node_that_boots_another_kernel_is_reverted(rig: Rig) -> None:
    start(rig)
    await rig.run_until(lambda: rig.upgrades("up") and rig.upgrades("up")[0].status.phase is NodePhase.LOADING)
    reboots(rig, "gpu-0", boot="boot-2", kernel=NEXT)
    await rig.run_until(lambda: rig.upgrades("up")[0].status.phase is NodePhase.FAILED)
    assert rig.upgrades("up")[0].status.reason == "KernelChanged"


async def test_a_node_that_does_not_return_is_reported_with_the_reboot(rig: Rig) -> None:
    rig.fleet.hangs = lambda _: True
    start(rig)
    await rig.run_until(lambda: rig.upgrades("up") and rig.upgrades("up")[0].status.phase is NodePhase.UPGRADING)
    away = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    rig.cluster.store.change(NODES, "gpu-0", away)
    why = "the node is not Ready: it does not respond, or has not returned from a reboot after a failed unload"
    await rig.run_until(lambda: rig.upgrades("up")[0].status.message == why)
    await rig.run_until(lambda: rig.upgrades("up")[0].status.reverting, 3000, stride=5)
    assert rig.upgrades("up")[0].status.reason == "UpgradingLate"
