"""A node comes back from a reboot with another kernel (its name is simulated, everything else is real)."""

import pytest

from tests.e2e.conftest import Pool, settled
from upgrader.api.resources import DRIVER_IMAGES, NODE_UPGRADES, PODS
from upgrader.core.model.phases import DriverImagePhase, NodePhase
from upgrader.images.publish import push_driver
from upgrader_dev.demo import manifests, waiting

pytestmark = [pytest.mark.e2e]

KERNEL = "6.1.0-50-amd64"


async def test_a_node_with_a_new_kernel_is_brought_back_to_the_revision_it_had(pool: Pool) -> None:
    driver = await settled(pool)
    (revision,) = await pool.revisions()
    box = pool.made.cluster.box_node("gpu-c")
    registry = pool.made.cluster.registry
    image = await waiting.in_thread(push_driver, registry, version=driver, kernel=KERNEL, progress=print)
    declared = manifests.driver_image(driver, KERNEL, image)
    await pool.kube.apply(DRIVER_IMAGES, declared)
    name = declared["metadata"]["name"]
    await pool.eventually(DRIVER_IMAGES, name, lambda one: one.status.phase is DriverImagePhase.READY)
    try:
        await _reboot(box, KERNEL)
        await waiting.poll_until(lambda: _repaired(pool, KERNEL), 180, "gpu-c is repaired on its new kernel")
        node = (await pool.nodes())["gpu-c"]
        assert node.status.node_info.kernel_version == KERNEL
        assert node.metadata.labels["gpu-upgrader.io/revision"] == revision
        assert node.status.allocatable["nvidia.com/gpu"] in {"8", 8}
        await pool.nothing_left()
    finally:
        await _reboot(box, pool.made.kernel)
        await waiting.poll_until(lambda: _repaired(pool, pool.made.kernel), 180, "gpu-c is repaired again")


async def test_a_node_with_a_kernel_without_an_image_waits_without_a_driver_and_is_brought_back(pool: Pool) -> None:
    """No driver pod crash-loops there, and nobody says anything but what the image is."""
    driver = await settled(pool)
    (revision,) = await pool.revisions()
    box = pool.made.cluster.box_node("gpu-c")
    registry = pool.made.cluster.registry
    kernel = "6.1.0-56-amd64"
    try:
        await _reboot(box, kernel)
        await waiting.poll_until(lambda: _without_driver(pool), 120, "gpu-c has no driver any more")
        node = (await pool.nodes())["gpu-c"]
        assert node.metadata.labels["gpu-upgrader.io/driver"] == "none"
        assert "gpu-upgrader.io/revision" not in node.metadata.labels
        await waiting.poll_until(lambda: _no_driver_pod(pool), 60, "no driver pod is left on gpu-c")
        image = await waiting.in_thread(push_driver, registry, version=driver, kernel=kernel, progress=print)
        await pool.kube.apply(DRIVER_IMAGES, manifests.driver_image(driver, kernel, image))
        await waiting.poll_until(lambda: _repaired(pool, kernel), 240, "gpu-c is repaired with the image")
        node = (await pool.nodes())["gpu-c"]
        assert node.metadata.labels["gpu-upgrader.io/revision"] == revision
        assert not await _without_driver(pool)
        await pool.nothing_left()
    finally:
        await _reboot(box, pool.made.kernel)
        await waiting.poll_until(lambda: _in_service(pool, revision), 240, "gpu-c is in service again")


async def _without_driver(pool: Pool) -> bool:
    return "gpu-upgrader.io/removed-driver" in (await pool.nodes())["gpu-c"].metadata.annotations


async def _no_driver_pod(pool: Pool) -> bool:
    labels = "gpu-upgrader.io/component=driver"
    return not [one for one in await pool.kube.list(PODS, labels=labels) if one.spec.node_name == "gpu-c"]


async def _in_service(pool: Pool, revision: str) -> bool:
    node = (await pool.nodes())["gpu-c"]
    same = node.status.node_info.kernel_version == pool.made.kernel
    return same and node.metadata.labels.get("gpu-upgrader.io/revision") == revision


async def _reboot(box, kernel: str) -> None:
    def power_cycle() -> None:
        box.set_kernel(kernel)
        box.power_off()
        box.power_on()
        box.wait_ready()

    await waiting.in_thread(power_cycle)


async def _repaired(pool: Pool, kernel: str) -> bool:
    upgrades = [one for one in await pool.kube.list(NODE_UPGRADES) if one.spec.reason == "Repair"]
    return any(one.spec.target.kernel == kernel and one.status.phase is NodePhase.SUCCEEDED for one in upgrades)
