"""Law 9: everything is deleted while a gang is stopped, and the gang trains on. Runs last, since the pool is gone."""

import pytest

from tests.e2e.conftest import Pool, other, settled
from upgrader.api.resources import DAEMONSETS, NODE_UPGRADES, UPGRADE_PLANS
from upgrader_dev.demo.scenes import run_command

pytestmark = [pytest.mark.e2e]


async def test_uninstalling_while_a_gang_is_stopped_restarts_it(pool: Pool) -> None:
    before = await settled(pool)
    await pool.train("last")
    plan = await pool.apply(other(before), watch=False)
    await pool.stopped(plan)
    await run_command(pool.made.cluster, print, "uninstall", "--auto-approve", "--timeout", "300")
    await pool.steps("last", 10)
    assert (pool.story("last").steps_lost, pool.story("last").interruptions) == (0, 1)
    await pool.nothing_left()
    assert await pool.kube.list(UPGRADE_PLANS) == []
    assert await pool.kube.list(NODE_UPGRADES) == []
    assert await pool.kube.list(DAEMONSETS, "gpu-upgrader-system") == []
