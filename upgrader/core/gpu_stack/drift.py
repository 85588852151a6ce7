"""Drift: every reason why a node is not what its stack asks for, from facts only.

Never from hashes of our own templates: another version of upgrader finds the same drift. A label that disagrees with
what the kubelet says is shown and counts for nothing, so a label that flaps causes nothing.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum

from msgspec import Struct

from upgrader.core.driver_image.catalogue import NO_DRIVER, Catalogue, fits
from upgrader.core.driver_image.missing_images import Driver, driver_had, driver_of, known_of, why_no_image
from upgrader.core.model.device_claims import describe_holders
from upgrader.core.model.fleet import NodeFacts, Snapshot, Target, settings_text
from upgrader.core.model.revisions import plugin_key_of, runtime_key_of
from upgrader.core.node_protocol.node_features import same_kernel


class DriftReason(StrEnum):
    """Why a node differs, as one word."""

    NOT_INSTALLED = "NotInstalled"
    DRIVER_ABSENT = "DriverAbsent"
    DRIVER_UNKNOWN = "DriverUnknown"
    KERNEL = "Kernel"
    DRIVER = "Driver"
    RUNTIME = "Runtime"
    DEVICE_PLUGIN = "DevicePlugin"
    KUBELET = "Kubelet"
    KUBELET_SETTINGS = "KubeletSettings"
    REBOOT = "Reboot"
    OPERANDS_OFF = "OperandsOff"
    REVISION = "Revision"
    REVISION_MISSING = "RevisionMissing"
    NO_DRIVER_IMAGE = "NoDriverImage"
    KERNEL_LABEL_DISAGREES = "KernelLabelDisagrees"
    KERNEL_LABEL_STALE = "KernelLabelStale"
    DRIVER_LABEL_DISAGREES = "DriverLabelDisagrees"
    NEXT_BOOT_UNSUPPORTED = "NextBootUnsupported"
    DYNAMIC_RESOURCES = "DynamicResources"


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
        """Whether the node needs a node upgrade."""
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
    catalogue = Catalogue(snapshot.images, snapshot.builds)
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
        why = f": it was not for kernel {node.removed_driver.kernel}" if node.removed_driver is not None else ""
        return Finding(reason=DriftReason.DRIVER_ABSENT, message=f"The node's driver was taken away{why}.")
    if catalogue.unknown(node):
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
    if image is None or fits(image, target):
        return None
    return Finding(
        reason=DriftReason.DRIVER, message=f"The node has driver {image.driver}, the stack asks for {target.driver}."
    )


def _device_plugin(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    if not node.driver_key or (target.plugin_image and not target.plugin_digest):
        return None
    wanted = plugin_key_of(target)
    if node.plugin_key == wanted:
        return None
    if not wanted:
        return Finding(
            reason=DriftReason.DEVICE_PLUGIN,
            message=f"The node has device plugin {node.plugin_key}, the stack leaves that to somebody else.",
        )
    return Finding(
        reason=DriftReason.DEVICE_PLUGIN,
        message=f"The node has device plugin {node.plugin_key or 'none'}, the stack asks for {wanted} "
        f"({target.plugin_image}, {target.resource_name}).",
    )


def _runtime(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    if not node.driver_key or (target.runtime_image and not target.runtime_digest):
        return None
    wanted = runtime_key_of(target)
    if node.runtime_key == wanted:
        return None
    asked = f"asks for {wanted} ({target.runtime_image})" if wanted else "asks for none"
    return Finding(
        reason=DriftReason.RUNTIME,
        message=f"The node has runtime hook {node.runtime_key or 'none'}, the stack {asked}.",
    )


def _kubelet(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    if not target.kubelet_version or node.kubelet_version == target.kubelet_version:
        return None
    return Finding(
        reason=DriftReason.KUBELET,
        message=f"The node runs kubelet {node.kubelet_version or '?'}, the stack asks for {target.kubelet_version}.",
    )


def _kubelet_settings(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    wanted = settings_text(target.kubelet_settings)
    if not node.driver_key or node.kubelet_settings == wanted:
        return None
    has, asked = node.kubelet_settings or "no settings of ours", wanted or "none"
    return Finding(
        reason=DriftReason.KUBELET_SETTINGS, message=f"The node's kubelet has {has}, the stack asks for {asked}."
    )


def _reboot(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    if not target.reboots(node):
        return None
    return Finding(
        reason=DriftReason.REBOOT,
        message=f"The node runs kernel {node.kernel}, the stack asks for {target.kernel}.",
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


def _next_boot(node: NodeFacts, _: Target, catalogue: Catalogue) -> Finding | None:
    driver = would_lack(node, catalogue)
    if driver is None:
        return None
    return Finding(
        reason=DriftReason.NEXT_BOOT_UNSUPPORTED,
        message=f"Kernel {node.pending_kernel} is installed and runs after the next reboot. "
        f"{why_no_image(catalogue.builds, driver, node.pending_kernel)}",
        counts=False,
    )


def _dynamic_resources(node: NodeFacts, _: Target, __: Catalogue) -> Finding | None:
    if not node.held_by_claim:
        return None
    message = f"{describe_holders(node.held_by_claim)}."
    return Finding(reason=DriftReason.DYNAMIC_RESOURCES, message=message, counts=False)


def would_lack(node: NodeFacts, catalogue: Catalogue) -> Driver | None:
    """The driver that a node would be without after its next reboot; None where it would have one, or has none now."""
    own = catalogue.of(node)
    if own is None or not node.pending_kernel:
        return None
    driver = driver_had(own)
    return driver if catalogue.find(driver, node.pending_kernel) is None else None


def _revision(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    # Asked only where nothing else differs: what is left are facts that cannot be seen from outside (the kubelet's
    # artifact, its place), and a label that somebody removed.
    if node.revision == target.revision:
        return None
    if not node.revision:
        return Finding(
            reason=DriftReason.REVISION_MISSING,
            message="The node carries no revision: it was not given back by an upgrade, or its label was removed.",
        )
    return Finding(
        reason=DriftReason.REVISION,
        message=f"The node was given back on revision {node.revision}, the stack's is {target.revision}.",
    )


def _no_image(node: NodeFacts, target: Target, catalogue: Catalogue) -> Finding | None:
    if catalogue.wanted(node, target) is not None:
        return None
    kernel = target.kernel_of(node)
    known = known_of(catalogue.builds, driver_of(target), kernel)
    return Finding(
        reason=DriftReason.NO_DRIVER_IMAGE,
        message=f"There is no Ready DriverImage for {target.driver} on kernel {kernel}.{known}",
        counts=False,
    )


_CHECKS: tuple[Check, ...] = (
    _driver_label,
    _kernel,
    _driver,
    _runtime,
    _device_plugin,
    _kubelet,
    _kubelet_settings,
    _reboot,
    _operands_off,
    _kernel_label,
    _driver_version_label,
    _next_boot,
    _dynamic_resources,
)
