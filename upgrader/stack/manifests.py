"""Everything that we put on nodes, under one name for those who apply it."""

from upgrader.stack.errand_pods import prepare_pod, validation_pod, visit_job
from upgrader.stack.naming import upgrade_of, visit_name
from upgrader.stack.node_features import node_features_daemonset
from upgrader.stack.operands import driver_daemonset, plugin_daemonset

__all__ = [
    "driver_daemonset",
    "node_features_daemonset",
    "plugin_daemonset",
    "prepare_pod",
    "upgrade_of",
    "validation_pod",
    "visit_job",
    "visit_name",
]
