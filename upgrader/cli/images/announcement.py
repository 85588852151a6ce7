"""`upgrader images announce`: DriverImages for kernels that an archive has and no node runs yet."""

from collections.abc import Iterable, Sequence

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, NODES
from upgrader.api.v1alpha1 import DriverImage, GpuStack
from upgrader.cli.shared import cluster_reading
from upgrader.core.driver_build.driver_builds import Identity
from upgrader.core.driver_image.missing_images import DriverSelector, code_name, driver_of
from upgrader.core.errors import ConfigurationError, ConflictError
from upgrader.core.gpu_stack.image_wishes import ImageRequest, Template
from upgrader.core.model.fleet import Target
from upgrader.core.node_protocol.node_features import pending_kernel
from upgrader.reconcile.gpu_stack.image_wishes import driver_image_manifest
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.observe.image_uses import Needs, read_needs
from upgrader.reconcile.runtime.context import Context

ANNOUNCED = "announced"
"""Component label of a DriverImage that this command created."""


async def announce_images(context: Context, wanted: Sequence[Identity], stack: str | None) -> list[str]:
    """Create missing DriverImages of `wanted`, delete announced ones that are not wanted any more; a line for each.

    Raises:
        ConfigurationError: the stack is not found.
    """
    stacks = [
        stack_object
        for stack_object in await context.cluster.list(GPU_STACKS)
        if stack in {None, stack_object.metadata.name}
    ]
    if stack is not None and not stacks:
        raise ConfigurationError(f"stack {stack} not found", resolution="`upgrader status` lists all stacks.")
    valid, invalid = cluster_reading.split_targets(stacks)
    nodes = await context.cluster.list(NODES)
    images = await context.cluster.list(DRIVER_IMAGES)
    coming = [identity for identity in wanted if _may_boot_next(identity, valid, nodes, images)]
    missing = [identity for identity in coming if not any(_image_matches(image, identity) for image in images)]
    changes = [f"{identity} is requested" for identity in missing if await _create_image(context, identity)]
    changes += [f"stack {broken.metadata.name} is left out: {error.brief}" for broken, error in invalid]
    if stack is None and not invalid:  # what an unreadable stack needs is unknown, so that nothing is deleted
        needs = await read_needs(context, nodes, [target for _, target in valid])
        changes += [await _delete_image(context, image) for image in _obsolete_images(images, coming, needs)]
    return changes or [f"no changes: {len(coming)} image(s) for kernels that no node runs yet are already requested"]


def _may_boot_next(
    identity: Identity, stacks: Iterable[tuple[GpuStack, Target]], nodes: Iterable[Node], images: Iterable[DriverImage]
) -> bool:
    """Whether a node with the current or wanted driver of a stack may boot the kernel next, since its own is
    older.
    """
    own = {image.status.key: _driver_of_image(image) for image in images if image.status.key}
    for stack, target in stacks:
        wanted = driver_of(target)
        for node in nodes:
            if not cluster_snapshot.in_pool(node, stack.spec) or not _node_may_boot(node, identity):
                continue
            had = own.get(node.metadata.labels.get(names.LABEL_DRIVER, ""))
            if _driver_matches(identity, wanted) or (had is not None and _driver_matches(identity, had)):
                return True
    return False


def _driver_of_image(image: DriverImage) -> DriverSelector:
    spec = image.spec
    return DriverSelector(
        vendor=spec.vendor, version=spec.version, recipe=spec.recipe or "", flavour=spec.flavour or ""
    )


def _image_matches(image: DriverImage, identity: Identity) -> bool:
    return image.spec.kernel == identity.kernel and _driver_matches(identity, _driver_of_image(image))


def _driver_matches(identity: Identity, driver: DriverSelector) -> bool:
    same = (identity.vendor, identity.driver) == (driver.vendor, driver.version)
    return same and driver.made_by(identity.recipe, identity.flavour)


def _node_may_boot(node: Node, identity: Identity) -> bool:
    info = node.status.node_info
    same = code_name(info.os_image) in {"", identity.os} and info.architecture in {"", identity.arch}
    return same and pending_kernel([identity.kernel], info.kernel_version) == identity.kernel


async def _create_image(context: Context, identity: Identity) -> bool:
    wish = ImageRequest(driver=DriverSelector(vendor=identity.vendor, version=identity.driver), kernel=identity.kernel)
    how = Template(recipe=identity.recipe, flavour=identity.flavour, os=identity.os, arch=identity.arch)
    try:
        await context.cluster.create(
            DRIVER_IMAGES, driver_image_manifest(wish, how, {names.LABEL_COMPONENT: ANNOUNCED})
        )
    except ConflictError:
        return False  # its stack has created it meanwhile
    return True


def _obsolete_images(images: Iterable[DriverImage], coming: Iterable[Identity], needs: Needs) -> list[DriverImage]:
    """Announced images that are not wanted any more and that no node, upgrade, plan or stack may request."""
    wanted = list(coming)
    return [
        image
        for image in images
        if image.metadata.labels.get(names.LABEL_COMPONENT) == ANNOUNCED
        and not any(_image_matches(image, identity) for identity in wanted)
        and not needs.has(image)
    ]


async def _delete_image(context: Context, image: DriverImage) -> str:
    await context.cluster.delete(DRIVER_IMAGES, image.metadata)
    return f"{image.spec.vendor} {image.spec.version} for {image.spec.kernel} is no longer requested"
