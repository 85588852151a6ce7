"""Names and annotations by which pods and Jobs of node upgrades are found."""

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core.model.operands import COMPONENT_OF, Operand
from upgrader.core.naming import object_name

# Values of names.LABEL_COMPONENT.
DRIVER, RUNTIME, DEVICE_PLUGIN, NODE_FEATURES = "driver", "runtime", "device-plugin", "node-features"
MONITORING = "monitoring"
PREPARE, UPGRADE, VALIDATE, PREFLIGHT = "prepare", "upgrade", "validate", "preflight"
SURVEY, RECORD, HOLDER, GPU_POD = "survey", "record", "holder", "gpus"


def upgrade_of(meta: ObjectMeta) -> str:
    """Name of the NodeUpgrade that a pod or Job belongs to; empty for other objects."""
    return meta.annotations.get(names.ANNOTATION_NODE_UPGRADE, "")


def keyed_name(operand: Operand, key: str) -> str:
    """Name of the DaemonSet of an operand whose key is the value of a node label."""
    return f"{COMPONENT_OF[operand]}-{key}"


def prepare_name(upgrade: NodeUpgrade) -> str:
    """Name of the prepare pod."""
    return _upgrade_object_name("prepare", upgrade)


def upgrade_name(upgrade: NodeUpgrade, *, reverting: bool) -> str:
    """Name of the upgrade Job; the Job that reverts has another name."""
    return _upgrade_object_name("revert" if reverting else "upgrade", upgrade)


def validation_name(upgrade: NodeUpgrade, *, reverting: bool) -> str:
    """Name of the validation pod; the pod that validates a revert has another name."""
    return _upgrade_object_name("revalidate" if reverting else "validate", upgrade)


def _upgrade_object_name(what: str, upgrade: NodeUpgrade) -> str:
    return object_name(f"{what}-{upgrade.spec.node.name}", upgrade.metadata.uid, what)
