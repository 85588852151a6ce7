"""A node that goes back while the upgrade Job of the way there has not ended: never are two at work on it."""

from datetime import timedelta

import pytest

from upgrader.api import names
from upgrader.api.resources import JOBS, PODS
from upgrader.core.model.phases import NodePhase
from upgrader_dev.simulated.cluster.rig import Rig, start_training


class Hanging(Rig):
    """Its first upgrade Job does not end by itself; how many work on the node at once is counted each second."""

    most = 0

    async def begin(self) -> None:
        revision = await start_training(self, nodes=1, members=1)
        end = self.fleet._end_node_pod
        self.fleet._end_node_pod = lambda pod: None if pod["metadata"]["name"].startswith("upgrade-") else end(pod)
        self.others.append(self.count)
        self.apply_plan("up", revision, checkpoint={"timeoutSeconds": 30, "retrySeconds": 86400})
        await self.run_until(lambda: bool(self.at_work))

    @property
    def at_work(self) -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in self.cluster.store.copy_all(PODS)
            if pod["metadata"].get("labels", {}).get(names.LABEL_COMPONENT) == "upgrade"
            and pod["status"].get("phase") in {"Pending", "Running"}
        ]

    @property
    def jobs(self) -> set[str]:
        made = {job["metadata"]["name"].split("-")[0] for job in self.cluster.store.copy_all(JOBS)}
        return made & {"revert"}

    def count(self) -> None:
        self.most = max(self.most, len(self.at_work))


@pytest.fixture
def rig() -> Hanging:
    return Hanging()


async def test_a_controller_whose_clock_is_ahead_ends_the_first_upgrade_before_it_makes_the_second(
    rig: Hanging,
) -> None:
    await rig.begin()
    rig.skew = timedelta(minutes=50)
    await rig.run_until(lambda: rig.upgrades("up")[0].status.phase is NodePhase.FAILED, 900)
    assert (rig.most, rig.jobs, rig.upgrades("up")[0].status.reason) == (1, {"revert"}, "UpgradingLate")
    rig.assert_nothing_left()


async def test_no_second_upgrade_is_made_while_a_pod_of_the_first_is_left(rig: Hanging) -> None:
    """Its Job is gone, and its kubelet is not heard: what the pod does, nobody knows."""
    await rig.begin()
    rig.fleet.ignores_sigterm = set(rig.at_work)
    rig.skew = timedelta(minutes=50)
    await rig.run_until(lambda: rig.upgrades("up")[0].status.reverting)
    for _ in range(120):
        await rig.run_second()
    upgrade = rig.upgrades("up")[0].status
    assert (len(rig.at_work), rig.jobs, upgrade.phase) == (1, set(), NodePhase.UPGRADING)
    assert upgrade.message == "waiting for 1 pod(s) of an earlier upgrade Job to end"
    rig.fleet.ignores_sigterm = set()
    await rig.run_until(lambda: rig.upgrades("up")[0].status.phase is NodePhase.FAILED, 900)
    assert (rig.most, rig.upgrades("up")[0].status.reason) == (1, "UpgradingLate")
    rig.assert_nothing_left()
