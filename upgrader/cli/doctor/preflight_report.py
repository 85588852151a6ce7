"""Jobs of `upgrader preflight`, which check nodes against the state that the cluster expects."""

from collections.abc import Sequence

import msgspec

from upgrader.api.kubernetes import Node
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, NODES
from upgrader.api.v1alpha1 import DriverImage, GpuStack
from upgrader.core import timing
from upgrader.core.errors import ConfigurationError
from upgrader.core.node_protocol.orders import NodeDriver, ValidateDriverOrder
from upgrader.reconcile.facts.node_facts import node_facts
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.node_pods.preflight import preflight_job
from upgrader.stack.parts import Manifest
from upgrader.stack.settings import StackSettings


async def preflight_jobs(
    context: Context, nodes: Sequence[str], *, image: str, namespace: str, run: str
) -> list[Manifest]:
    """A Job for each node.

    Args:
        context: context of the cluster.
        nodes: names of the nodes.
        image: node image, by digest.
        namespace: namespace of the controller.
        run: name of the check; defaults to the current time.

    Raises:
        ConfigurationError: a node is not found, or is not managed by a stack.
    """
    stacks = await context.cluster.list(GPU_STACKS)
    images = {image.status.key: image for image in await context.cluster.list(DRIVER_IMAGES) if image.status.key}
    settings = msgspec.structs.replace(StackSettings(node_image=image), namespace=namespace)
    name = run or timing.format_time(context.clock.now())
    jobs = []
    for node_name in nodes:
        node = await context.cluster.get(NODES, node_name)
        if node is None:
            raise ConfigurationError(f"node {node_name} not found")
        jobs.append(preflight_job(node_name, name, _validate_order(node, stacks, images), settings))
    return jobs


def _validate_order(node: Node, stacks: Sequence[GpuStack], images: dict[str, DriverImage]) -> ValidateDriverOrder:
    name = node.metadata.name
    stack = next((stack for stack in stacks if cluster_snapshot.in_pool(node, stack.spec)), None)
    if stack is None:
        raise ConfigurationError(f"no stack selects node {name}: its expected driver is unknown")
    resource = stack.spec.device_plugin.resource_name
    facts = node_facts(node, resource)
    image = images.get(facts.driver_key)
    if image is None:
        raise ConfigurationError(
            f"node {name} has no driver of an existing DriverImage",
            details=f"image key on the node: {facts.driver_key or 'none'}",
            resolution=f"See `upgrader why {name}` for the state of the node.",
        )
    return ValidateDriverOrder(
        driver=NodeDriver(vendor=image.spec.vendor, version=image.spec.version),
        resource=resource,
        boot_id=facts.boot_id,
        expected=facts.gpus,
    )
