"""All manifests for nodes, exported for the packages that apply them."""

from upgrader.stack.naming import upgrade_name, upgrade_of
from upgrader.stack.node_pods.node_states import expected_devices
from upgrader.stack.node_pods.rehearsal import rehearsal_pods
from upgrader.stack.node_pods.upgrade_orders import ends_all_pods
from upgrader.stack.node_pods.upgrade_pods import prepare_pod, upgrade_job, validation_pod
from upgrader.stack.operands.monitoring import exporter_service, service_monitor
from upgrader.stack.operands.node_features import node_features_daemonset, node_features_name
from upgrader.stack.operands.nondisruptive_operands import nondisruptive_daemonset, nondisruptive_name
from upgrader.stack.operands.order import earlier_operands
from upgrader.stack.operands.upgraded_operands import driver_daemonset, plugin_daemonset, runtime_daemonset

__all__ = [
    "driver_daemonset",
    "earlier_operands",
    "ends_all_pods",
    "expected_devices",
    "exporter_service",
    "node_features_daemonset",
    "node_features_name",
    "nondisruptive_daemonset",
    "nondisruptive_name",
    "plugin_daemonset",
    "prepare_pod",
    "rehearsal_pods",
    "runtime_daemonset",
    "service_monitor",
    "upgrade_job",
    "upgrade_name",
    "upgrade_of",
    "validation_pod",
]
