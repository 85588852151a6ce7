"""What a cluster needs of driver images."""

from upgrader.api import names
from upgrader.api.resources import NODES
from upgrader.core.driver_image.image_garbage import Uses
from upgrader.reconcile.observe.image_uses import read_uses
from upgrader_dev.simulated.cluster.rig import Rig, start_training


async def test_kernels_of_nodes_images_and_upgrades() -> None:
    rig = Rig()
    assert await read_uses(rig.cluster) == Uses()
    await start_training(rig)
    rig.put_image("9.0", "6.1.0-99-amd64")
    await rig.run_second()
    found = await read_uses(rig.cluster)
    installed = {pinned.rpartition("@")[2] for name, pinned in rig.registry.digests.items() if "sim-driver" in name}
    assert found == Uses(
        running=frozenset({"6.1.0-47-amd64"}),
        pending=frozenset({"6.1.0-47-amd64", "6.1.0-99-amd64"}),
        previous=frozenset({"6.1.0-47-amd64"}),
        named=frozenset(installed),
    )


async def test_a_kernel_label_counts_where_it_stands_for_another_kernel_than_the_kubelet_says() -> None:
    rig = Rig()
    labels = {"same": "6.12.94_deb13-amd64", "other": "6.12.95_deb13-amd64"}
    for name, label in labels.items():
        rig.fleet.add_node(name, kernel="6.12.94+deb13-amd64")
        rig.cluster.store.change(NODES, name, {"metadata": {"labels": {names.LABEL_KERNEL_NFD: label}}})
    found = await read_uses(rig.cluster)
    assert found == Uses(running=frozenset({"6.12.94+deb13-amd64", "6.12.95_deb13-amd64"}))
