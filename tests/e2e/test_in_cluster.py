"""The controller as pods from its image, under its own service account, as deploy/ ships it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.e2e.conftest import Pool, other, settled
from tests.support import diagnosis
from upgrader.api.resources import DAEMONSETS, PODS
from upgrader.core.model.phases import PlanPhase
from upgrader_dev.demo import stage as stages
from upgrader_dev.demo import waiting

pytestmark = [pytest.mark.e2e]

DEPLOYMENT = "/apis/apps/v1/namespaces/gpu-upgrader-system/deployments/gpu-upgrader-controller"


@asynccontextmanager
async def controllers_in_pods(pool: Pool) -> AsyncIterator[None]:
    """Two of them instead of the one beside the cluster; what they looked like goes with a failure."""
    pool.controller.stop()
    api = pool.made.cluster.api
    stages.deploy_controller(pool.made, ACTIVE_SECONDS="0.5", IDLE_SECONDS="3")
    try:
        await waiting.wait_until(
            lambda: ((api.get(DEPLOYMENT) or {}).get("status") or {}).get("readyReplicas") == 2,
            seconds=180,
            what="two controllers are ready, one leads",
        )
        yield
    except Exception as error:
        error.add_note(diagnosis.report(pool.made.cluster))
        raise
    finally:
        api.delete(DEPLOYMENT)
        await waiting.poll_until(lambda: _no_controllers(pool), 90, "the controllers' pods end")
        pool.controller.start()


async def test_a_rollout_by_the_controller_in_a_pod(pool: Pool) -> None:
    before = await settled(pool)
    async with controllers_in_pods(pool):
        await pool.train("inside")
        plan = await pool.apply(other(before))
        assert (await pool.over(plan)).status.phase is PlanPhase.COMPLETED
        await pool.steps("inside", 10)
        assert (pool.story("inside").steps_lost, pool.story("inside").interruptions) == (0, 1)
        await pool.nothing_left()
        assert len(await pool.kube.list(DAEMONSETS, "gpu-upgrader-system")) >= 2


async def _no_controllers(pool: Pool) -> bool:
    pods = await pool.kube.list(PODS, "gpu-upgrader-system", labels="app.kubernetes.io/component=controller")
    return not pods
