"""Feature discovery of simulated devices on a real kubelet: pods read, their kubelet reports, the controller writes."""

from datetime import UTC, datetime

import msgspec
import pytest

from tests.support.waiting import eventually
from tests.support.workbench import RESOURCE
from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import DAEMONSETS, NODES, PODS
from upgrader.api.v1alpha1 import GpuStack, GpuStackSpec
from upgrader.core.model.fleet import Snapshot
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader.reconcile.facts.operand_pods import own_pods
from upgrader.reconcile.observe.cluster_snapshot import target_of
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.operands import nondisruptive_operands, operands
from upgrader.reconcile.runtime.context import Context
from upgrader_dev.simulated.cluster.ports import FakeClock, FakeCrashPoints, FakeLeadership, FakeRegistry

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

STACK = "discovering"
SECONDS = 120
SHOWN = ("nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/cuda.driver-version.full")
GONE = (None, None, None)


class Live:
    """All nodes as a list of a moment ago has them."""

    def __init__(self):
        self.nodes = {}

    def snapshot(self):
        return self.nodes


@pytest.fixture
async def cluster(installed):
    async with await KubeCluster.connect(str(installed.cluster.kubeconfig)) as connected:
        await install_kinds(connected)
        yield connected


def read_of(bench, pods):
    """What a step of the stack looks at: the node is the box's, and discovery is the only operand of the stack."""
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": bench.node.name},
        "driver": {"vendor": "sim", "version": "1.0.0"},
        "devicePlugin": {"image": bench.product.plugins["1"], "resourceName": RESOURCE},
        "featureDiscovery": {"management": "Managed", "image": bench.product.simulated_gpus},
    }
    stack = GpuStack(metadata=ObjectMeta(name=STACK), spec=msgspec.convert(spec, GpuStackSpec))
    nodes = (bench.facts(),)
    snapshot = Snapshot(cluster="c", taken_at=datetime.now(UTC), nodes=nodes, gangs=(), images=())
    return StackReading(
        stack=stack,
        target=target_of(stack.spec, STACK),
        plans=(),
        upgrades=(),
        snapshot=snapshot,
        drift=(),
        asked=(),
        reporting=own_pods(pods, bench.settings.namespace, STACK),
    )


async def test_labels_say_what_is_loaded_and_go_with_the_operands_and_with_discovery(installed, cluster):
    bench, live = installed, Live()
    registry = FakeRegistry()
    registry.digests[bench.product.simulated_gpus] = bench.product.simulated_gpus
    context = Context(
        cluster=cluster,
        nodes=live,
        registry=registry,
        clock=FakeClock(),
        leadership=FakeLeadership(),
        crash=FakeCrashPoints(),
        methods={},
        stack=bench.settings,
    )

    async def shown():
        labels = (await cluster.get(NODES, bench.node.name)).metadata.labels
        return tuple(
            labels.get(f"nvidia.com/{name}") for name in ("gpu.product", "gpu.count", "cuda.driver-version.full")
        )

    async def look():
        live.nodes = {one.metadata.name: one for one in await cluster.list(NODES)}

    async def until(wanted):
        async def step():
            await look()
            assert await nondisruptive_operands.ensure_operands(context, read_of(bench, await cluster.list(PODS))) == {}
            return await shown() == wanted

        await eventually(step, seconds=SECONDS)

    await until(("SIMULATED-GPU", "8", "1.0.0"))
    bench.label({names.LABEL_OPERANDS: names.OFF})
    await until(GONE)
    upgrade = bench.upgrade(bench.state("1.0.0", "1.34.4"), bench.state("2.0.0", "1.34.4"))
    bench.off()
    assert bench.run_upgrade(upgrade)[0] == 0
    bench.on("2.0.0")
    await until(("SIMULATED-GPU", "8", "2.0.0"))

    async def left():
        await look()
        return await operands.remove_operands(context, STACK) is None and await shown() == GONE

    await eventually(left, seconds=SECONDS)
    assert not await cluster.list(DAEMONSETS, bench.settings.namespace, labels=f"{names.LABEL_STACK}={STACK}")
    bench.off()
    assert bench.run_upgrade(upgrade, reverting=True)[0] == 0
