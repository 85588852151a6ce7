"""Kernels for which there is no driver image: what is known of them, and what would help. Pure.

A node has no driver image while it runs a kernel that no image of its driver is for. Nothing is drained for it, and
nothing may crash-loop on it: its driver label is `none` until there is an image.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from upgrader.core import untrusted
from upgrader.core.model.fleet import ImageBuild, ImageFacts, RemovedDriver, Target
from upgrader.core.model.phases import DriverImagePhase

SHOWN = 3
"""Alternatives that a sentence names; the others are counted."""

LONGEST = 300
"""Characters of a build's message that a sentence repeats: its class and first error; all of it is in its object."""

_CODE_NAME = re.compile(r"\(([a-z]+)\)\s*\Z")
_P = DriverImagePhase
HOPELESS = frozenset({_P.UNBUILDABLE, _P.UNUSABLE})
"""Phases that last until a person, a package or another image changes something."""


class Driver(Struct, frozen=True, kw_only=True, order=True):
    """Whose driver, in which version, made by which recipe; empty where any will do."""

    vendor: str
    version: str
    recipe: str = ""
    flavour: str = ""

    def __str__(self) -> str:
        return f"{self.recipe or self.vendor} {self.version}"

    def made_by(self, recipe: str, flavour: str) -> bool:
        """Whether an image of this recipe and flavour is it; one that a person brought may say neither."""
        return (not self.recipe or recipe in {"", self.recipe}) and (not self.flavour or flavour in {"", self.flavour})


def driver_of(target: Target) -> Driver:
    """The driver that a revision asks for."""
    return Driver(
        vendor=target.driver_vendor,
        version=target.driver_version,
        recipe=target.driver_recipe,
        flavour=target.driver_flavour,
    )


def driver_had(image: ImageFacts) -> Driver:
    """The driver of an image that a node has or had."""
    return Driver(vendor=image.vendor, version=image.version, recipe=image.recipe, flavour=image.flavour)


def read_removed_driver(text: str | None) -> RemovedDriver | None:
    """What we kept on a node when we took its driver away; None where there is nothing that can be read.

    It is installed anew then, as a node is of which nobody knows what it had.
    """
    return untrusted.document(text, RemovedDriver)


def code_name(os_image: str) -> str:
    """The code name that a node's `osImage` ends with, as `Debian GNU/Linux 12 (bookworm)`; empty where none does."""
    found = _CODE_NAME.search(os_image)
    return found[1] if found is not None else ""


def build_of(builds: Iterable[ImageBuild], driver: Driver, kernel: str) -> ImageBuild | None:
    """The DriverImage for a driver on a kernel, in the phase that is nearest to being Ready."""
    known = (one for one in builds if (one.vendor, one.version, one.kernel) == (driver.vendor, driver.version, kernel))
    fitting = [one for one in known if driver.made_by(one.recipe, one.flavour)]
    return min(fitting, key=lambda one: (_NEAREST.index(one.phase), one.name), default=None)


def why_no_image(builds: Sequence[ImageBuild], driver: Driver, kernel: str) -> str:
    """What is known of the image that is missing, and what would help, as sentences."""
    return f"There is no Ready DriverImage for {driver} on kernel {kernel}.{known_of(builds, driver, kernel)}"


ALLOW = "set UPGRADER_IMAGE_KEY for the controller, or spec.driver.unverified: Allow in the stack"
"""What to do about an image that nobody vouches for."""


def known_of(builds: Sequence[ImageBuild], driver: Driver, kernel: str) -> str:
    """What goes on with a missing image, and what would help; empty, or sentences with a blank in front."""
    build = build_of(builds, driver, kernel)
    because = f": {build.message[:LONGEST].rstrip('.')}" if build is not None and build.message else ""
    said = f" DriverImage {build.name} is {build.phase.value}{because}." if build is not None else ""
    if build is not None and build.unverified:
        said = f" DriverImage {build.name} is not verified: {ALLOW}."
    others = alternatives(builds, driver, kernel)
    return f"{said} Alternatives: {'; '.join(others)}." if others else said


def alternatives(builds: Sequence[ImageBuild], driver: Driver, kernel: str) -> tuple[str, ...]:
    """What is Ready instead: other versions for the kernel, and other kernels for the driver."""
    ready = [one for one in builds if one.phase is _P.READY and one.vendor == driver.vendor]
    same = [one for one in ready if one.version == driver.version and driver.made_by(one.recipe, one.flavour)]
    drivers = sorted({_named(one) for one in ready if one.kernel == kernel and one not in same})
    kernels = sorted({one.kernel for one in same if one.kernel != kernel})
    found = (f"driver {_some(drivers)} for this kernel" * bool(drivers), f"kernel {_some(kernels)}" * bool(kernels))
    return tuple(one for one in found if one)


def _named(image: ImageBuild) -> str:
    return f"{image.recipe or image.vendor} {image.version}"


def _some(words: Sequence[str]) -> str:
    rest = len(words) - SHOWN
    return ", ".join(words[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


_NEAREST = (_P.READY, _P.VERIFYING, _P.BUILDING, _P.PENDING, _P.RETRYING, _P.UNBUILDABLE, _P.UNUSABLE)
