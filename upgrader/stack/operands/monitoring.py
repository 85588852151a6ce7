"""Service and, if that kind is served, ServiceMonitor by which Prometheus discovers the exporters of a stack. Pure.

They have no owner reference: the controller deletes them before the DaemonSet of the exporter.
"""

from typing import Any

from upgrader.api import names
from upgrader.api.resources import SERVICE_MONITORS, SERVICES, ResourceKind
from upgrader.core.model.operands import COMPONENT_OF, Operand
from upgrader.stack.operands.nondisruptive_operands import nondisruptive_name
from upgrader.stack.parts import METRICS_PORT, Manifest, with_manifest_hash
from upgrader.stack.settings import StackSettings


def exporter_service(stack: str, settings: StackSettings) -> Manifest:
    """A headless Service, for discovery of the exporter pods: clients scrape all pods, not any one of them."""
    spec = {
        "clusterIP": "None",
        "selector": _exporter_labels(stack),
        "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}],
    }
    return _monitoring_object(stack, settings, SERVICES, spec)


def service_monitor(stack: str, settings: StackSettings) -> Manifest:
    """The ServiceMonitor by which the Prometheus operator scrapes the pods of the Service."""
    # The labels pod, namespace and container are those of the user of a device, not those of the exporter.
    endpoint = {"port": "metrics", "path": "/metrics", "interval": "15s", "honorLabels": True}
    spec = {"selector": {"matchLabels": _exporter_labels(stack)}, "endpoints": [endpoint]}
    return _monitoring_object(stack, settings, SERVICE_MONITORS, spec)


def _exporter_labels(stack: str) -> dict[str, str]:
    """Labels of the exporter pods and of the Service and ServiceMonitor."""
    return {names.LABEL_COMPONENT: COMPONENT_OF[Operand.MONITORING], names.LABEL_STACK: stack}


def _monitoring_object(stack: str, settings: StackSettings, kind: ResourceKind[Any], spec: Manifest) -> Manifest:
    return with_manifest_hash(
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": nondisruptive_name(stack, Operand.MONITORING),
                "namespace": settings.namespace,
                "labels": _exporter_labels(stack),
                "annotations": {},
            },
            "spec": spec,
        }
    )
