"""The driver images that are Ready, found by key or by what they are for."""

from collections.abc import Iterable

from upgrader.core.fleet import ImageFacts, NodeFacts, Target


class Catalogue:
    """An index over images; where two are for the same driver and kernel, the one with the least key is taken."""

    def __init__(self, images: Iterable[ImageFacts]) -> None:
        ordered = sorted(images, key=lambda image: image.key, reverse=True)
        self._by_key = {image.key: image for image in ordered}
        self._by_identity = {(image.vendor, image.version, image.kernel): image for image in ordered}

    def of(self, node: NodeFacts) -> ImageFacts | None:
        """The image that the node's driver label names; None where it names none, or one that is not Ready."""
        return self._by_key.get(node.driver_key)

    def find(self, *, vendor: str, version: str, kernel: str) -> ImageFacts | None:
        """The image for a driver on a kernel."""
        return self._by_identity.get((vendor, version, kernel))

    def wanted(self, node: NodeFacts, target: Target) -> ImageFacts | None:
        """The image that the target asks of this node: the one it has, if that fits (a rebuilt one is no reason)."""
        own = self.of(node)
        facts = (target.driver_vendor, target.driver_version, node.kernel)
        if own is not None and (own.vendor, own.version, own.kernel) == facts:
            return own
        return self._by_identity.get(facts)

    def bring_back(self, node: NodeFacts) -> ImageFacts | None:
        """The image for the driver that the node has and the kernel that it runs, where these no longer fit.

        None where they fit, where the node's driver is not known, and where there is no such image: then the node
        cannot be brought back to the revision it had.
        """
        own = self.of(node)
        if own is None or own.kernel == node.kernel:
            return None
        return self._by_identity.get((own.vendor, own.version, node.kernel))
