"""A command in a real pod: its variables, its words, its output and its exit code."""

import pytest

from tests.support.askable import RealPods
from upgrader.core.replies import CommandResult
from upgrader.images.publish import push_trainer
from upgrader.kube.client import KubeCluster

pytestmark = [pytest.mark.cluster, pytest.mark.gate, pytest.mark.timeout(900)]


@pytest.fixture
def boxed(start_cluster):
    """One box, and the image with Python in it."""
    cluster = start_cluster("commands", boxes=1)
    cluster.box_node("gpu-a").wait_ready()
    return cluster, push_trainer(cluster.registry, progress=print)


async def test_a_command_is_known_by_its_output_and_its_exit_code(boxed):
    cluster, image = boxed
    async with await KubeCluster.connect(str(cluster.kubeconfig)) as kube:
        pods = RealPods(kube, image)
        pod = await pods.start("exec")
        words = ["sh", "-c", 'printf "%s\\n" "$A" "$1"; exit 3', "sh", "two words"]
        assert await kube.run(pod, "trainer", words, {"A": "a = 'b'"}) == CommandResult(
            output=b"a = 'b'\ntwo words\n", code=3
        )
        assert await kube.run(pod, "trainer", ["true"], {}) == CommandResult(output=b"", code=0)
        await pods.end()
