"""Which driver images a stack asks for by itself: those that its nodes are about to need and nobody has declared. Pure.

An image is made only as one of the same vendor is made already: recipe, flavour, distribution and architecture come
from a DriverImage that is there. A driver whose images people bring has no recipe, and is asked of them by name.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.driver_image.missing_images import Driver, build_of, driver_had, driver_of
from upgrader.core.gpu_stack.drift import would_lack
from upgrader.core.model.fleet import ImageBuild, Snapshot, Target


class Need(StrEnum):
    """What for, as one word."""

    REPAIR = "Repair"
    INSTALL = "Install"
    ROLLOUT = "Rollout"


class Wish(Struct, frozen=True, kw_only=True, order=True):
    """An image that is to be: for which driver and kernel, on nodes of which distribution and architecture."""

    driver: Driver
    kernel: str
    os: str = ""  # empty: as the template has it
    arch: str = ""


class Template(Struct, frozen=True, kw_only=True):
    """How images of a driver are made."""

    recipe: str
    flavour: str
    os: str
    arch: str


def wishes(snapshot: Snapshot, target: Target, *, goal: Target, ahead: bool) -> tuple[Wish, ...]:
    """Images that nodes need and that no DriverImage is for, in any phase.

    `goal`: what a node without a driver is given; `ahead`: whether a plan to `target` is to follow, so that its images
    are made too.
    """
    catalogue = Catalogue(snapshot.images)
    found: dict[tuple[Driver, str], Wish] = {}
    for node in snapshot.nodes:
        if node.left_alone or not node.kernel:
            continue
        own = catalogue.of(node) or catalogue.had(node)
        here = [(driver_had(own) if own is not None else driver_of(goal), node.kernel)]
        here += [(driver_of(target), target.kernel_of(node))] if ahead else []
        coming = would_lack(node, catalogue)
        for driver, kernel in [*here, *([(coming, node.pending_kernel)] if coming is not None else [])]:
            if build_of(snapshot.builds, driver, kernel) is None:
                found.setdefault((driver, kernel), Wish(driver=driver, kernel=kernel, os=node.os, arch=node.arch))
    return tuple(sorted(found.values()))


def template(builds: Sequence[ImageBuild], wish: Wish) -> Template | None:
    """How the image is to be made: by its own recipe, else as another DriverImage of the vendor; None: unknown.

    The same driver's before another version's, the node's distribution before another; then the name decides.
    """
    driver = wish.driver
    if driver.recipe and wish.os and wish.arch:
        return Template(recipe=driver.recipe, flavour=driver.flavour, os=wish.os, arch=wish.arch)
    made = [
        one for one in builds if one.vendor == driver.vendor and one.recipe and driver.made_by(one.recipe, one.flavour)
    ]
    near = min(
        made,
        key=lambda one: (one.version != wish.driver.version, one.os != wish.os, one.name),
        default=None,
    )
    if near is None:
        return None
    return Template(recipe=near.recipe, flavour=near.flavour, os=wish.os or near.os, arch=wish.arch or near.arch)
