"""DriverImages that a stack makes by itself, and takes away again when no node could ask for them any more."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import structlog

from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core import timing
from upgrader.core.errors import ClusterError, ConflictError
from upgrader.core.gpu_stack.image_wishes import Template, Wish, template, wishes
from upgrader.core.gpu_stack.proposals import OnDrift
from upgrader.core.model.fleet import Target
from upgrader.core.naming import object_name
from upgrader.reconcile.observe.image_uses import needs_of, read_needs
from upgrader.reconcile.observe.stack_reading import StackReading
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()

AT_ONCE = 20
"""Made in one step of a stack: more kernels than that are no upgrade, and each is a build of minutes."""
KEPT = timedelta(days=7)
"""Age from which an image of ours goes that nobody needs: a node that comes back from a repair finds it still."""


async def ensure(context: Context, read: StackReading, goal: Target) -> bool:
    """Make what is missing, as far as it is known how; whether any was."""
    ahead = read.stack.spec.on_drift is not OnDrift.REPORT
    made = False
    wanted = (
        (one, template(read.snapshot.builds, one)) for one in wishes(read.snapshot, read.target, goal=goal, ahead=ahead)
    )
    known = [(wish, how) for wish, how in wanted if how is not None]
    for wish, how in known[:AT_ONCE]:
        made |= await _create(context, read.stack.metadata.name, wish, how)
    return made


async def _create(context: Context, stack: str, wish: Wish, how: Template) -> bool:
    context.leadership.check()
    try:
        await context.cluster.create(DRIVER_IMAGES, manifest(wish, how, {names.LABEL_STACK: stack}))
    except ConflictError:
        return False  # made before a restart, or by another stack: its name says what it is for
    except ClusterError as error:
        if not error.refused:
            raise
        log.warning("driver image not asked for", name=wish.kernel, because=error.brief, details=error.details)
        return False
    log.info("driver image asked for", driver=str(wish.driver), kernel=wish.kernel, recipe=how.recipe)
    return True


def manifest(wish: Wish, how: Template, labels: Mapping[str, str]) -> dict[str, Any]:
    """A DriverImage. Its name says what it is for, so that whoever asks for it asks for the same."""
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


async def prune(context: Context, read: StackReading) -> None:
    """Delete images that this stack has made, whose kernel no node runs and that nothing names, after a while."""
    found = await context.cluster.list(DRIVER_IMAGES, labels=f"{names.LABEL_STACK}={read.stack.metadata.name}")
    known = context.nodes.snapshot()
    if not known:
        return  # no node was seen, so nothing is known
    here = needs_of(known.values(), read.upgrades, [read.target])
    spare = [one for one in found if _old(context, one) and not here.has(one)]
    if not spare:
        return  # as nearly always: what others may need is not read for it
    needs = await read_needs(context, known.values(), [read.target])
    for one in spare:
        if not needs.has(one):
            context.leadership.check()
            log.info("driver image that nobody needs", name=one.metadata.name, kernel=one.spec.kernel)
            await context.cluster.delete(DRIVER_IMAGES, one.metadata)


def _old(context: Context, image: DriverImage) -> bool:
    return context.clock.now() - timing.parse(image.metadata.creation_timestamp) >= KEPT
