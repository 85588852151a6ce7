"""One step of a DriverImage that people bring themselves: its reference becomes a digest and a key, once."""

from typing import Any

from upgrader.api.resources import DRIVER_IMAGES
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core import timing
from upgrader.core.errors import RegistryError
from upgrader.core.phases import DriverImagePhase, row
from upgrader.core.revisions import image_key
from upgrader.reconcile.context import Context, record

RETRY_SECONDS = 10.0


async def step(context: Context, name: str) -> float | None:
    """Resolve the image; seconds until it is tried again, None when there is nothing left to do.

    A registry that does not answer never makes an image unusable: only its "no such image" does, for long enough.
    """
    image = await context.cluster.get(DRIVER_IMAGES, name)
    if image is None or image.status.phase is DriverImagePhase.READY:
        return None
    status = await _resolve(context, image)
    context.crash.reached(("DriverImage", image.status.phase.value, "after-act"))
    phase = DriverImagePhase(status["phase"])
    if phase is not image.status.phase or status["message"] != image.status.message:
        await record(context, DRIVER_IMAGES, image.metadata, status, left=image.status.phase, entered=phase)
    return None if phase is DriverImagePhase.READY else RETRY_SECONDS


async def _resolve(context: Context, image: DriverImage) -> dict[str, Any]:
    now = context.clock.now()
    try:
        digest = await context.registry.digest(image.spec.image)
    except RegistryError as error:
        known = image.status.phase is DriverImagePhase.UNUSABLE  # nothing new was learnt
        return {
            "phase": (DriverImagePhase.UNUSABLE if known else DriverImagePhase.RETRYING).value,
            "message": f"the registry did not answer, trying again: {error.brief}",
            "checkedAt": timing.show(now),
        }
    if digest is not None:
        key = image_key(vendor=image.spec.vendor, version=image.spec.version, kernel=image.spec.kernel, digest=digest)
        return {
            "phase": DriverImagePhase.READY.value,
            "message": "pinned by its digest",
            "digest": digest,
            "key": key,
            "checkedAt": timing.show(now),
        }
    waited = (now - timing.parse(image.metadata.creation_timestamp)).total_seconds()
    phase = (
        DriverImagePhase.UNUSABLE
        if waited > (row(DriverImagePhase.RETRYING).seconds or 0)
        else DriverImagePhase.RETRYING
    )
    return {
        "phase": phase.value,
        "message": f"{image.spec.image} is not in its registry; push it or correct spec.image",
        "checkedAt": timing.show(now),
    }
