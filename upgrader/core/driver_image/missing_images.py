"""Missing driver images: kernels without one, the state of builds for them, and alternatives. Pure.

A node has no driver image while it runs a kernel for which there is no image of its driver. No node is drained for it,
and no pod may crash-loop on it: its driver label is `none` until there is an image.
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
"""Characters of a build's message that a sentence contains: its class and first error; its object contains the rest."""

_CODE_NAME = re.compile(r"\(([a-z]+)\)\s*\Z")
_P = DriverImagePhase
HOPELESS = frozenset({_P.UNBUILDABLE, _P.UNUSABLE})
"""Phases that last until a user, a package or another image changes something."""


class DriverSelector(Struct, frozen=True, kw_only=True, order=True):
    """A driver: its vendor, version and recipe; empty if any fits."""

    vendor: str
    version: str
    recipe: str = ""
    flavour: str = ""

    def __str__(self) -> str:
        return f"{self.recipe or self.vendor} {self.version}"

    def made_by(self, recipe: str, flavour: str) -> bool:
        """Whether an image of this recipe and flavour is this driver; an image from a user may state neither."""
        return (not self.recipe or recipe in {"", self.recipe}) and (not self.flavour or flavour in {"", self.flavour})


def driver_of(target: Target) -> DriverSelector:
    """The driver of a revision."""
    return DriverSelector(
        vendor=target.driver_vendor,
        version=target.driver_version,
        recipe=target.driver_recipe,
        flavour=target.driver_flavour,
    )


def driver_had(image: ImageFacts) -> DriverSelector:
    """The driver of an image that a node has or had."""
    return DriverSelector(vendor=image.vendor, version=image.version, recipe=image.recipe, flavour=image.flavour)


def read_removed_driver(text: str | None) -> RemovedDriver | None:
    """The record on a node of its removed driver; None if there is none, or it is unreadable.

    Without a record the node is installed again, like a node whose former driver is unknown.
    """
    return untrusted.read_json(text, RemovedDriver)


def code_name(os_image: str) -> str:
    """The code name at the end of a node's `osImage`, as `Debian GNU/Linux 12 (bookworm)`; empty if there is none."""
    match = _CODE_NAME.search(os_image)
    return match[1] if match is not None else ""


def build_of(builds: Iterable[ImageBuild], driver: DriverSelector, kernel: str) -> ImageBuild | None:
    """The DriverImage for a driver on a kernel, in the phase that is nearest to being Ready."""
    wanted = (driver.vendor, driver.version, kernel)
    known = (build for build in builds if (build.vendor, build.version, build.kernel) == wanted)
    fitting = [build for build in known if driver.made_by(build.recipe, build.flavour)]
    return min(fitting, key=lambda build: (_NEAREST.index(build.phase), build.name), default=None)


def why_no_image(builds: Sequence[ImageBuild], driver: DriverSelector, kernel: str) -> str:
    """The state of a missing image, and alternatives, as sentences."""
    return f"There is no Ready DriverImage for {driver} on kernel {kernel}.{known_of(builds, driver, kernel)}"


ALLOW = "set UPGRADER_IMAGE_KEY for the controller, or spec.driver.unverified: Allow in the stack"
"""What to do about an image that is not verified."""


def known_of(builds: Sequence[ImageBuild], driver: DriverSelector, kernel: str) -> str:
    """The state of a missing image's build, and alternatives; empty, or sentences after a space."""
    build = build_of(builds, driver, kernel)
    because = f": {build.message[:LONGEST].rstrip('.')}" if build is not None and build.message else ""
    state = f" DriverImage {build.name} is {build.phase.value}{because}." if build is not None else ""
    if build is not None and build.unverified:
        state = f" DriverImage {build.name} is not verified: {ALLOW}."
    others = ready_alternatives(builds, driver, kernel)
    return f"{state} Alternatives: {'; '.join(others)}." if others else state


def ready_alternatives(builds: Sequence[ImageBuild], driver: DriverSelector, kernel: str) -> tuple[str, ...]:
    """Alternatives that are Ready: other versions for the kernel, and other kernels for the driver."""
    ready = [build for build in builds if build.phase is _P.READY and build.vendor == driver.vendor]
    same = [build for build in ready if build.version == driver.version and driver.made_by(build.recipe, build.flavour)]
    drivers = sorted({_driver_name(build) for build in ready if build.kernel == kernel and build not in same})
    kernels = sorted({build.kernel for build in same if build.kernel != kernel})
    texts = (
        f"driver {_list_some(drivers)} for this kernel" * bool(drivers),
        f"kernel {_list_some(kernels)}" * bool(kernels),
    )
    return tuple(text for text in texts if text)


def _driver_name(image: ImageBuild) -> str:
    return f"{image.recipe or image.vendor} {image.version}"


def _list_some(words: Sequence[str]) -> str:
    rest = len(words) - SHOWN
    return ", ".join(words[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


_NEAREST = (_P.READY, _P.VERIFYING, _P.BUILDING, _P.PENDING, _P.RETRYING, _P.UNBUILDABLE, _P.UNUSABLE)
