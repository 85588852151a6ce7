"""`upgrader doctor --node` on a box: real kubelet, API server and container runtime; devices are simulated."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from tests.support.programs import soon
from tests.support.workbench import BINARY, RESOURCE
from upgrader.api import names
from upgrader.api.resources import GPU_STACKS
from upgrader.cli.base.session import Session
from upgrader.cli.main import program
from upgrader.kube.client import KubeCluster
from upgrader.kube.install import install_kinds

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PODS = "/api/v1/namespaces/default/pods"
STACKS = "/apis/gpu-upgrader.io/v1alpha1/gpustacks"
SURVEY_PODS = f"labelSelector={names.LABEL_COMPONENT}=survey"


@pytest.fixture
def bench(installed):
    """The box with the kinds, which the command reads."""

    async def install():
        async with await KubeCluster.connect(str(installed.cluster.kubeconfig)) as cluster:
            await install_kinds(cluster)

    asyncio.run(install())
    return installed


def survey(bench):
    """Exit code and report; no pod is left."""
    session = Session(kubeconfig=str(bench.cluster.kubeconfig))
    words = ["doctor", "--node", bench.node.name, "--image", bench.product.node, "--output", "json"]
    ended = CliRunner().invoke(program, words, obj=session)
    assert ended.output.startswith("["), ended.output
    (shown,) = json.loads(ended.stdout)
    left = bench.api.get(f"{bench.pods}?{SURVEY_PODS}")["items"]
    assert [pod for pod in left if "deletionTimestamp" not in pod["metadata"]] == []
    return ended.exit_code, shown["report"]


def listed(report):
    return [(finding["check"], finding["severity"], finding["subject"]) for finding in report["findings"]]


@pytest.fixture
def holder(bench):
    """A privileged pod that requests no GPU and has a device of NVIDIA's driver open; simulated by a file in /dev."""
    hold = ["/bin/busybox", "sh", "-c", "exec 3<>/dev/nvidia0; exec /bin/busybox sleep 1000"]
    container = {"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never", "command": hold}
    container |= {"securityContext": {"privileged": True}}
    spec = {"nodeName": bench.node.name, "terminationGracePeriodSeconds": 1, "containers": [container]}
    bench.api.create(PODS, {"metadata": {"name": "holder"}, "spec": spec})
    soon(lambda: bench.api.get(f"{PODS}/holder")["status"]["phase"] == "Running", 60)
    yield
    bench.api.delete(f"{PODS}/holder?gracePeriodSeconds=0")


@pytest.fixture
def stack(bench):
    """A stack that selects the node, and requires another kubelet of it."""
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": bench.node.name},
        "driver": {"vendor": "nvidia", "version": "1.0.0"},
        "devicePlugin": {"image": "registry.example/plugin:1", "resourceName": RESOURCE},
        "kubelet": {"manage": True, "version": "1.35.4", "artifact": "registry.example/kubelet:1", "binary": BINARY},
    }
    bench.api.create(
        STACKS, {"apiVersion": GPU_STACKS.api_version, "kind": "GpuStack", "metadata": {"name": "pool"}, "spec": spec}
    )
    yield
    bench.api.delete(f"{STACKS}/pool")


def test_a_node_without_a_finding(bench):
    code, report = survey(bench)
    assert (code, report["findings"]) == (0, [])
    assert (report["facts"]["kubelet"], report["facts"]["driver"]) == ("v1.34.4", "not loaded")


def test_a_pod_that_holds_the_driver_is_named_with_the_resolution(bench, holder):
    code, report = survey(bench)
    assert (code, listed(report)) == (1, [("DriverInUse", "problem", "pod default/holder")])


def test_the_new_kubelet_of_the_stack_of_the_node_is_judged(bench, stack):
    code, report = survey(bench)
    expected = [("CgroupVersion", "warning", "cgroup v1")] if report["facts"]["cgroup"] == "v1" else []
    assert (code, listed(report)) == (0, expected)
