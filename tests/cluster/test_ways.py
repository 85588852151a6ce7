"""Each way asks a real pod under a real kubelet, reads its answer and lets it train on."""

from typing import Any

import msgspec
import pytest

from tests.support.manifests import checkpoint_request
from tests.support.waiting import eventually
from upgrader.api import names
from upgrader.api.resources import PODS
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.checkpoint.ways import ways
from upgrader.core.acknowledgement import Answer
from upgrader.core.errors import UnaskableError
from upgrader.core.replies import Ran
from upgrader.images.publish import push_trainer
from upgrader.kube.client import KubeCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

TRAINS = """
import signal, sys, time
sys.path.insert(0, "/app")
from workload import CheckpointListener, serve

way, called = sys.argv[1], []
signal.signal(signal.SIGUSR1, lambda *_: called.append(1))
serve(8080)
listener = CheckpointListener(requests="/etc/gpu-upgrader" if way == "file" else "/run/checkpoint")
step = 0
while True:
    step += 1
    listener.progress(step)
    time.sleep(0.1)
    request = listener.requested() if way != "signal" or called else None
    if request is not None:
        listener.acknowledge(request, step, "/data/ckpt")
        listener.park(request)
"""
HOW: dict[str, dict[str, Any]] = {
    "file": {},
    "exec": {"command": ["python3", "/app/workload.py"]},
    "http": {"endpoint": ":8080/checkpoint"},
    "signal": {"signal": "SIGUSR1"},
}


@pytest.fixture(scope="module")
def boxed(start_cluster):
    """One box, and the image with Python in it."""
    cluster = start_cluster("ways", boxes=1)
    cluster.box_node("gpu-a").wait_ready()
    return cluster, push_trainer(cluster.registry, progress=print)


@pytest.fixture
async def kube(boxed):
    async with await KubeCluster.connect(str(boxed[0].kubeconfig)) as connected:
        yield connected


def manifest(way: str, image: str) -> dict[str, Any]:
    files = [
        {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}
        for path, name in names.REQUEST_FILES.items()
    ]
    container = {
        "name": "trainer",
        "image": image,
        "command": ["python3", "-c", TRAINS, way],
        "env": [{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        "volumeMounts": [
            {"name": "request", "mountPath": names.REQUEST_DIRECTORY},
            {"name": "answers", "mountPath": names.ANSWER_DIRECTORY},
        ],
    }
    volumes = [{"name": "request", "downwardAPI": {"items": files}}, {"name": "answers", "emptyDir": {}}]
    spec = {"nodeName": "gpu-a", "terminationGracePeriodSeconds": 1, "containers": [container], "volumes": volumes}
    return {"metadata": {"name": f"asked-by-{way}", "namespace": "default"}, "spec": spec}


def request_for(pod, **how) -> CheckpointRequest:
    body = checkpoint_request()
    member = {"pod": pod.metadata.name, "uid": pod.metadata.uid, "node": "gpu-a", "container": "trainer"}
    body["spec"] |= {"requestId": 100, "parkSeconds": 600, "members": [member], **how}
    return msgspec.convert(body, CheckpointRequest)


@pytest.fixture
async def training(boxed, kube):
    """Start a pod that trains, by the way that it is asked; gives it once it has said its first step."""
    made = []

    async def start(way: str):
        made.append(await kube.create(PODS, manifest(way, boxed[1])))
        name = made[-1].metadata.name
        pod = await eventually(lambda: kube.get(PODS, name, "default"), lambda one: one.status.phase == "Running", 60)
        file = ways(kube)["file"]
        await eventually(lambda: file.progress(request_for(pod), [pod]), seconds=30)
        return pod

    yield start
    for pod in made:
        await kube.delete(PODS, pod.metadata)


@pytest.mark.parametrize("name", HOW)
async def test_a_real_pod_is_asked_answers_and_is_let_go(kube, training, name):
    pod = await training(name)
    way, request = ways(kube)[name], request_for(pod, method=name, **HOW[name])

    async def answers():
        return await way.answers(request, [pod])

    assert await answers() == ()
    await way.ask(request, [pod])
    (said,) = await eventually(answers, lambda found: bool(found) and found[0].parked, 120)
    expected = Answer(pod_uid=pod.metadata.uid, request_id=100, step=said.step, uri="/data/ckpt", parked=True)
    assert said == expected

    for _ in range(20):  # looks that take longer than several of its steps
        assert await way.progress(request, [pod]) == {pod.metadata.uid: said.step}, "parked: no further step"

    pod = await kube.get(PODS, pod.metadata.name, "default")
    assert pod.metadata.annotations[names.ANNOTATION_REQUEST] == "100"
    await way.withdraw(request, [pod])
    await eventually(answers, lambda found: not found[0].parked, 120)
    await eventually(lambda: way.progress(request, [pod]), lambda found: found[pod.metadata.uid] > said.step, 30)
    pod = await kube.get(PODS, pod.metadata.name, "default")
    assert names.ANNOTATION_REQUEST not in pod.metadata.annotations


async def test_what_is_not_there_in_a_real_pod_cannot_be_asked(kube, training):
    """One pod for all, since each is asked in vain."""
    pod = await training("http")
    in_vain = {
        "exec": {"command": ["/no/such/program"]},
        "http": {"endpoint": ":8081/checkpoint"},
    }
    for name, how in in_vain.items():
        with pytest.raises(UnaskableError):
            await ways(kube)[name].ask(request_for(pod, method=name, **how), [pod])
    with pytest.raises(UnaskableError, match="404 is the answer at :8080/else"):
        await ways(kube)["http"].ask(request_for(pod, method="http", endpoint=":8080/else"), [pod])
    pod = await kube.get(PODS, pod.metadata.name, "default")
    assert names.ANNOTATION_REQUEST not in pod.metadata.annotations


async def test_a_command_is_known_by_its_output_and_its_exit_code(kube, training):
    pod = await training("exec")
    words = ["sh", "-c", 'printf "%s\\n" "$A" "$1"; exit 3', "sh", "two words"]
    assert await kube.run(pod, "trainer", words, {"A": "a = 'b'"}) == Ran(output=b"a = 'b'\ntwo words\n", code=3)
    assert await kube.run(pod, "trainer", ["true"], {}) == Ran(output=b"", code=0)
    assert await kube.run(pod, "no-such-container", ["true"], {}) is None
