"""Why pods of the operator cannot be created or do not start, from Events of real controllers and a real kubelet."""

from datetime import UTC, datetime

import pytest

from tests.support import manifests as wire
from tests.support.node_upgrades import state
from tests.support.waiting import eventually
from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, DRIVER_IMAGES, GPU_STACKS, JOBS, NODE_UPGRADES, NODES
from upgrader.core import timing
from upgrader.core.model.fleet import ImageFacts
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader.reconcile.gpu_stack import stack_reconciler
from upgrader.reconcile.gpu_stack.debounce_cache import Sightings
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_group import group_reconciler
from upgrader.reconcile.upgrade_group.group_view import OpenGroup
from upgrader.stack import manifests
from upgrader.stack.settings import StackSettings
from upgrader_dev.simulated.cluster.ports import FakeClock, FakeCrashPoints, FakeLeadership, FakeRegistry

pytestmark = [pytest.mark.cluster, pytest.mark.gate, pytest.mark.timeout(300)]

SECONDS = 60
KEY = "a" * 16
DIGEST = f"127.0.0.1:1/driver@sha256:{'a' * 64}"
PLUGIN = "127.0.0.1:1/plugin:1"
REFUSED = "{} has no pod; the API server refuses to create a pod: "


class Live:
    """All nodes as a list of a moment ago has them."""

    def __init__(self):
        self.nodes = {}

    def snapshot(self):
        return self.nodes


class Controller:
    """The controller's steps on a box, with all objects of the operator in a namespace that a test chooses."""

    def __init__(self, cluster, box, namespace):
        self.cluster, self.box, self.live = cluster, box, Live()
        self.clock, self.sightings = FakeClock(), Sightings()
        self.clock.advance((datetime.now(UTC) - self.clock.now()).total_seconds())
        registry = FakeRegistry()
        registry.push(PLUGIN, "b" * 64)
        self.context = Context(
            cluster=cluster,
            nodes=self.live,
            registry=registry,
            clock=self.clock,
            leadership=FakeLeadership(),
            crash=FakeCrashPoints(),
            methods={},
            stack=StackSettings(node_image="127.0.0.1:1/upgrader@sha256:" + "c" * 64, namespace=namespace),
        )

    async def node(self):
        return await self.cluster.get(NODES, self.box.name)

    async def look(self, stack):
        """A step of a stack, half a minute later; its status."""
        self.live.nodes = {one.metadata.name: one for one in await self.cluster.list(NODES)}
        await stack_reconciler.reconcile_stack(self.context, stack, self.sightings)
        self.clock.advance(31)
        return (await self.cluster.get(GPU_STACKS, stack)).status

    async def upgraded(self, name):
        """A step of a node upgrade, half a minute later; what it says."""
        upgrade = await self.cluster.get(NODE_UPGRADES, name)
        group = OpenGroup(name="c", resource="nvidia.com/gpu", upgrades=[upgrade])
        faults = Faults(kind="NodeUpgrade")
        await group_reconciler.reconcile_group(self.context, group, faults, group_reconciler.Crowd(taken=True))
        assert faults.errors == {}
        self.clock.advance(31)
        return (await self.cluster.get(NODE_UPGRADES, name)).status.message

    async def orders(self, name, phase):
        """A node upgrade of the box, in a phase."""
        node = await self.node()
        target = state("2.0.0", "1.99.0", "b", kernel=node.status.node_info.kernel_version)
        body = wire.node_upgrade(name)
        body["spec"] |= {
            "node": {"name": node.metadata.name, "uid": node.metadata.uid},
            "source": state("1.0.0", node.status.node_info.kubelet_version.removeprefix("v"), "a"),
            "target": target,
        }
        made = await self.cluster.create(NODE_UPGRADES, body)
        now = self.clock.now()
        step = {
            "name": phase,
            "startedAt": timing.format_time(now),
            "deadline": timing.format_time(timing.add_seconds(now, 9000)),
        }
        await self.cluster.merge(
            NODE_UPGRADES,
            made.metadata,
            {"status": {"phase": phase, "deadline": step["deadline"], "steps": [step]}},
            "status",
        )


@pytest.fixture(scope="module")
def small_cluster(start_cluster):
    return start_cluster("reasons", boxes=1)


@pytest.fixture
async def cluster(small_cluster):
    async with await KubeCluster.connect(str(small_cluster.kubeconfig)) as connected:
        await install_kinds(connected)
        yield connected


@pytest.fixture
def controller_in(small_cluster, cluster):
    """A controller whose pods are under a level of PodSecurity."""

    def made(level):
        box, space = small_cluster.box_node("gpu-a"), f"operator-{level}"
        box.wait_ready()
        labels = {"pod-security.kubernetes.io/enforce": level}
        small_cluster.api.create("/api/v1/namespaces", {"metadata": {"name": space, "labels": labels}})
        controller = Controller(cluster, box, space)
        account = {"metadata": {"name": controller.context.stack.service_account}}
        small_cluster.api.create(f"/api/v1/namespaces/{space}/serviceaccounts", account)
        return controller

    return made


async def test_a_daemonset_and_a_job_whose_pods_are_refused_say_so_in_the_api_servers_words(controller_in):
    controller = controller_in("restricted")
    cluster, kernel = controller.cluster, (await controller.node()).status.node_info.kernel_version
    image = await cluster.create(
        DRIVER_IMAGES,
        {
            "metadata": {"name": "sim-1"},
            "spec": {"vendor": "sim", "version": "1.0.0", "kernel": kernel, "image": DIGEST},
        },
    )
    ready = {"status": {"phase": "Ready", "key": KEY, "digest": DIGEST}}
    await cluster.merge(DRIVER_IMAGES, image.metadata, ready, "status")
    facts = ImageFacts(key=KEY, vendor="sim", version="1.0.0", kernel=kernel, digest=DIGEST)
    await cluster.apply(DAEMONSETS, manifests.driver_daemonset("pool-a", facts, controller.context.stack))
    await cluster.merge(NODES, (await controller.node()).metadata, {"metadata": {"labels": {names.LABEL_DRIVER: KEY}}})
    body = wire.gpu_stack("pool-a")
    body["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": controller.box.name}}
    body["spec"]["driver"]["version"], body["spec"]["devicePlugin"]["image"] = "1.0.0", PLUGIN
    await cluster.create(GPU_STACKS, body)

    async def operand():
        return next(one for one in (await controller.look("pool-a")).operands if one.operand == "Driver")

    found = await eventually(operand, lambda one: "refuses" in one.message, SECONDS)
    pod = (
        f'pods "driver-{KEY}-…" is forbidden: violates PodSecurity "restricted:latest": host namespaces (hostPID=true)'
    )
    assert found.message.startswith(f"gpu-a: {REFUSED.format('it')}{pod}")
    assert (found.shown, len(found.message) < 400) == ("0/1", True)

    await controller.orders("job", "Upgrading")
    said = await eventually(lambda: controller.upgraded("job"), lambda said: "refuses" in said, SECONDS)
    (job,) = await cluster.list(JOBS, controller.context.stack.namespace)
    refused = f'pods "{job.metadata.name}-…" is forbidden: violates PodSecurity'
    assert said.startswith(f"{REFUSED.format('the upgrade Job')}{refused}")
    await cluster.delete(NODE_UPGRADES, (await cluster.get(NODE_UPGRADES, "job")).metadata)


async def test_a_prepare_pod_whose_volume_cannot_be_mounted_says_so_in_its_kubelets_words(controller_in):
    controller = controller_in("privileged")
    box = controller.box
    box.enter("touch", "/var/lib/gpu-upgrader")  # a folder is to be there
    await controller.orders("mount", "Preparing")
    said = await eventually(lambda: controller.upgraded("mount"), lambda said: "FailedMount" in said, SECONDS)
    assert said.startswith("the prepare pod has not started; its kubelet reports FailedMount: ")
    assert said.endswith("hostPath type check failed: /var/lib/gpu-upgrader is not a directory")
    box.enter("rm", "/var/lib/gpu-upgrader")
