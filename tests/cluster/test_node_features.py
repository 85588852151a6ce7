"""Feature labels on a real kubelet: a pod without rights reads, its kubelet reports, the controller writes."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.support.deploying import apply, as_controller
from tests.support.repository import ROOT
from tests.support.waiting import eventually
from upgrader.api import names
from upgrader.api.resources import DAEMONSETS, GPU_STACKS, NODES, PODS
from upgrader.api.v1alpha1 import GpuStack
from upgrader.core.node_protocol.node_features import LABELS_KERNEL, LABELS_SYSTEM
from upgrader.core.node_protocol.node_labels import NodeLabelState
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds
from upgrader.reconcile.facts.operand_pods import own_pods
from upgrader.reconcile.operands import node_features
from upgrader.reconcile.runtime.context import Context
from upgrader_dev.simulated.cluster.ports import FakeClock, FakeCrashPoints, FakeLeadership, FakeRegistry

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

KERNEL = "6.12.94+deb13-amd64"
KEPT = "nfd.node.kubernetes.io/feature-labels"
SECONDS = 120
WRITER = "system:serviceaccount:gpu-upgrader-system:gpu-upgrader"


class Live:
    """All nodes as a list of a moment ago has them."""

    def __init__(self):
        self.nodes = {}

    def snapshot(self):
        return self.nodes


class Labeller:
    """The controller's step for labels, by its own service account."""

    def __init__(self, bench, admin, cluster):
        self.bench, self.admin, self.live = bench, admin, Live()
        self.context = Context(
            cluster=cluster,
            nodes=self.live,
            registry=FakeRegistry(),
            clock=FakeClock(),
            leadership=FakeLeadership(),
            crash=FakeCrashPoints(),
            methods={},
            stack=bench.settings,
        )

    async def step(self, mode):
        """One step, with what it found."""
        self.live.nodes = {one.metadata.name: one for one in await self.context.cluster.list(NODES)}
        spec = msgspec.structs.replace(self.stack.spec, node_features=mode)
        pods = own_pods(await self.context.cluster.list(PODS), self.context.stack.namespace, self.stack.metadata.name)
        return await node_features.label_nodes(self.context, msgspec.structs.replace(self.stack, spec=spec), pods)

    async def until(self, mode, done):
        """Steps until something holds of the node's labels and record."""

        async def look():
            await self.step(mode)
            node = await self.node()
            text = node.metadata.annotations.get(names.ANNOTATION_NODE_FEATURES)
            return done(node.metadata.labels, json.loads(text) if text else None)

        await eventually(look, seconds=SECONDS)

    async def node(self):
        return await self.admin.get(NODES, self.bench.node.name)

    def writes(self):
        """Everything that the controller's account wrote, by the API server's audit log: verb and resource."""
        lines = map(json.loads, self.bench.cluster.audit_log.read_text().splitlines())
        accepted = (one for one in lines if one["user"]["username"] == WRITER and one["responseStatus"]["code"] < 400)
        return [(one["verb"], one["objectRef"]["resource"]) for one in accepted]

    def change(self, **metadata):
        """As somebody else would, whatever the kubelet writes meanwhile."""
        self.bench.cluster.api.patch(f"/api/v1/nodes/{self.bench.node.name}", {"metadata": metadata})


@pytest.fixture
async def labeller(workbench, tmp_path):
    """A stack on the box, which came up with a kernel's name that is no label value."""
    bench = workbench
    bench.node.set_kernel(KERNEL)
    bench.node.power_off()
    bench.node.power_on()
    bench.node.wait_ready()
    kubeconfig = str(bench.cluster.kubeconfig)
    async with await KubeCluster.connect(kubeconfig) as admin:
        await install_kinds(admin)
        await apply(admin, (ROOT / "deploy" / "rbac.yaml").read_text())
        async with await KubeCluster.connect(await as_controller(admin, kubeconfig, tmp_path)) as cluster:
            made = Labeller(bench, admin, cluster)
            body = {
                "apiVersion": GPU_STACKS.api_version,
                "kind": "GpuStack",
                "metadata": {"name": f"t{uuid.uuid4().hex[:8]}"},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": bench.node.name},
                    "driver": {"vendor": "sim", "version": "1.0.0"},
                    "devicePlugin": {"image": next(iter(bench.product.plugins.values()))},
                    "nodeFeatures": "Auto",
                },
            }
            made.stack = await admin.create(GPU_STACKS, body)
            assert isinstance(made.stack, GpuStack)
            yield made
            await made.until("External", lambda labels, record: record is None)
            await admin.delete(GPU_STACKS, made.stack.metadata)
    bench.node.set_kernel("")
    bench.node.power_off()
    bench.node.power_on()
    bench.node.wait_ready()


async def test_a_box_is_labelled_on_each_of_its_boots_by_one_writer(labeller):
    bench, boot = labeller.bench, labeller.bench.node.state().boot_id
    await labeller.until("Auto", lambda _, record: record is not None)
    node = await labeller.node()
    release = bench.node.enter("sh", "-c", ". /etc/os-release; echo $ID $VERSION_ID").text.split()
    record = json.loads(node.metadata.annotations[names.ANNOTATION_NODE_FEATURES])
    assert (record["stack"], record["bootId"]) == (labeller.stack.metadata.name, boot)
    assert node.status.node_info.kernel_version == KERNEL
    assert node.metadata.labels[LABELS_KERNEL[0]] == "6.12.94_deb13-amd64"
    assert [node.metadata.labels[name] for name in LABELS_SYSTEM[:2]] == release[:2]
    assert record["labels"].items() <= node.metadata.labels.items()

    before = labeller.writes()
    again = [await labeller.step("Auto") for _ in range(5)]
    assert [(one.nodes, one.more) for one in again] == [({NodeLabelState.LABELLED: 1}, False)] * 5
    assert labeller.writes() == before
    assert before == [("patch", "daemonsets"), ("patch", "nodes")]

    labeller.change(annotations={KEPT: "kernel-version.full"})
    await labeller.until("Auto", lambda labels, record: record is None and LABELS_SYSTEM[0] not in labels)
    assert LABELS_KERNEL[0] in (await labeller.node()).metadata.labels
    labeller.change(annotations={KEPT: None}, labels={LABELS_KERNEL[0]: None})
    await labeller.until("Auto", lambda labels, record: record is not None and LABELS_KERNEL[0] in labels)

    bench.node.power_off()
    bench.node.power_on()
    later = bench.node.wait_ready().boot_id
    assert later != boot
    await labeller.until("Auto", lambda _, record: record["bootId"] == later)


async def test_a_box_without_os_release_is_told_of_in_the_words_of_its_kubelet(labeller):
    bench = labeller.bench
    ahead = datetime.now(UTC) + timedelta(hours=1) - labeller.context.clock.now()
    labeller.context.clock.advance(ahead.total_seconds())  # whatever is silent now has been so for long
    found = []

    async def told():
        labeller.context.clock.advance(31)  # Events are asked for again
        found[:] = [await labeller.step("Auto")]
        return "FailedMount" in found[0].messages.get(NodeLabelState.UNREADABLE, "")

    bench.node.enter("mount", "--bind", "/dev/null", "/etc/os-release")  # of the box's own mounts only
    try:
        await eventually(told, seconds=SECONDS)
        (pod,) = found[0].pods
        assert (pod.node, pod.ready) == (bench.node.name, False)
        assert pod.trouble.startswith("it has not started; its kubelet reports FailedMount: ")
        assert pod.trouble.endswith("hostPath type check failed: /etc/os-release is not a file")
        assert found[0].messages == {NodeLabelState.UNREADABLE: f"{bench.node.name}: {pod.trouble}"}
        before = labeller.writes()
        again = [await labeller.step("Auto") for _ in range(5)]
        assert ([one.pods for one in again], labeller.writes()) == ([found[0].pods] * 5, before)
    finally:
        bench.node.enter("umount", "/etc/os-release")
    await labeller.until("Auto", lambda _, record: record is not None)


async def test_when_it_is_no_longer_asked_for_nothing_of_it_stays(labeller):
    await labeller.until("Auto", lambda _, record: record is not None)
    await labeller.until("External", lambda labels, record: record is None and LABELS_KERNEL[0] not in labels)
    selector = f"{names.LABEL_STACK}={labeller.stack.metadata.name}"
    made = await labeller.admin.list(DAEMONSETS, labeller.bench.settings.namespace, labels=selector)
    assert [one.metadata.labels[names.LABEL_COMPONENT] for one in made] == ["node-features"]
    await labeller.admin.delete(GPU_STACKS, labeller.stack.metadata)

    async def gone():
        return not await labeller.admin.list(DAEMONSETS, labeller.bench.settings.namespace, labels=selector)

    await eventually(gone, seconds=SECONDS)
