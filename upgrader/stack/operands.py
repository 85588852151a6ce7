"""DaemonSets of driver and device plugin: one per image, chosen by node labels that only visits write. Pure."""

from typing import Any

from upgrader.api import names
from upgrader.core.fleet import ImageFacts
from upgrader.core.orders import RUN_DIRECTORY
from upgrader.stack.naming import DEVICE_PLUGIN, DRIVER
from upgrader.stack.parts import EVERYWHERE, NODE_PROGRAM, PULL, Manifest, host_path, mount
from upgrader.stack.settings import StackSettings

PLUGIN_SOCKETS = "/var/lib/kubelet/device-plugins"
"""Hardcoded in the kubelet, whatever its --root-dir is."""

STARTUP_SECONDS = 600
READY_SECONDS = 2
"""Short, because a kubelet that has just started, as in a visit, delays every new probe by up to one period."""
GRACE_SECONDS = 1
"""Neither has anything to save, and a visit waits for their end."""


def driver_daemonset(stack: str, image: ImageFacts, settings: StackSettings) -> Manifest:
    """Loads one driver image on the nodes whose label names it.

    It only loads, and its pod's end changes nothing, so it stays while the other operands are off: unloading is a
    visit's step.
    """
    container = {
        "name": "driver",
        "image": image.digest,
        "imagePullPolicy": PULL,
        "command": ["/driver/load"],
        "securityContext": {"privileged": True},
        **_probes(["/driver/probe"]),
        "volumeMounts": [mount("run", RUN_DIRECTORY)],
    }
    spec = {
        "nodeSelector": {names.LABEL_DRIVER: image.key},
        "hostPID": True,
        "containers": [container],
        "volumes": [host_path("run", RUN_DIRECTORY)],
    }
    readable = f"{image.vendor} {image.version} for {image.kernel}"
    return _daemonset(f"driver-{image.key}", stack, DRIVER, image.key, spec, readable, settings)


def plugin_daemonset(stack: str, key: str, image: str, resource_name: str, settings: StackSettings) -> Manifest:
    """Offers the devices to the kubelet of nodes whose label names it, while their operands are on.

    Ready means: registered with the kubelet that runs now. Command and probe are those of the `sim` vendor's plugin.
    """
    command = [*NODE_PROGRAM, "device-plugin", "--resource", resource_name]
    container = {
        "name": "plugin",
        "image": image,
        "imagePullPolicy": PULL,
        "command": command,
        **_probes([*command, "--ready"]),
        "volumeMounts": [mount("sockets", PLUGIN_SOCKETS), mount("run", RUN_DIRECTORY)],
    }
    spec = {
        "nodeSelector": {names.LABEL_DEVICE_PLUGIN: key, names.LABEL_OPERANDS: names.ON},
        "containers": [container],
        "volumes": [host_path("sockets", PLUGIN_SOCKETS), host_path("run", RUN_DIRECTORY)],
    }
    return _daemonset(f"device-plugin-{key}", stack, DEVICE_PLUGIN, key, spec, f"{resource_name} by {image}", settings)


def _probes(command: list[str]) -> dict[str, Any]:
    """Asked every second until it is ready once, because a visit waits for it; then seldom: each is a process."""
    probe = {"exec": {"command": command}, "timeoutSeconds": 5}
    return {
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": STARTUP_SECONDS},
        "readinessProbe": {**probe, "periodSeconds": READY_SECONDS, "failureThreshold": 2},
    }


def _daemonset(
    name: str, stack: str, component: str, key: str, spec: Manifest, readable: str, settings: StackSettings
) -> Manifest:
    labels = {names.LABEL_COMPONENT: component, names.LABEL_STACK: stack, names.LABEL_IMAGE_KEY: key}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": {names.ANNOTATION_READABLE: readable},
        },
        "spec": {
            "selector": {"matchLabels": {names.LABEL_COMPONENT: component, names.LABEL_IMAGE_KEY: key}},
            # A changed template must not restart anything by itself (law 10): pods are replaced in visits only.
            "updateStrategy": {"type": "OnDelete"},
            "template": {
                "metadata": {"labels": labels, "annotations": {names.ANNOTATION_READABLE: readable}},
                "spec": {
                    "serviceAccountName": settings.service_account,
                    "automountServiceAccountToken": False,
                    "tolerations": EVERYWHERE,
                    "priorityClassName": settings.priority_class,
                    "terminationGracePeriodSeconds": GRACE_SECONDS,
                    **spec,
                },
            },
        },
    }
