"""The stack of a simulation: the drivers before and after the upgrade. No driver is loaded."""

import hashlib
from collections.abc import Iterable

from upgrader.core.model.fleet import ImageFacts, Target
from upgrader.core.model.revisions import image_key, plugin_key_of, with_revision

VENDOR, OLD, NEW = "simulated", "1.0.0", "2.0.0"
RESOURCE = "nvidia.com/gpu"
PLUGIN = "simulated/plugin@sha256:" + hashlib.sha256(b"plugin").hexdigest()


def make_target(version: str) -> Target:
    """The requirements of a revision."""
    return with_revision(
        Target(
            stack="simulated",
            revision="",
            driver_vendor=VENDOR,
            driver_version=version,
            plugin_image="simulated/plugin:1",
            resource_name=RESOURCE,
            plugin_digest=PLUGIN,
        )
    )


PLUGIN_KEY = plugin_key_of(make_target(OLD))


def make_image(version: str, kernel: str) -> ImageFacts:
    """The driver image for a kernel."""
    digest = "simulated/driver@sha256:" + hashlib.sha256(f"{version} {kernel}".encode()).hexdigest()
    key = image_key(vendor=VENDOR, version=version, kernel=kernel, digest=digest)
    return ImageFacts(key=key, vendor=VENDOR, version=version, kernel=kernel, digest=digest)


def make_images(kernels: Iterable[str]) -> tuple[ImageFacts, ...]:
    """Both drivers for all kernels, by key."""
    images = [make_image(version, kernel) for kernel in set(kernels) for version in (OLD, NEW)]
    return tuple(sorted(images, key=lambda image: image.key))
