"""The catalogue of Ready driver images, by key or by driver and kernel."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from upgrader.core.driver_image.missing_images import DriverSelector
from upgrader.core.model.fleet import ImageBuild, ImageFacts, NodeFacts, Target

NO_DRIVER = "none"
"""The driver label of a node whose driver was removed."""


def fits_target(image: ImageFacts, target: Target) -> bool:
    """Whether an image contains the driver of a target, for any kernel.

    An image that a user supplied without a recipe fits any recipe: only its vendor and version are known.
    """
    return (
        (image.vendor, image.version) == (target.driver_vendor, target.driver_version)
        and (not target.driver_recipe or image.recipe in {"", target.driver_recipe})
        and (not target.driver_flavour or image.flavour in {"", target.driver_flavour})
    )


class Catalogue:
    """An index of images; of several for the same driver and kernel, that with the least key is selected.

    An unverified image counts only for nodes that have it already, so that a node never loses its own image.
    """

    def __init__(self, images: Iterable[ImageFacts], builds: Sequence[ImageBuild] = ()) -> None:
        self.builds = builds
        ordered = sorted(images, key=lambda image: image.key)
        self._by_key = {image.key: image for image in ordered}
        self._by_kernel: dict[tuple[str, str, str], list[ImageFacts]] = defaultdict(list)
        self._unverified = [image for image in ordered if image.unverified]
        for image in ordered:
            if not image.unverified:
                self._by_kernel[image.vendor, image.version, image.kernel].append(image)

    def image_of(self, node: NodeFacts) -> ImageFacts | None:
        """The image that the node's driver label names; None if it names none, or one that is not Ready."""
        return self._by_key.get(node.driver_key)

    def has_unknown_driver(self, node: NodeFacts) -> bool:
        """Whether the node has a driver whose image is unknown; a node without a driver is no such node."""
        return node.driver_key not in {"", NO_DRIVER} and self.image_of(node) is None

    def former_image(self, node: NodeFacts) -> ImageFacts | None:
        """The image of the node's former driver, if that was removed because none was for its kernel."""
        return self._by_key.get(node.removed_driver.driver) if node.removed_driver is not None else None

    def find_image(self, driver: DriverSelector, kernel: str) -> ImageFacts | None:
        """The image for a driver on a kernel."""
        known = self._by_kernel.get((driver.vendor, driver.version, kernel), ())
        return next((image for image in known if driver.made_by(image.recipe, image.flavour)), None)

    def required_image(self, node: NodeFacts, target: Target) -> ImageFacts | None:
        """The image that the target requires on this node: its own, if that fits (a rebuild does not replace it).

        Else the first image that states its recipe, before those without one.
        """
        own = self.image_of(node)
        kernel = target.kernel_of(node)
        if own is not None and own.kernel == kernel and fits_target(own, target):
            return own
        known = self._by_kernel.get((target.driver_vendor, target.driver_version, kernel), ())
        fitting = [image for image in known if fits_target(image, target)]
        return next((image for image in fitting if image.recipe == target.driver_recipe), next(iter(fitting), None))

    def for_upgrade(self, node: NodeFacts, target: Target) -> ImageFacts | None:
        """The image that a node upgrade installs; None if there is none, or no known image to revert to."""
        return None if self.has_unknown_driver(node) else self.required_image(node, target)

    def has_unverified_image(self, node: NodeFacts, target: Target) -> bool:
        """Whether there is an image for this node that its stack does not allow, because it is not verified."""
        kernel = target.kernel_of(node)
        return any(image.kernel == kernel and fits_target(image, target) for image in self._unverified)

    def repair_image(self, node: NodeFacts) -> ImageFacts | None:
        """The image for the driver that the node has and the kernel that it runs, if these no longer fit.

        None if they fit, if the node's driver is not known, and if there is no such image: then the node cannot be
        repaired to the revision it had.
        """
        own = self.image_of(node)
        if own is None or own.kernel == node.kernel:
            return None
        known = self._by_kernel.get((own.vendor, own.version, node.kernel), ())
        same = [image for image in known if (image.recipe, image.flavour) == (own.recipe, own.flavour)]
        return next(iter(same), None)
