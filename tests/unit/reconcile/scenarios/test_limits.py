"""Limits of a stack in its upgrades: recorded at their creation, and followed by deadlines, pods and stopped gangs."""

import json
from typing import Any

import pytest

from upgrader.api.resources import JOBS, PODS, ResourceKind
from upgrader.core import timing
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.core.model.upgrade_limits import UpgradeLimits, gang_stop_seconds
from upgrader.core.node_protocol.orders import ORDER_VARIABLE
from upgrader.stack.naming import upgrade_name, validation_name
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import Rig, start_training

LIMITS = {
    "unloadingSeconds": 400,
    "driverUnloadSeconds": 700,
    "upgradingSeconds": 9000,
    "loadingSeconds": 1000,
    "validatingSeconds": 5000,
}
RECORDED = UpgradeLimits(
    unloading_seconds=400,
    driver_unload_seconds=700,
    upgrading_seconds=9000,
    loading_seconds=1000,
    validating_seconds=5000,
)


def steps(rig: Rig) -> dict[NodePhase, int]:
    """The seconds from the start of each phase to its deadline."""
    (upgrade,) = rig.upgrades("up")
    return {
        step.name: round((timing.parse_time(step.deadline) - timing.parse_time(step.started_at)).total_seconds())
        for step in upgrade.status.steps
    }


def objects(rig: Rig, kind: ResourceKind[Any]) -> dict[str, Object]:
    return {found["metadata"]["name"]: found for found in rig.cluster.store.copy_all(kind)}


@pytest.fixture
async def rig() -> Rig:
    """A gang that trains on one node, and a plan with limits of its own that has begun."""
    made = Rig()
    made.steps_at_once = 1
    await start_training(made, nodes=1, members=1)
    revision = made.apply_stack(made.make_spec("2.0", plugin="2", kubelet="1.35.4") | {"limits": LIMITS})
    made.apply_plan("up", revision)
    await made.run_until(lambda: bool(made.upgrades("up")))
    return made


async def test_a_node_upgrade_keeps_the_limits_of_its_creation_and_follows_them(rig: Rig) -> None:
    (upgrade,) = rig.upgrades("up")
    assert upgrade.spec.limits == RECORDED
    rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))
    await rig.run_until(lambda: steps(rig).keys() >= {NodePhase.VALIDATING})
    limited = (NodePhase.UNLOADING, NodePhase.UPGRADING, NodePhase.LOADING, NodePhase.VALIDATING)
    assert [steps(rig)[phase] for phase in limited] == [400, 9000, 1000, 5000]
    await rig.run_until(lambda: rig.is_over("up"))
    rig.assert_nothing_left()


async def test_its_job_and_its_validation_pod_end_before_their_phases(rig: Rig) -> None:
    (upgrade,) = rig.upgrades("up")
    job_name, pod_name = upgrade_name(upgrade, reverting=False), validation_name(upgrade, reverting=False)
    await rig.run_until(lambda: job_name in objects(rig, JOBS))
    job = objects(rig, JOBS)[job_name]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    order = next(json.loads(one["value"]) for one in container["env"] if one["name"] == ORDER_VARIABLE)
    assert (job["spec"]["activeDeadlineSeconds"], order["unload_timeout"]) == (8940, 700)
    await rig.run_until(lambda: pod_name in objects(rig, PODS))
    assert objects(rig, PODS)[pod_name]["spec"]["activeDeadlineSeconds"] == 4940


async def test_its_gang_stays_stopped_as_long_as_upgrade_and_revert_may_take(rig: Rig) -> None:
    await rig.run_until(lambda: [one.status.phase for one in rig.requests()] == [RequestPhase.STOPPING])
    (request,) = rig.requests()
    stopped, restart = request.status.stopped_at, request.status.restart_by
    assert stopped is not None
    assert restart is not None
    seconds = (timing.parse_time(restart) - timing.parse_time(stopped)).total_seconds()
    assert seconds == gang_stop_seconds([RECORDED]) == 1800 + 2 * (400 + 9000 + 1000 + 5000) + 600 + 600
    await rig.run_until(lambda: [one.status.phase for one in rig.requests()] == [RequestPhase.STOPPED])
    (request,) = rig.requests()
    assert timing.parse_time(request.status.deadline or "") >= timing.parse_time(restart)


async def test_a_gang_is_not_restarted_while_a_slow_upgrade_reverts_within_its_limits(rig: Rig) -> None:
    """The upgrade Job hangs in both directions, for longer than the default limits would leave a gang stopped."""
    rig.fleet.hangs = lambda pod: pod["metadata"]["name"].startswith(("upgrade-", "revert-", "validate-"))
    await rig.run_until(lambda: rig.upgrades("up")[0].status.phase is NodePhase.FAILED, 20_000, stride=10)
    (request,) = rig.requests()
    assert request.status.reason != "RestartByPassed"
    assert "RestartByPassed" not in {one.reason for one in rig.plan_now("up").status.failures}
