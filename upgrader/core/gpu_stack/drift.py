"""Drift: every reason why a node differs from its stack's revision, from facts only.

Never from hashes of rendered templates: another version of upgrader finds the same drift. A label that disagrees with
the kubelet is reported and does not count, so that a label that flaps has no effect.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum

from msgspec import Struct

from upgrader.core.driver_image.catalogue import NO_DRIVER, Catalogue, fits_target
from upgrader.core.driver_image.missing_images import DriverSelector, driver_had, driver_of, known_of, why_no_image
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
    MODULE_PARAMETERS = "ModuleParameters"
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
    """One reason, and its sentence. Findings that do not count are only shown beside the others."""

    reason: DriftReason
    message: str
    counts: bool = True


class NodeDrift(Struct, frozen=True, kw_only=True, gc=False):
    """All findings of a node."""

    node: str
    findings: tuple[Finding, ...]

    @property
    def drifted(self) -> bool:
        """Whether the node needs a node upgrade."""
        return any(finding.counts for finding in self.findings)

    def has(self, reason: DriftReason) -> bool:
        """Whether there is a finding with this reason."""
        return any(finding.reason is reason for finding in self.findings)


Check = Callable[[NodeFacts, Target, Catalogue], Finding | None]


def node_drift(node: NodeFacts, target: Target, catalogue: Catalogue) -> NodeDrift:
    """Every finding of one node; it is on the stack's revision if there is none."""
    findings = list(_run_checks(_CHECKS, node, target, catalogue))
    if not any(finding.counts for finding in findings):
        findings += _run_checks((_check_revision,), node, target, catalogue)
    if any(finding.counts for finding in findings):
        findings += _run_checks((_check_image,), node, target, catalogue)
    return NodeDrift(node=node.name, findings=tuple(findings))


def find_drift(snapshot: Snapshot, target: Target) -> tuple[NodeDrift, ...]:
    """All nodes with findings, by name."""
    catalogue = Catalogue(snapshot.images, snapshot.builds)
    drifts = (node_drift(node, target, catalogue) for node in sorted(snapshot.nodes, key=lambda node: node.name))
    return tuple(node for node in drifts if node.findings)


def _run_checks(checks: tuple[Check, ...], node: NodeFacts, target: Target, catalogue: Catalogue) -> Iterator[Finding]:
    for check in checks:
        finding = check(node, target, catalogue)
        if finding is not None:
            yield finding


def _check_driver_label(node: NodeFacts, _: Target, catalogue: Catalogue) -> Finding | None:
    if not node.driver_key:
        return Finding(
            reason=DriftReason.NOT_INSTALLED, message="The operator has not installed a driver on the node yet."
        )
    if node.driver_key == NO_DRIVER:
        why = f": it was not for kernel {node.removed_driver.kernel}" if node.removed_driver is not None else ""
        return Finding(reason=DriftReason.DRIVER_ABSENT, message=f"The node's driver was removed{why}.")
    if catalogue.has_unknown_driver(node):
        return Finding(
            reason=DriftReason.DRIVER_UNKNOWN,
            message=f"The node's driver label names image {node.driver_key}, which is the key of no Ready DriverImage.",
        )
    return None


def _check_kernel(node: NodeFacts, _: Target, catalogue: Catalogue) -> Finding | None:
    image = catalogue.image_of(node)
    if image is None or image.kernel == node.kernel:
        return None
    return Finding(
        reason=DriftReason.KERNEL,
        message=f"The node runs kernel {node.kernel}, its driver image is for {image.kernel}.",
    )


def _check_driver(node: NodeFacts, target: Target, catalogue: Catalogue) -> Finding | None:
    image = catalogue.image_of(node)
    if image is None or fits_target(image, target):
        return None
    return Finding(
        reason=DriftReason.DRIVER, message=f"The node has driver {image.driver}, the stack requires {target.driver}."
    )


def _check_device_plugin(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    if not node.driver_key or (target.plugin_image and not target.plugin_digest):
        return None
    wanted = plugin_key_of(target)
    if node.plugin_key == wanted:
        return None
    if not wanted:
        return Finding(
            reason=DriftReason.DEVICE_PLUGIN,
            message=f"The node has device plugin {node.plugin_key}, the stack does not manage it.",
        )
    return Finding(
        reason=DriftReason.DEVICE_PLUGIN,
        message=f"The node has device plugin {node.plugin_key or 'none'}, the stack requires {wanted} "
        f"({target.plugin_image}, {target.resource_name}).",
    )


def _check_runtime(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    if not node.driver_key or (target.runtime_image and not target.runtime_digest):
        return None
    wanted = runtime_key_of(target)
    if node.runtime_key == wanted:
        return None
    asked = f"requires {wanted} ({target.runtime_image})" if wanted else "requires none"
    return Finding(
        reason=DriftReason.RUNTIME,
        message=f"The node has runtime hook {node.runtime_key or 'none'}, the stack {asked}.",
    )


def _check_kubelet(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    if not target.kubelet_version or node.kubelet_version == target.kubelet_version:
        return None
    return Finding(
        reason=DriftReason.KUBELET,
        message=f"The node runs kubelet {node.kubelet_version or '?'}, the stack requires {target.kubelet_version}.",
    )


def _check_kubelet_settings(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    wanted = settings_text(target.kubelet_settings)
    if not node.driver_key or node.kubelet_settings == wanted:
        return None
    has = f"kubelet has {node.kubelet_settings or 'no settings of the operator'}"
    return _settings_finding(DriftReason.KUBELET_SETTINGS, has, wanted)


def _check_module_parameters(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    wanted = settings_text(target.module_parameters)
    if not node.driver_key or node.module_parameters == wanted:
        return None
    has = f"driver has {node.module_parameters or 'no parameters of the operator'}"
    return _settings_finding(DriftReason.MODULE_PARAMETERS, has, wanted)


def _settings_finding(reason: DriftReason, has: str, wanted: str) -> Finding:
    return Finding(reason=reason, message=f"The node's {has}, the stack requires {wanted or 'none'}.")


def _check_reboot(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    if not target.reboots(node):
        return None
    return Finding(
        reason=DriftReason.REBOOT,
        message=f"The node runs kernel {node.kernel}, the stack requires {target.kernel}.",
    )


def _check_operands_off(node: NodeFacts, _: Target, __: Catalogue) -> Finding | None:
    if node.operands != "off":
        return None
    return Finding(
        reason=DriftReason.OPERANDS_OFF, message="The node's driver and device plugin pods are switched off."
    )


def _check_kernel_label(node: NodeFacts, _: Target, __: Catalogue) -> Finding | None:
    if not node.kernel_label or same_kernel(node.kernel_label, node.kernel):
        return None
    if node.labels_boot and node.labels_boot != node.boot_id:
        return Finding(
            reason=DriftReason.KERNEL_LABEL_STALE,
            message=f"The kernel label contains {node.kernel_label} from an earlier boot; the kubelet reports "
            f"{node.kernel}, which is used.",
            counts=False,
        )
    return Finding(
        reason=DriftReason.KERNEL_LABEL_DISAGREES,
        message=f"The kernel label contains {node.kernel_label}, the kubelet reports {node.kernel}, which is used.",
        counts=False,
    )


def _check_driver_version_label(node: NodeFacts, _: Target, catalogue: Catalogue) -> Finding | None:
    image = catalogue.image_of(node)
    if image is None or not node.driver_version_label or node.driver_version_label == image.version:
        return None
    return Finding(
        reason=DriftReason.DRIVER_LABEL_DISAGREES,
        message=f"The driver version label contains {node.driver_version_label}, the node's driver image is "
        f"{image.version}, which is used.",
        counts=False,
    )


def _check_next_boot(node: NodeFacts, _: Target, catalogue: Catalogue) -> Finding | None:
    driver = would_lack(node, catalogue)
    if driver is None:
        return None
    return Finding(
        reason=DriftReason.NEXT_BOOT_UNSUPPORTED,
        message=f"Kernel {node.pending_kernel} is installed and runs after the next reboot. "
        f"{why_no_image(catalogue.builds, driver, node.pending_kernel)}",
        counts=False,
    )


def _check_dynamic_resources(node: NodeFacts, _: Target, __: Catalogue) -> Finding | None:
    if not node.held_by_claim:
        return None
    message = f"{describe_holders(node.held_by_claim)}."
    return Finding(reason=DriftReason.DYNAMIC_RESOURCES, message=message, counts=False)


def would_lack(node: NodeFacts, catalogue: Catalogue) -> DriverSelector | None:
    """The driver that a node would lack after its next reboot; None if it would have one, or has none now."""
    own = catalogue.image_of(node)
    if own is None or not node.pending_kernel:
        return None
    driver = driver_had(own)
    return driver if catalogue.find_image(driver, node.pending_kernel) is None else None


def _check_revision(node: NodeFacts, target: Target, _: Catalogue) -> Finding | None:
    # Checked only if nothing else differs: the rest are facts that do not show from outside (the kubelet's artifact,
    # its path), and a label that was removed.
    if node.revision == target.revision:
        return None
    if not node.revision:
        return Finding(
            reason=DriftReason.REVISION_MISSING,
            message="The node carries no revision: it was not released by an upgrade, or its label was removed.",
        )
    return Finding(
        reason=DriftReason.REVISION,
        message=f"The node was released on revision {node.revision}, the stack's is {target.revision}.",
    )


def _check_image(node: NodeFacts, target: Target, catalogue: Catalogue) -> Finding | None:
    if catalogue.required_image(node, target) is not None:
        return None
    kernel = target.kernel_of(node)
    known = known_of(catalogue.builds, driver_of(target), kernel)
    return Finding(
        reason=DriftReason.NO_DRIVER_IMAGE,
        message=f"There is no Ready DriverImage for {target.driver} on kernel {kernel}.{known}",
        counts=False,
    )


_CHECKS: tuple[Check, ...] = (
    _check_driver_label,
    _check_kernel,
    _check_driver,
    _check_runtime,
    _check_device_plugin,
    _check_kubelet,
    _check_kubelet_settings,
    _check_module_parameters,
    _check_reboot,
    _check_operands_off,
    _check_kernel_label,
    _check_driver_version_label,
    _check_next_boot,
    _check_dynamic_resources,
)
