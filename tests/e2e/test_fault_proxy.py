"""A whole rollout through a proxy that refuses, hangs, loses answers and cuts watches."""

import os
import random
import ssl
import time

import pytest

from tests.support import kwok_pool
from tests.support.fault_proxy import Fault, FaultProxy
from upgrader.api.resources import GPU_STACKS, NODES
from upgrader.core.model.phases import PlanPhase
from upgrader.kube.client import KubeCluster
from upgrader_dev.demo import manifests, waiting
from upgrader_dev.devcluster import KwokSpec

INSTALL_SECONDS = 600
ROLLOUT_SECONDS = 1800

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(INSTALL_SECONDS + ROLLOUT_SECONDS + 600)]

NODE_COUNT, GANGS, MEMBERS = 30, 10, 3


@pytest.fixture(scope="module")
def fleet(start_cluster):
    spec = KwokSpec(count=NODE_COUNT, prefix="fleet", labels=manifests.POOL, kernel=kwok_pool.KERNEL, taints=())
    return start_cluster("faults", boxes=0, loopback=True, kwok=spec)


async def test_a_rollout_of_thirty_nodes_with_ten_gangs_through_faults_of_every_kind(fleet, tmp_path):
    seed = int(os.environ.get("UPGRADER_TEST_SEED") or random.randrange(1 << 32))  # noqa: S311 - no secret
    print(f"UPGRADER_TEST_SEED={seed}")  # noqa: T201 - shown with a failure
    trust = ssl.create_default_context(cafile=fleet.pki.ca)
    async with (
        FaultProxy(fleet.server, trust, seed).serving() as proxy,
        await KubeCluster.connect(str(fleet.kubeconfig)) as kube,
    ):
        pool = await kwok_pool.set_up(fleet, tmp_path, kube, proxy.address)
        async with pool.world:
            pool.keep_running()
            try:
                await _rolled(pool, proxy)
            finally:
                await waiting.in_thread(pool.controller.stop)


async def _rolled(pool, proxy):
    began = time.monotonic()
    await pool.install("1.0.0", INSTALL_SECONDS)
    for number in range(GANGS):
        await pool.world.train(f"gang-{number}", MEMBERS)
    gangs = pool.world.gangs.values()
    await waiting.wait_until(lambda: all(one.step > 3 for one in gangs), seconds=120, what="the gangs train")
    installed = time.monotonic()
    proxy.begin()
    await pool.plan("up", "2.0.0", maxUnavailable="50%")
    plan = await pool.over("up", ROLLOUT_SECONDS)
    rolled = time.monotonic()
    print(f"install {installed - began:.0f} s, rollout {rolled - installed:.0f} s")  # noqa: T201
    print(f"starts {pool.starts}, requests {dict(proxy.requests)}, faults {dict(proxy.injected)}")  # noqa: T201
    assert plan.status.phase is PlanPhase.COMPLETED
    assert set(proxy.injected) == set(Fault)
    steps = [one.step for one in gangs]
    await waiting.wait_until(
        lambda: all(one.step > step for one, step in zip(gangs, steps, strict=True)),
        seconds=120,
        what="the gangs train on",
    )
    assert [(one.lost, one.stops) for one in gangs] == [(0, 1)] * GANGS
    await pool.eventually(GPU_STACKS, kwok_pool.STACK, lambda one: one.status.ready == NODE_COUNT, 120)
    nodes = await pool.kube.list(NODES)
    assert {one.status.node_info.kubelet_version for one in nodes} == {f"v{kwok_pool.KUBELETS['2.0.0']}"}
    assert await pool.leftovers() == []
