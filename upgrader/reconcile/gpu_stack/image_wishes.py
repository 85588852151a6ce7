"""DriverImages that a stack creates by itself, and deletes when no node can need them any more."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import structlog

from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core import timing
from upgrader.core.errors import ClusterError, ConflictError
from upgrader.core.gpu_stack.image_wishes import ImageRequest, Template, choose_template, find_wishes
from upgrader.core.gpu_stack.proposals import OnDrift
from upgrader.core.model.fleet import Target
from upgrader.core.naming import object_name
from upgrader.reconcile.observe.image_uses import needs_of, read_needs
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()

AT_ONCE = 20
"""Images created in one step of a stack at most; each is a build of minutes."""
KEPT = timedelta(days=7)
"""Minimum age of an unneeded image before its deletion, so that a node that returns after a while finds it."""


async def ensure_images(context: Context, read: StackReading, goal: Target) -> bool:
    """Create missing images that have a template; whether any was created."""
    ahead = read.stack.spec.on_drift is not OnDrift.REPORT
    made = False
    wanted = (
        (wish, choose_template(read.snapshot.builds, wish))
        for wish in find_wishes(read.snapshot, read.target, goal=goal, ahead=ahead)
    )
    known = [(wish, how) for wish, how in wanted if how is not None]
    for wish, how in known[:AT_ONCE]:
        made |= await _create_image(context, read.stack.metadata.name, wish, how)
    return made


async def _create_image(context: Context, stack: str, wish: ImageRequest, how: Template) -> bool:
    context.leadership.check()
    try:
        await context.cluster.create(DRIVER_IMAGES, driver_image_manifest(wish, how, {names.LABEL_STACK: stack}))
    except ConflictError:
        return False  # created before a restart, or by another stack: the name follows from the content
    except ClusterError as error:
        if not error.refused:
            raise
        log.warning("driver image not requested", name=wish.kernel, because=error.brief, details=error.details)
        return False
    log.info("driver image requested", driver=str(wish.driver), kernel=wish.kernel, recipe=how.recipe)
    return True


def driver_image_manifest(wish: ImageRequest, how: Template, labels: Mapping[str, str]) -> dict[str, Any]:
    """A DriverImage. Its name follows from its content, so that equal wishes give the same object."""
    identity = (wish.driver.vendor, wish.driver.version, wish.kernel, how.recipe, how.flavour, how.os, how.arch)
    return {
        "apiVersion": DRIVER_IMAGES.api_version,
        "kind": DRIVER_IMAGES.kind,
        "metadata": {
            "name": object_name(f"{how.recipe}-{wish.driver.version}-{wish.kernel}", *identity),
            "labels": dict(labels),
        },
        "spec": {
            "vendor": wish.driver.vendor,
            "version": wish.driver.version,
            "kernel": wish.kernel,
            "recipe": how.recipe,
            "arch": how.arch,
            **{key: value for key, value in (("flavour", how.flavour), ("os", how.os)) if value},
        },
    }


async def prune_images(context: Context, read: StackReading) -> None:
    """Delete old images of this stack whose kernel no node runs and that no object names."""
    images = await context.cluster.list(DRIVER_IMAGES, labels=f"{names.LABEL_STACK}={read.stack.metadata.name}")
    known = context.nodes.snapshot()
    if not known:
        return  # without nodes, nothing is known
    here = needs_of(known.values(), read.upgrades, [read.target])
    spare = [image for image in images if _is_old(context, image) and not here.has(image)]
    if not spare:
        return  # the usual case: the needs of other stacks are not read
    needs = await read_needs(context, known.values(), [read.target])
    for image in spare:
        if not needs.has(image):
            context.leadership.check()
            log.info("driver image no longer needed", name=image.metadata.name, kernel=image.spec.kernel)
            await context.cluster.delete(DRIVER_IMAGES, image.metadata)


def _is_old(context: Context, image: DriverImage) -> bool:
    return context.clock.now() - timing.parse_time(image.metadata.creation_timestamp) >= KEPT
