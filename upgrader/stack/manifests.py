"""All manifests for nodes, exported for the packages that apply them."""

from upgrader.stack.monitoring import exporter_service, service_monitor
from upgrader.stack.naming import upgrade_name, upgrade_of
from upgrader.stack.node_features import node_features_daemonset, node_features_name
from upgrader.stack.node_pods import empties, offered, prepare_pod, upgrade_job, validation_pod
from upgrader.stack.operands import driver_daemonset, plugin_daemonset, runtime_daemonset
from upgrader.stack.order import before
from upgrader.stack.quiet import quiet_daemonset, quiet_name
from upgrader.stack.rehearsal import rehearsal

__all__ = [
    "before",
    "driver_daemonset",
    "empties",
    "exporter_service",
    "node_features_daemonset",
    "node_features_name",
    "offered",
    "plugin_daemonset",
    "prepare_pod",
    "quiet_daemonset",
    "quiet_name",
    "rehearsal",
    "runtime_daemonset",
    "service_monitor",
    "upgrade_job",
    "upgrade_name",
    "upgrade_of",
    "validation_pod",
]
