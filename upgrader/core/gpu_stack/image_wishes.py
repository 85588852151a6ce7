"""Driver images that a stack requests without a user: needed by its nodes, and not declared yet. Pure.

An image is built only like an existing one of the same vendor: recipe, flavour, distribution and architecture come from
a DriverImage that exists. A driver whose images people supply has no recipe, and a message names it as missing.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.driver_image.missing_images import DriverSelector, build_of, driver_had, driver_of
from upgrader.core.gpu_stack.drift import would_lack
from upgrader.core.model.fleet import ImageBuild, Snapshot, Target


class ImagePurpose(StrEnum):
    """The purpose of an image, as one word."""

    REPAIR = "Repair"
    INSTALL = "Install"
    ROLLOUT = "Rollout"


class ImageRequest(Struct, frozen=True, kw_only=True, order=True):
    """An image to be built: its driver and kernel, and the distribution and architecture of its nodes."""

    driver: DriverSelector
    kernel: str
    os: str = ""  # empty: that of the template
    arch: str = ""


class Template(Struct, frozen=True, kw_only=True):
    """How images of a driver are built."""

    recipe: str
    flavour: str
    os: str
    arch: str


def find_wishes(snapshot: Snapshot, target: Target, *, goal: Target, ahead: bool) -> tuple[ImageRequest, ...]:
    """Images that nodes need and for which there is no DriverImage, in any phase.

    `goal`: the target of a node without a driver; `ahead`: whether a plan to `target` is to follow, so that its images
    are made as well.
    """
    catalogue = Catalogue(snapshot.images)
    wanted: dict[tuple[DriverSelector, str], ImageRequest] = {}
    for node in snapshot.nodes:
        if node.left_alone or not node.kernel:
            continue
        own = catalogue.image_of(node) or catalogue.former_image(node)
        here = [(driver_had(own) if own is not None else driver_of(goal), node.kernel)]
        here += [(driver_of(target), target.kernel_of(node))] if ahead else []
        coming = would_lack(node, catalogue)
        for driver, kernel in [*here, *([(coming, node.pending_kernel)] if coming is not None else [])]:
            if build_of(snapshot.builds, driver, kernel) is None:
                wanted.setdefault(
                    (driver, kernel), ImageRequest(driver=driver, kernel=kernel, os=node.os, arch=node.arch)
                )
    return tuple(sorted(wanted.values()))


def choose_template(builds: Sequence[ImageBuild], wish: ImageRequest) -> Template | None:
    """How the image is to be built: by its own recipe, else like another DriverImage of the vendor; None: unknown.

    The same version before another, the node's distribution before another; then the name decides.
    """
    driver = wish.driver
    if driver.recipe and wish.os and wish.arch:
        return Template(recipe=driver.recipe, flavour=driver.flavour, os=wish.os, arch=wish.arch)
    of_vendor = [build for build in builds if build.vendor == driver.vendor and build.recipe]
    near = min(
        (build for build in of_vendor if driver.made_by(build.recipe, build.flavour)),
        key=lambda build: (build.version != wish.driver.version, build.os != wish.os, build.name),
        default=None,
    )
    if near is None:
        return None
    return Template(recipe=near.recipe, flavour=near.flavour, os=wish.os or near.os, arch=wish.arch or near.arch)
