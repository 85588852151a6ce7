"""What a cluster needs of driver images."""

from tests.support.rig import Rig, running
from upgrader.core.image_garbage import Uses
from upgrader.reconcile.image_uses import read_uses


async def test_kernels_of_nodes_images_and_visits() -> None:
    rig = Rig()
    assert await read_uses(rig.cluster) == Uses()
    await running(rig)
    rig.image("9.0", "6.1.0-99-amd64")
    await rig.second()
    found = await read_uses(rig.cluster)
    installed = {pinned.rpartition("@")[2] for name, pinned in rig.registry.digests.items() if "sim-driver" in name}
    assert found == Uses(
        running=frozenset({"6.1.0-47-amd64"}),
        pending=frozenset({"6.1.0-47-amd64", "6.1.0-99-amd64"}),
        previous=frozenset({"6.1.0-47-amd64"}),
        named=frozenset(installed),
    )
