"""Each way asks a pod, reads its answer and lets it train on: the fleet that tests play with, and a real kubelet."""

import pytest

from tests.support.askable import HOW, PlayedPods, RealPods, request_for
from upgrader.api import names
from upgrader.api.resources import PODS
from upgrader.checkpoint.methods import checkpoint_methods
from upgrader.core.checkpoint_request.acknowledgements import Ack
from upgrader.core.errors import UnaskableError
from upgrader.core.replies import CommandResult
from upgrader.images.publish import push_trainer
from upgrader.kube.client import KubeCluster

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def boxed(start_cluster):
    """One box, and the image with Python in it."""
    cluster = start_cluster("methods", boxes=1)
    cluster.box_node("gpu-a").wait_ready()
    return cluster, push_trainer(cluster.registry, progress=print)


@pytest.fixture(params=["fake", pytest.param("real", marks=[pytest.mark.cluster, pytest.mark.gate])])
def place(request):
    """None, or a cluster and an image; pushing has a loop of its own, so it is done outside of the test's."""
    return None if request.param == "fake" else request.getfixturevalue("boxed")


@pytest.fixture
async def world(place):
    if place is None:
        yield PlayedPods()
        return
    cluster, image = place
    async with await KubeCluster.connect(str(cluster.kubeconfig)) as connected:
        pods = RealPods(connected, image)
        yield pods
        await pods.end()


async def now(world, pod):
    return await world.cluster.get(PODS, pod.metadata.name, "default")


@pytest.mark.parametrize("name", HOW)
async def test_a_pod_is_asked_answers_and_is_released(world, name):
    pod = await world.start(name)
    method, request = checkpoint_methods(world.cluster)[name], request_for(pod, method=name, **HOW[name])

    async def answers():
        return await method.answers(request, [pod])

    assert await answers() == ()
    await method.send_request(request, [pod])
    (said,) = await world.eventually(answers, lambda found: bool(found) and found[0].parked, 120)
    expected = Ack(pod_uid=pod.metadata.uid, request_id=100, step=said.step, uri="/data/ckpt", parked=True)
    assert said == expected

    for _ in range(20):  # longer than several of its steps take
        world.tick()
        assert await method.progress(request, [pod]) == {pod.metadata.uid: said.step}, "parked: no further step"

    pod = await now(world, pod)
    assert pod.metadata.annotations[names.ANNOTATION_REQUEST] == "100"
    await method.withdraw(request, [pod])
    await world.eventually(answers, lambda found: not found[0].parked, 120)
    await world.eventually(
        lambda: method.progress(request, [pod]), lambda found: found[pod.metadata.uid] > said.step, 120
    )
    assert names.ANNOTATION_REQUEST not in (await now(world, pod)).metadata.annotations


@pytest.mark.parametrize("name", ["exec", "http", "signal"])
async def test_the_mark_alone_asks_nobody_who_listens_another_way(world, name):
    pod = await world.start(name)
    method, request = checkpoint_methods(world.cluster)[name], request_for(pod, method=name, **HOW[name])
    await checkpoint_methods(world.cluster)["file"].send_request(request, [pod])
    before = await method.progress(request, [pod])
    await world.eventually(
        lambda: method.progress(request, [pod]),
        lambda found: found[pod.metadata.uid] > before[pod.metadata.uid] + 5,
        30,
    )
    assert await method.answers(request, [pod]) == ()


@pytest.mark.parametrize("name", ["exec", "http", "signal"])
async def test_a_pod_that_was_asked_and_is_not_marked_yet_is_released_as_well(world, name):
    """Its answer got lost on the way back: it is known as one that may have heard."""
    pod = await world.start(name)
    method, request = checkpoint_methods(world.cluster)[name], request_for(pod, method=name, **HOW[name])
    await method.send_request(request, [pod])
    await world.eventually(lambda: method.answers(request, [pod]), lambda found: bool(found) and found[0].parked, 120)
    marked = await now(world, pod)
    await checkpoint_methods(world.cluster)["file"].withdraw(request, [marked])
    await method.withdraw(request_for(pod, missed=True, method=name, **HOW[name]), [await now(world, pod)])
    await world.eventually(lambda: method.answers(request, [pod]), lambda found: not found[0].parked, 120)


async def test_what_is_not_there_in_a_pod_cannot_be_asked(world):
    """One pod for all, since each is asked in vain."""
    pod = await world.start("http")
    in_vain = {
        "exec": {"command": ["/no/such/program"]},
        "http": {"endpoint": ":8081/checkpoint"},
    }
    for name, how in in_vain.items():
        with pytest.raises(UnaskableError) as raised:
            await checkpoint_methods(world.cluster)[name].send_request(request_for(pod, method=name, **how), [pod])
        assert raised.value.missed == {pod.metadata.uid: raised.value.brief}
    with pytest.raises(UnaskableError, match="404 is the response at :8080/else"):
        await checkpoint_methods(world.cluster)["http"].send_request(
            request_for(pod, method="http", endpoint=":8080/else"), [pod]
        )
    assert names.ANNOTATION_REQUEST not in (await now(world, pod)).metadata.annotations


async def test_a_command_is_run_in_a_container_that_is_there(world):
    pod = await world.start("exec")
    container = pod.spec.containers[0].name
    env = {"CHECKPOINT_ACTION": "answer", "CHECKPOINT_POD_UID": pod.metadata.uid}
    command = ["python3", "/app/workload.py"]
    assert await world.cluster.run(pod, container, command, env) == CommandResult(output=b"", code=0)
    assert await world.cluster.run(pod, container, ["/no/such/program"], env) == CommandResult(output=b"", code=127)
    assert await world.cluster.run(pod, "no-such-container", command, env) is None
