"""DaemonSets of driver, runtime hook and device plugin: one per image, selected by labels that upgrades write.
Pure.
"""

from upgrader.api import names
from upgrader.core.model.fleet import ImageFacts
from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.node_protocol.driver_services import REQUIRED, DriverService
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY
from upgrader.stack.naming import DEVICE_PLUGIN, DRIVER, RUNTIME, keyed_name
from upgrader.stack.operands.containers import (
    EarlierOperand,
    command_probes,
    init_containers,
    operand_container,
    program_volumes,
    wait_container,
)
from upgrader.stack.operands.order import earlier_operands
from upgrader.stack.parts import LOGS_ON_ERROR, PULL_POLICY, TOLERATE_ALL, Manifest, host_path, volume_mount
from upgrader.stack.settings import StackSettings
from upgrader.stack.vendors import OperandProgram, find_vendor

GRACE_SECONDS = 1
"""These pods have no state to save, and a node upgrade waits for their end."""
SERVICE_SECONDS = 15
"""Grace period of a driver with services, whose programs release the devices when they end."""
RESTORE_SECONDS = 30
"""Grace period of a runtime hook: that of NVIDIA restores the configuration of the container runtime when it ends."""


def driver_daemonset(stack: str, image: ImageFacts, settings: StackSettings) -> Manifest:
    """The DaemonSet that loads one driver image on the nodes whose label has its key.

    Its pods only load the driver; their end unloads nothing. Unloading is a step of the upgrade, which first waits for
    the end of these pods, and with them of the services.
    """
    container = {
        "name": "driver",
        "image": image.digest,
        "imagePullPolicy": PULL_POLICY,
        "command": ["/driver/load"],
        "securityContext": {"privileged": True},
        **command_probes(["/driver/probe"]),
        "volumeMounts": [volume_mount("run", RUN_DIRECTORY)],
    }
    spec = {
        "nodeSelector": {names.LABEL_DRIVER: image.key},
        "hostPID": True,
        "containers": [container, *(_service_container(service, image.digest) for service in image.services)],
        "volumes": [host_path("run", RUN_DIRECTORY)],
        **({"terminationGracePeriodSeconds": SERVICE_SECONDS} if image.services else {}),
    }
    readable = f"{image.driver} for {image.kernel}"
    return _operand_daemonset(keyed_name(Operand.DRIVER, image.key), stack, DRIVER, image.key, spec, readable, settings)


def _service_container(service: DriverService, image: str) -> Manifest:
    """A container that runs a service of the driver.

    Without a required service the pod is not ready, so that no GPU is used. The failure of another one has no effect.
    """
    command = ["/driver/service", service.value]
    return {
        "name": service.value,
        "image": image,
        "imagePullPolicy": PULL_POLICY,
        "command": command,
        "securityContext": {"privileged": True},
        **(command_probes([*command, "ready"]) if service in REQUIRED else {}),
        **LOGS_ON_ERROR,
        "volumeMounts": [volume_mount("run", RUN_DIRECTORY)],
    }


def plugin_daemonset(stack: str, key: str, image: str, plugin: PluginSettings, settings: StackSettings) -> Manifest:
    """The DaemonSet that advertises devices on the nodes whose label has its key, while their operands are on."""
    program = find_vendor(plugin.vendor).plugin(plugin)
    managed = {Operand.RUNTIME} if plugin.cdi else set[Operand]()
    spec = {
        "nodeSelector": {names.LABEL_DEVICE_PLUGIN: key, names.LABEL_OPERANDS: names.ON},
        **({"hostPID": True} if program.host_pid else {}),
        **({"runtimeClassName": program.runtime_class} if program.runtime_class else {}),
        **({"terminationGracePeriodSeconds": program.grace_seconds} if program.grace_seconds else {}),
        **_pod_fields("plugin", image, program, earlier_operands(Operand.DEVICE_PLUGIN, plugin, managed), settings),
    }
    readable = f"{plugin.resource_name} by {image}"
    manifest = _operand_daemonset(
        keyed_name(Operand.DEVICE_PLUGIN, key), stack, DEVICE_PLUGIN, key, spec, readable, settings
    )
    if program.config:
        manifest["spec"]["template"]["metadata"]["annotations"][names.ANNOTATION_CONFIG] = program.config
    return manifest


def runtime_daemonset(stack: str, key: str, image: str, plugin: PluginSettings, settings: StackSettings) -> Manifest:
    """The DaemonSet of a runtime hook on the nodes whose label has its key, while their operands are on."""
    program = find_vendor(plugin.vendor).runtime(plugin)
    spec = {
        "nodeSelector": {names.LABEL_RUNTIME: key, names.LABEL_OPERANDS: names.ON},
        **({"hostPID": True} if program.host_pid else {}),
        "terminationGracePeriodSeconds": RESTORE_SECONDS,
        **_pod_fields("runtime", image, program, earlier_operands(Operand.RUNTIME, plugin, ()), settings),
    }
    return _operand_daemonset(
        keyed_name(Operand.RUNTIME, key), stack, RUNTIME, key, spec, f"runtime hook {image}", settings
    )


def _pod_fields(
    name: str, image: str, program: OperandProgram, earlier: tuple[EarlierOperand, ...], settings: StackSettings
) -> Manifest:
    return {
        "initContainers": [
            *(wait_container(operand, settings) for operand in earlier),
            *init_containers(image, program),
        ],
        "containers": [operand_container(name, image, program)],
        "volumes": program_volumes(program, earlier),
    }


def _operand_daemonset(
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
            # A changed template must not restart pods (law 10): pods are replaced in upgrades only.
            "updateStrategy": {"type": "OnDelete"},
            "template": {
                "metadata": {"labels": labels, "annotations": {names.ANNOTATION_READABLE: readable}},
                "spec": {
                    "serviceAccountName": settings.service_account,
                    "automountServiceAccountToken": False,
                    "tolerations": TOLERATE_ALL,
                    "priorityClassName": settings.priority_class,
                    "terminationGracePeriodSeconds": GRACE_SECONDS,
                    **spec,
                },
            },
        },
    }
