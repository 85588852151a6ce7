"""How Prometheus finds the exporters of a stack: a Service, and a ServiceMonitor where that kind is served. Pure.

They have no owner: a stack that goes, or has no exporter any more, takes them away before the exporter's DaemonSet.
"""

from typing import Any

from upgrader.api import names
from upgrader.api.resources import SERVICE_MONITORS, SERVICES, ResourceKind
from upgrader.core.model.operands import COMPONENT_OF, Operand
from upgrader.stack.parts import METRICS_PORT, Manifest, marked
from upgrader.stack.quiet import quiet_name
from upgrader.stack.settings import StackSettings


def exporter_service(stack: str, settings: StackSettings) -> Manifest:
    """Names the pods for who discovers targets by Services; it has no address, because nobody wants any one of them."""
    spec = {
        "clusterIP": "None",
        "selector": _labels(stack),
        "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}],
    }
    return _object(stack, settings, SERVICES, spec)


def service_monitor(stack: str, settings: StackSettings) -> Manifest:
    """Tells Prometheus' operator to scrape the pods behind the Service."""
    # The labels pod, namespace and container are of who uses a device; the exporter's own must not take their place.
    endpoint = {"port": "metrics", "path": "/metrics", "interval": "15s", "honorLabels": True}
    spec = {"selector": {"matchLabels": _labels(stack)}, "endpoints": [endpoint]}
    return _object(stack, settings, SERVICE_MONITORS, spec)


def _labels(stack: str) -> dict[str, str]:
    """Of the exporter's pods, and of all that belongs to it."""
    return {names.LABEL_COMPONENT: COMPONENT_OF[Operand.MONITORING], names.LABEL_STACK: stack}


def _object(stack: str, settings: StackSettings, kind: ResourceKind[Any], spec: Manifest) -> Manifest:
    return marked(
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": quiet_name(stack, Operand.MONITORING),
                "namespace": settings.namespace,
                "labels": _labels(stack),
                "annotations": {},
            },
            "spec": spec,
        }
    )
