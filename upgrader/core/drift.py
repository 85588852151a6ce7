"""Drift: every reason why a node is not what its stack asks for, from facts only.

Never from hashes of our own templates: another version of upgrader finds the same drift. A label that disagrees with
what the kubelet says is shown and counts for nothing, so a label that flaps causes nothing.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum

from msgspec import Struct

from upgrader.core.catalogue import Catalogue
from upgrader.core.fleet import NodeFacts, Snapshot, Target
from upgrader.core.node_features import same_kernel
from upgrader.core.revisions import plugin_key

NO_DRIVER = "none"
"""The driver label of a node whose driver was taken away."""


class DriftReason(StrEnum):
    """Why a node differs, as one word."""

    NOT_INSTALLED = "NotInstalled"
    DRIVER_ABSENT = "DriverAbsent"
    DRIVER_UNKNOWN = "DriverUnknown"
    KERNEL = "Kernel"
    DRIVER = "Driver"
    DEVICE_PLUGIN = "DevicePlugin"
    KUBELET = "Kubelet"
    OPERANDS_OFF = "OperandsOff"
    REVISION = "Revision"
    REVISION_MISSING = "RevisionMissing"
    NO_DRIVER_IMAGE = "NoDriverImage"
    KERNEL_LABEL_DISAGREES = "KernelLabelDisagrees"
    KERNEL_LABEL_STALE = "KernelLabelStale"
    DRIVER_LABEL_DISAGREES = "DriverLabelDisagrees"


class Finding(Struct, frozen=True, kw_only=True, gc=False):
    """One reason, and the same as a sentence. Those that do not count are shown beside the others, no more."""

    reason: DriftReason
    message: str
    counts: bool = True


class NodeDrift(Struct, frozen=True, kw_only=True, gc=False):
    """All that was found on a node."""

    node: str
    findings: tuple[Finding, ...]

    @property
    def drifted(self) -> bool:
        """Whether the node needs a visit."""
        return any(finding.counts for finding in self.findings)

    def has(self, reason: DriftReason) -> bool:
        """Whether this was found."""
        return any(finding.reason is reason for finding in self.findings)


Check = Callable[[NodeFacts, Target, Catalogue], Finding | None]


def node_drift(node: NodeFacts, target: Target, catalogue: Catalogue) -> NodeDrift:
    """Every reason for one node; no finding means that it is as the stack asks."""
    found = list(_found(_CHECKS, node, target, catalogue))
    if not any(finding.counts for finding in found):
        found += _found((_revision,), node, target, catalogue)
    if any(finding.counts for finding in found):
        found += _found((_no_image,), node, target, catalogue)
    return NodeDrift(node=node.name, findings=tuple(found))


def drift(snapshot: Snapshot, target: Target) -> tuple[NodeDrift, ...]:
    """All nodes on which something was found, by name."""
    catalogue = Catalogue(snapshot.images)
    every = (node_drift(node, target, catalogue) for node in sorted(snapshot.nodes, key=lambda node: node.name))
    return tuple(one for one in every if one.findings)


def _found(checks: tuple[Check, ...], node: NodeFacts, target: Target, catalogue: Catalogue) -> Iterator[Finding]:
    for check in checks:
        finding = check(node, target, catalogue)
        if finding is not None:
            yield finding


def _driver_label(node: NodeFacts, _: Target, catalogue: Catalogue) -> Finding | None:
    if not node.driver_key:
        return Finding(reason=DriftReason.NOT_INSTALLED, message="The node has no driver of ours yet.")
    if node.driver_key == NO_DRIVER:
        return Finding(reason=DriftReason.DRIVER_ABSENT, message="The node's driver was taken away.")
    if catalogue.of(node) is None:
        return Finding(
            reason=DriftReason.DRIVER_UNKNOWN,
            message=f"The node's driver label names image {node.driver_key}, which is the key of no Ready DriverImage.",
        )
    return None


def _kernel(node: NodeFacts, _: Target, catalogue: Catalogue) -> Finding | None:
    image = catalogue.of(node)
    if image is None or image.kernel == node.kernel:
        return None
    return Finding(
        reason=DriftReason.KERNEL,
        message=f"The node runs kernel {node.kernel}, its driver image is for {image.kernel}.",
    )


def _driver(node: NodeFacts, target: Target, catalogue: Catalogue) -> Finding | None:
    image = catalogue.of(node)
    wanted = (target.driver_vendor, target.driver_version)
    if image is None or (image.vendor, image.version) == wanted:
        return None
    return Finding(
        reason=DriftReason.DRIVER,
        message=f"The node has driver {image.vendor} {image.version}, the stack asks for {' '.join(wanted)}.",
    )


def _device_plugin(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    if not node.driver_key or not target.plugin_digest:
        return None
    wanted = plugin_key(digest=target.plugin_digest, resource_name=target.resource_name)
    if node.plugin_key == wanted:
        return None
    return Finding(
        reason=DriftReason.DEVICE_PLUGIN,
        message=f"The node has device plugin {node.plugin_key or 'none'}, the stack asks for {wanted} "
        f"({target.plugin_image}, {target.resource_name}).",
    )


def _kubelet(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    if not target.kubelet_version or node.kubelet_version == target.kubelet_version:
        return None
    return Finding(
        reason=DriftReason.KUBELET,
        message=f"The node runs kubelet {node.kubelet_version or '?'}, the stack asks for {target.kubelet_version}.",
    )


def _operands_off(node: NodeFacts, _: Target, __: Catalogue) -> Finding | None:
    if node.operands != "off":
        return None
    return Finding(
        reason=DriftReason.OPERANDS_OFF, message="The node's driver and device plugin pods are switched off."
    )


def _kernel_label(node: NodeFacts, _: Target, __: Catalogue) -> Finding | None:
    if not node.kernel_label or same_kernel(node.kernel_label, node.kernel):
        return None
    if node.labels_boot and node.labels_boot != node.boot_id:
        return Finding(
            reason=DriftReason.KERNEL_LABEL_STALE,
            message=f"The kernel label says {node.kernel_label}, read on an earlier boot; on this one the kubelet says "
            f"{node.kernel}, and is believed.",
            counts=False,
        )
    return Finding(
        reason=DriftReason.KERNEL_LABEL_DISAGREES,
        message=f"The kernel label says {node.kernel_label}, the kubelet says {node.kernel}; the kubelet is believed.",
        counts=False,
    )


def _driver_version_label(node: NodeFacts, _: Target, catalogue: Catalogue) -> Finding | None:
    image = catalogue.of(node)
    if image is None or not node.driver_version_label or node.driver_version_label == image.version:
        return None
    return Finding(
        reason=DriftReason.DRIVER_LABEL_DISAGREES,
        message=f"The driver version label says {node.driver_version_label}, the node's driver image is "
        f"{image.version}; the image is believed.",
        counts=False,
    )


def _revision(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    # Asked only where nothing else differs: what is left are facts that cannot be seen from outside (the kubelet's
    # artifact, its place), and a label that somebody removed.
    if node.revision == target.revision:
        return None
    if not node.revision:
        return Finding(
            reason=DriftReason.REVISION_MISSING,
            message="The node carries no revision: it was not given back by a visit, or its label was removed.",
        )
    return Finding(
        reason=DriftReason.REVISION,
        message=f"The node was given back on revision {node.revision}, the stack's is {target.revision}.",
    )


def _no_image(node: NodeFacts, target: Target, catalogue: Catalogue) -> Finding | None:
    if catalogue.wanted(node, target) is not None:
        return None
    return Finding(
        reason=DriftReason.NO_DRIVER_IMAGE,
        message=f"There is no Ready DriverImage for {target.driver_vendor} {target.driver_version} on kernel "
        f"{node.kernel}.",
        counts=False,
    )


_CHECKS: tuple[Check, ...] = (
    _driver_label,
    _kernel,
    _driver,
    _device_plugin,
    _kubelet,
    _operands_off,
    _kernel_label,
    _driver_version_label,
)
