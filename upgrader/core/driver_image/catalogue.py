"""The driver images that are Ready, found by key or by what they are for."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from upgrader.core.driver_image.missing_images import Driver
from upgrader.core.model.fleet import ImageBuild, ImageFacts, NodeFacts, Target

NO_DRIVER = "none"
"""The driver label of a node whose driver was taken away."""


def fits(image: ImageFacts, target: Target) -> bool:
    """Whether an image is of the driver that a target asks for, on whichever kernel.

    One that a person brought without naming a recipe fits any: its vendor and version are all that is known of it.
    """
    return (
        (image.vendor, image.version) == (target.driver_vendor, target.driver_version)
        and (not target.driver_recipe or image.recipe in {"", target.driver_recipe})
        and (not target.driver_flavour or image.flavour in {"", target.driver_flavour})
    )


class Catalogue:
    """An index over images; of several for the same driver and kernel the one with the least key is taken.

    Of those that nobody vouches for only what a node has already counts, so that a node is never without its own.
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

    def of(self, node: NodeFacts) -> ImageFacts | None:
        """The image that the node's driver label names; None where it names none, or one that is not Ready."""
        return self._by_key.get(node.driver_key)

    def unknown(self, node: NodeFacts) -> bool:
        """Whether the node has a driver of ours of which nothing is known: not that it has none."""
        return node.driver_key not in {"", NO_DRIVER} and self.of(node) is None

    def had(self, node: NodeFacts) -> ImageFacts | None:
        """The image that the node's driver was, where we took that away for want of one for its kernel."""
        return self._by_key.get(node.removed_driver.driver) if node.removed_driver is not None else None

    def find(self, driver: Driver, kernel: str) -> ImageFacts | None:
        """The image for a driver on a kernel."""
        known = self._by_kernel.get((driver.vendor, driver.version, kernel), ())
        return next((one for one in known if driver.made_by(one.recipe, one.flavour)), None)

    def wanted(self, node: NodeFacts, target: Target) -> ImageFacts | None:
        """The image that the target asks of this node: the one it has, if that fits (a rebuilt one is no reason).

        Of others the first that says its recipe, before those of which it is not known.
        """
        own = self.of(node)
        kernel = target.kernel_of(node)
        if own is not None and own.kernel == kernel and fits(own, target):
            return own
        known = self._by_kernel.get((target.driver_vendor, target.driver_version, kernel), ())
        fitting = [image for image in known if fits(image, target)]
        return next((one for one in fitting if one.recipe == target.driver_recipe), next(iter(fitting), None))

    def for_upgrade(self, node: NodeFacts, target: Target) -> ImageFacts | None:
        """The image that a node upgrade takes the node to; None where there is none, or nothing known to go back to."""
        return None if self.unknown(node) else self.wanted(node, target)

    def unverified(self, node: NodeFacts, target: Target) -> bool:
        """Whether there is an image for this node that its stack does not allow, as nobody vouches for it."""
        kernel = target.kernel_of(node)
        return any(image.kernel == kernel and fits(image, target) for image in self._unverified)

    def repair(self, node: NodeFacts) -> ImageFacts | None:
        """The image for the driver that the node has and the kernel that it runs, where these no longer fit.

        None where they fit, where the node's driver is not known, and where there is no such image: then the node
        cannot be repaired to the revision it had.
        """
        own = self.of(node)
        if own is None or own.kernel == node.kernel:
            return None
        known = self._by_kernel.get((own.vendor, own.version, node.kernel), ())
        same = [one for one in known if (one.recipe, one.flavour) == (own.recipe, own.flavour)]
        return next(iter(same), None)
