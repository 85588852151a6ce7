"""Names and labels by which our pods and Jobs on a node are found again."""

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.naming import object_name

ANNOTATION_UPGRADE = f"{names.GROUP}/node-upgrade"
DRIVER, PLUGIN = "device-driver", "device-plugin"


def upgrade_of(meta: ObjectMeta) -> str:
    """Name of the NodeUpgrade that a pod or Job belongs to; empty for everything else."""
    return meta.annotations.get(ANNOTATION_UPGRADE, "")


def prepare_name(upgrade: NodeUpgrade) -> str:
    """Name of the prepare pod."""
    return object_name(f"prepare-{upgrade.spec.node.name}", upgrade.metadata.uid, "prepare")


def visit_name(upgrade: NodeUpgrade, *, reverting: bool) -> str:
    """Name of the visit Job; the way back is another one."""
    way = "revert" if reverting else "visit"
    return object_name(f"{way}-{upgrade.spec.node.name}", upgrade.metadata.uid, way)


def validation_name(upgrade: NodeUpgrade, *, reverting: bool) -> str:
    """Name of the validation pod."""
    way = "revalidate" if reverting else "validate"
    return object_name(f"{way}-{upgrade.spec.node.name}", upgrade.metadata.uid, way)
