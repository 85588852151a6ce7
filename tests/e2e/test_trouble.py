"""What goes wrong on real kubelets: a clear reason, nothing lost, and every gang comes back."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import VERSIONS, Pool, other, settled
from upgrader.api.resources import CHECKPOINT_REQUESTS, UPGRADE_PLANS
from upgrader.core.model.phases import PlanPhase, RequestPhase
from upgrader_dev.demo import waiting
from upgrader_dev.demo.scenes import run_command

pytestmark = [pytest.mark.e2e]


async def test_a_kubelet_that_does_not_start_is_put_back_and_its_group_goes_back(pool: Pool) -> None:
    before = await settled(pool)
    await pool.train("unlucky")
    revisions = await pool.revisions()
    artifact = await waiting.in_thread(broken_kubelet, pool, VERSIONS[other(before)][0])
    changes = {"kubelet.version": VERSIONS[other(before)][0], "kubelet.artifact": artifact}
    plan = await pool.apply_changes(changes, watch=False)
    paused = await pool.eventually(UPGRADE_PLANS, plan, lambda one: one.status.phase is PlanPhase.PAUSED, seconds=300)
    assert {one.reason for one in paused.status.failures} == {"UpgradeFailed"}
    assert await pool.revisions() == revisions
    assert await pool.kubelets() == {f"v{VERSIONS[before][0]}"}
    await pool.steps("unlucky", 10)
    assert pool.story("unlucky").steps_lost == 0
    await run_command(pool.made.cluster, print, "abort", plan)
    await pool.over(plan)
    await pool.install(before)
    await pool.nothing_left()


def broken_kubelet(pool: Pool, version: str) -> str:
    """An artifact whose kubelet says its version and then ends."""
    folder = Path(pool.made.folder) / "broken"
    folder.mkdir(exist_ok=True)
    binary = folder / "kubelet"
    binary.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "Kubernetes v{version}" && exit 0\nexit 1\n', encoding="utf-8"
    )
    binary.chmod(0o755)
    try:
        return pool.made.push_kubelet(f"{version}-broken", version, binary)
    finally:
        shutil.rmtree(folder)


async def test_a_job_that_never_answers_is_never_stopped(pool: Pool) -> None:
    before = await settled(pool)
    await pool.train("silent", arguments=("--behaviour", "silent"))
    plan = await pool.apply(other(before), watch=False)
    (request,) = await pool.asked(plan, seconds=120)
    await run_command(pool.made.cluster, print, "abort", plan)
    assert (await pool.over(plan)).status.phase is PlanPhase.ABORTED
    done = await pool.kube.get(CHECKPOINT_REQUESTS, request.metadata.name, "default")
    assert done.status.phase is RequestPhase.WITHDRAWN
    assert pool.story("silent").interruptions == 0
    await pool.nothing_left()
    await pool.clear()
    await pool.apply(other(before))  # nobody is left who says nothing


async def test_a_plan_that_is_deleted_while_a_gang_is_stopped_restarts_it(pool: Pool) -> None:
    before = await settled(pool)
    await pool.train("deleted")
    plan = await pool.apply(other(before), watch=False)
    await pool.stopped(plan)
    found = await pool.kube.get(UPGRADE_PLANS, plan)
    await pool.kube.delete(UPGRADE_PLANS, found.metadata)

    async def gone() -> bool:
        return await pool.kube.get(UPGRADE_PLANS, plan) is None

    await waiting.poll_until(gone, 300, "the plan is gone")
    await pool.steps("deleted", 10)
    assert (pool.story("deleted").steps_lost, pool.story("deleted").interruptions) == (0, 1)
    await pool.nothing_left()
    # the upgrades that had begun went forward; the rest of the pool follows by a plan of its own
    if len(await pool.revisions()) > 1:
        await pool.apply(other(before))
