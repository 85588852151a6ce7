"""Law 7 on real kubelets: SIGKILL at every place of a rollout, and a leader that is frozen and woken too late."""

import contextlib
import json
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import Pool, opened, other, settled
from upgrader.api.resources import UPGRADE_PLANS
from upgrader.core.errors import DevClusterError
from upgrader.core.model.phases import PlanPhase, RequestPhase, crash_points, is_final
from upgrader_dev.demo import waiting
from upgrader_dev.demo.stage import Stage

pytestmark = [pytest.mark.e2e]


def _of_a_rollout(point: tuple[str, str, str]) -> bool:
    """Places that a rollout without trouble passes; the others are hit in the scenarios of tests/unit/reconcile."""
    machine, phase, stage = point
    if machine == "UpgradePlan":
        return phase in {PlanPhase.PROPOSED, PlanPhase.RUNNING}
    if machine == "NodeUpgrade":
        return (phase, stage) != ("Draining", "after-act")
    return machine == "CheckpointRequest" and phase != RequestPhase.EXPIRED


async def test_killed_at_every_place_of_a_rollout(made: Stage) -> None:
    async with opened(made, "first") as pool:
        before = await settled(pool)
        await pool.train("killed")
        pool.controller.signal(signal.SIGKILL)
        pool.controller.wait_ended()
        # Before the plan is there: this one is killed nowhere, and could pass places that the next ones are to hit.
        plan = await pool.apply(other(before), watch=False)
        crashes = made.folder / "crashes"
        kills = 0
        while not await _over(pool, plan):
            pool.controller.start(CRASH_FILE=str(crashes))
            kills += 1
            await waiting.poll_until(lambda: _ended(pool, plan), 120, f"killed, or {plan} is over")
            if not pool.controller.running:
                pool.controller.wait_ended()
        with contextlib.suppress(
            DevClusterError
        ):  # the record that ends the plan is seen before whoever wrote it is dead
            await waiting.wait_until(lambda: not _missed(crashes), seconds=60, what="the last places are hit")
        assert _missed(crashes) == []
        assert kills > 20
        assert (await pool.over(plan)).status.phase is PlanPhase.COMPLETED
        await pool.steps("killed", 10)
        assert (pool.story("killed").steps_lost, pool.story("killed").interruptions) == (0, 1)
        await pool.nothing_left()


def _missed(crashes: Path) -> list[tuple[str, str, str]]:
    hit = {tuple(line.split(".")) for line in crashes.read_text(encoding="utf-8").splitlines()}
    return [point for point in crash_points() if _of_a_rollout(point) and point not in hit]


async def _over(pool: Pool, plan: str) -> bool:
    return is_final((await pool.kube.get(UPGRADE_PLANS, plan)).status.phase)


async def _ended(pool: Pool, plan: str) -> bool:
    return not pool.controller.running or await _over(pool, plan)


async def test_a_frozen_leader_that_wakes_after_its_successor_acted_does_nothing(made: Stage) -> None:
    async with opened(made, "frozen", LEASE_SECONDS="12") as pool:
        before = await settled(pool)
        await pool.train("handed")
        pool.controller.stop()
        note = made.folder / "frozen"
        pool.controller.start(
            LEASE_SECONDS="12", FREEZE_AT="CheckpointRequest.Stopping.before-act", FREEZE_FILE=str(note)
        )
        plan = await pool.apply(other(before), watch=False)
        await waiting.wait_until(note.exists, seconds=120, what="the leader is frozen")
        successor = made.controller("successor")
        successor.start(LEASE_SECONDS="12")
        try:
            assert (await pool.over(plan)).status.phase is PlanPhase.COMPLETED
            # whose last write takes the plan's finalizer away
            await pool.eventually(UPGRADE_PLANS, plan, lambda one: not one.metadata.finalizers)
            writes = _writes(made)
            pool.controller.signal(signal.SIGCONT)
            await waiting.wait_until(lambda: not pool.controller.running, seconds=60, what="the former leader gives up")
            pool.controller.wait_ended()
            assert _writes(made) == writes
        finally:
            successor.stop()
        await pool.steps("handed", 10)
        assert (pool.story("handed").steps_lost, pool.story("handed").interruptions) == (0, 1)


def _writes(made: Stage) -> int:
    """Writes to Nodes, Jobs and our kinds in the audit log, whoever made them under our service account."""
    kinds = {"nodes", "jobs", "nodeupgrades", "checkpointrequests", "upgradeplans"}
    lines = made.cluster.audit_log.read_text(encoding="utf-8").splitlines()
    seen = (json.loads(line) for line in lines)
    return sum(
        one.get("objectRef", {}).get("resource") in kinds and one["user"]["username"].endswith(":gpu-upgrader")
        for one in seen
    )
