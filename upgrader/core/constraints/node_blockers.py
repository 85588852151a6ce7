"""Blockers of one node, whatever runs there. Each check covers one reason."""

from collections.abc import Callable

from upgrader.core.constraints.blockers import BlockedReason, Found, IndexedSnapshot
from upgrader.core.driver_image.missing_images import ALLOW
from upgrader.core.gpu_stack.drift import DriftReason
from upgrader.core.model.device_claims import describe_holders
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.skew import kubelet_skew


def node_blockers(world: IndexedSnapshot, name: str) -> list[Found]:
    """Every reason why a node is not upgraded now, whatever runs there."""
    blockers = (check(world, world.nodes[name]) for check in _CHECKS)
    return [blocker for blocker in blockers if blocker is not None]


def _in_upgrade(_: IndexedSnapshot, node: NodeFacts) -> Found | None:
    if node.claimed_by:
        return (
            BlockedReason.NODE_UPGRADING,
            (
                f"Node {node.name} is claimed by the NodeUpgrade with UID {node.claimed_by}; the node waits "
                "until that NodeUpgrade ends. If that NodeUpgrade failed, repair the node and delete the NodeUpgrade: "
                "the stack then installs the driver on the node again."
            ),
        )
    if node.maintenance:
        return (
            BlockedReason.NODE_UPGRADING,
            (
                f"Node {node.name} carries the maintenance taint of upgrade group {node.maintenance}: its upgrade "
                "failed and was not undone. See its NodeUpgrade, repair the node, then remove the taint."
            ),
        )
    return None


def _two_stacks(_: IndexedSnapshot, node: NodeFacts) -> Found | None:
    if not node.claimants:
        return None
    return (
        BlockedReason.TWO_STACKS,
        (
            f"Node {node.name} is selected by GpuStack {' and '.join(node.claimants)} too, so no upgrade begins on "
            "it; change a nodeSelector so that only one of them selects it."
        ),
    )


def _has_skip_label(_: IndexedSnapshot, node: NodeFacts) -> Found | None:
    if not node.skip:
        return None
    return (
        BlockedReason.NODE_SKIPPED,
        f"Node {node.name} carries the label gpu-upgrader.io/skip=true; remove it to have the node upgraded.",
    )


def _not_readable(_: IndexedSnapshot, node: NodeFacts) -> Found | None:
    return (BlockedReason.NODE_UNREADABLE, node.unreadable) if node.unreadable else None


def _not_ready(_: IndexedSnapshot, node: NodeFacts) -> Found | None:
    if node.ready:
        return None
    return BlockedReason.NODE_NOT_READY, f"Node {node.name} is not Ready; repair it, or remove it from the pool."


def gpus_missing(world: IndexedSnapshot, node: NodeFacts) -> Found | None:
    """Whether an upgrade would fail for missing GPUs from before it: no job is stopped for an upgrade that must fail.

    A rollback includes the node all the same, since the revision that it takes back may be the cause.
    """
    if not node.gpus_missing or node.revision == world.snapshot.taken_back != "":
        return None
    if node.unschedulable and node.name not in world.occupied:
        return None
    return (
        BlockedReason.GPUS_MISSING,
        (
            f"Node {node.name} offers {node.gpus_allocatable} of its {node.gpus} GPUs before any upgrade, so its "
            "validation would fail; repair it, or drain and cordon it: then it is upgraded anyway."
        ),
    )


def _kernel_changed(world: IndexedSnapshot, node: NodeFacts) -> Found | None:
    image = world.catalogue.repair_image(node)
    if image is None:
        return None
    return (
        BlockedReason.NODE_KERNEL_CHANGED,
        (
            f"Node {node.name} booted kernel {node.kernel}; it is first repaired to its former driver "
            f"({image.version}), without a plan. If that fails, see the condition Installed of the stack."
        ),
    )


def _driver_unknown(world: IndexedSnapshot, node: NodeFacts) -> Found | None:
    """Whether the driver that the node runs cannot be restored: a failed upgrade would leave the node without one."""
    if not world.catalogue.has_unknown_driver(node):
        return None
    return (
        BlockedReason.DRIVER_UNKNOWN,
        (
            f"Node {node.name} runs the driver of image {node.driver_key}, which is the key of no Ready DriverImage: "
            "a failed upgrade could not restore it. Create that DriverImage again, or see its status for why it is "
            "not Ready (if UPGRADER_IMAGE_KEY was set since, sign the image)."
        ),
    )


def _has_foreign_driver(world: IndexedSnapshot, node: NodeFacts) -> Found | None:
    if node.driver_key or node.name not in world.occupied:
        return None
    return (
        BlockedReason.FOREIGN_DRIVER,
        (
            f"Node {node.name} runs pods with GPUs on a driver that the operator did not install; drain the node, then "
            "its driver is installed."
        ),
    )


def _not_adopted(_: IndexedSnapshot, node: NodeFacts) -> Found | None:
    if not node.refused:
        return None
    return (
        BlockedReason.NODE_NOT_ADOPTED,
        (
            f"Another operator deploys a driver or device plugin on node {node.name} "
            f"({', '.join(node.foreign_labels)}); hand the node over with `upgrader adopt {node.name}`, or set these "
            "labels to false."
        ),
    )


def _no_image(world: IndexedSnapshot, node: NodeFacts) -> Found | None:
    if world.catalogue.required_image(node, world.target) is not None:
        return None
    target = world.target
    if world.catalogue.has_unverified_image(node, target):
        message = f"The DriverImage for {target.driver} on kernel {target.kernel_of(node)} is not verified: {ALLOW}."
        return BlockedReason.NO_DRIVER_IMAGE, message
    return (
        BlockedReason.NO_DRIVER_IMAGE,
        (
            f"There is no Ready DriverImage for {target.driver} on kernel {target.kernel_of(node)} of node "
            f"{node.name}; build an image and create its DriverImage."
        ),
    )


def _plugin_unresolved(world: IndexedSnapshot, node: NodeFacts) -> Found | None:
    if world.target.plugin_digest or not world.target.plugin_image:
        return None
    return (
        BlockedReason.PLUGIN_NOT_RESOLVED,
        (
            f"The digest of device plugin {world.target.plugin_image} is not known, so node {node.name} is not "
            "upgraded; check that its registry can be reached."
        ),
    )


def _skew_forbids(world: IndexedSnapshot, node: NodeFacts) -> Found | None:
    if not world.drift[node.name].has(DriftReason.KUBELET):
        return None
    skew = kubelet_skew(world.target.kubelet_version, world.snapshot.api_server_version)
    return None if skew.allowed else (BlockedReason.KUBELET_SKEW, f"Node {node.name}: {skew.message}")


def _dynamic_resources(_: IndexedSnapshot, node: NodeFacts) -> Found | None:
    if not node.held_by_claim:
        return None
    return BlockedReason.DYNAMIC_RESOURCES, f"Node {node.name}: {describe_holders(node.held_by_claim)}."


_CHECKS: tuple[Callable[[IndexedSnapshot, NodeFacts], Found | None], ...] = (
    _two_stacks,
    _in_upgrade,
    _has_skip_label,
    _not_readable,
    _not_ready,
    gpus_missing,
    _kernel_changed,
    _driver_unknown,
    _has_foreign_driver,
    _not_adopted,
    _no_image,
    _plugin_unresolved,
    _skew_forbids,
    _dynamic_resources,
)
