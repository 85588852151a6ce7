"""Container images that a virtual node has from the start: pulled as any other, and nothing of them comes again."""

import pytest

from tests.support.plain_pods import PlainPods, until
from upgrader.images.product import Images
from upgrader.images.publish import StaticPrograms, product_layouts, push_trainer
from upgrader_dev.devcluster import cosign_program, kubelet_program

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

WORKS = {"imagePullPolicy": "IfNotPresent"}


@pytest.fixture(scope="module")
def cluster(start_cluster):
    """A virtual node that has our images, but for kubelets, before it boots."""
    programs = StaticPrograms(
        kubelet=lambda version: kubelet_program(version, print), cosign=lambda: cosign_program(print)
    )
    with Images(print) as images:
        layouts = product_layouts(images, kubelets=(), programs=programs)
    return start_cluster("ready", boxes=0, vms=1, vm_images=tuple(layouts.values()))


@pytest.fixture
def pods(cluster):
    made = PlainPods(cluster)
    yield made
    made.delete_all()


def unpacked(node):
    """Keys of the layers that containerd has unpacked."""
    listed = node.enter("ctr", "-n", "k8s.io", "snapshots", "ls").text.splitlines()
    return {line.split()[0] for line in listed if line.split()[-1] == "Committed"}


def test_a_pull_unpacks_nothing_also_after_a_power_cut(cluster, pods):
    image = push_trainer(cluster.registry, progress=print)
    node = cluster.virtual_node("vm-a")
    pods.start("first", "vm-a", "true")  # by then the sandboxes' image is there, which comes with the boot
    before = unpacked(node)
    assert len(before) > 1  # the sandboxes' alone is one

    for name in ("second", "third"):
        pods.start(name, "vm-a", "true", container={"image": image, **WORKS})
        until(lambda name=name: pods.get(name)["status"]["phase"] == "Succeeded")
        assert unpacked(node) == before
        if name == "second":
            node.power_off()
            node.power_on()
            node.wait_ready()
