"""Our objects on nodes as manifests: DaemonSets of driver and plugin, prepare pod, visit Job, validation pod. Pure."""

from typing import Any

import msgspec

from upgrader.api import names
from upgrader.api.resources import NODE_UPGRADES
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.fleet import ImageFacts
from upgrader.core.orders import (
    HOST_ROOT,
    ORDER_VARIABLE,
    RUN_DIRECTORY,
    STATE_DIRECTORY,
    Driver,
    KubeletTarget,
    PrepareOrder,
    ValidateOrder,
    VisitOrder,
)
from upgrader.stack.naming import ANNOTATION_UPGRADE, prepare_name, upgrade_of, validation_name, visit_name
from upgrader.stack.settings import StackSettings

__all__ = [
    "driver_daemonset",
    "plugin_daemonset",
    "prepare_pod",
    "upgrade_of",
    "validation_pod",
    "visit_job",
    "visit_name",
]

Manifest = dict[str, Any]

EVERYWHERE = [{"operator": "Exists"}]
NODE_PROGRAM = ("python3", "-m", "upgrader.node")
NODE_VARIABLE = "UPGRADER_NODE"
PLUGIN_SOCKETS = "/var/lib/kubelet/device-plugins"
WORK = "/work"
MANIFEST = f"{WORK}/manifest.json"
VISIT_SECONDS = 1200


def driver_daemonset(stack: str, image: ImageFacts, settings: StackSettings) -> Manifest:
    """Loads one driver image on the nodes whose label names it. It only loads: unloading is a visit's step."""
    container = {
        "name": "driver",
        "image": image.digest,
        "command": ["/driver/load"],
        "securityContext": {"privileged": True},
        "readinessProbe": {"exec": {"command": ["/driver/probe"]}, "periodSeconds": 1, "timeoutSeconds": 5},
        "volumeMounts": [{"name": "run", "mountPath": RUN_DIRECTORY}],
    }
    spec = {
        "nodeSelector": {names.LABEL_DRIVER: image.key},
        "containers": [container],
        "volumes": [_host("run", RUN_DIRECTORY)],
        "hostPID": True,
    }
    readable = f"{image.vendor} {image.version} for {image.kernel}"
    return _daemonset(f"driver-{image.key}", stack, "driver", image.key, spec, readable, settings)


def plugin_daemonset(stack: str, key: str, image: str, resource_name: str, settings: StackSettings) -> Manifest:
    """Offers the devices to the kubelet on nodes whose operands are on."""
    container = {
        "name": "plugin",
        "image": image,
        "command": [*NODE_PROGRAM, "device-plugin", "--resource", resource_name],
        "readinessProbe": {
            "exec": {"command": [*NODE_PROGRAM, "device-plugin", "--ready"]},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        },
        "volumeMounts": [
            {"name": "sockets", "mountPath": PLUGIN_SOCKETS},
            {"name": "run", "mountPath": RUN_DIRECTORY},
        ],
    }
    spec = {
        "nodeSelector": {names.LABEL_DEVICE_PLUGIN: key, names.LABEL_OPERANDS: names.ON},
        "containers": [container],
        "volumes": [_host("sockets", PLUGIN_SOCKETS), _host("run", RUN_DIRECTORY)],
    }
    return _daemonset(
        f"device-plugin-{key}", stack, "device-plugin", key, spec, f"{resource_name} by {image}", settings
    )


def prepare_pod(upgrade: NodeUpgrade, settings: StackSettings) -> Manifest:
    """Pulls what the visit needs, and what going back needs, while jobs run; loads nothing."""
    source, target = upgrade.spec.source, upgrade.spec.target
    work = {"name": "work", "mountPath": WORK}
    first = [
        {
            "name": "driver",
            "image": target.driver_image,
            "command": ["/driver/prepare", WORK],
            "volumeMounts": [work],
        },
        *_pulls(source, target),
        *_fetch(source, target),
    ]
    order = PrepareOrder(
        kernel=target.kernel,
        driver=Driver(vendor=target.driver_vendor, version=target.driver_version),
        manifest=MANIFEST,
        kubelet=_kubelet(source, target),
    )
    container = _node_command("prepare", order, settings, mounts=[work, _mount_host()])
    volumes = [{"name": "work", "emptyDir": {}}, {"name": "former", "emptyDir": {}}, _host("host", "/")]
    spec = {"initContainers": first, "containers": [container], "volumes": volumes, "hostPID": True, "hostNetwork": True}
    return _pod(prepare_name(upgrade), upgrade, "prepare", spec, settings)


def visit_job(upgrade: NodeUpgrade, *, reverting: bool, settings: StackSettings) -> Manifest:
    """Unloads, switches, swaps. A pod that is killed runs again; one that reports a failure is final."""
    before, after = _ways(upgrade, reverting=reverting)
    unload = Driver(vendor=before.driver_vendor, version=before.driver_version) if before.driver_version else None
    order = VisitOrder(
        visit=f"{upgrade.metadata.uid}{'-revert' if reverting else ''}", unload=unload, kubelet=_kubelet(before, after)
    )
    container = _node_command("visit", order, settings, mounts=[_mount_host()])
    spec = {"containers": [container], "volumes": [_host("host", "/")], "hostPID": True, "hostNetwork": True}
    pod = _pod("", upgrade, "visit", spec, settings)
    name = visit_name(upgrade, reverting=reverting)
    template = {
        "metadata": {k: v for k, v in pod["metadata"].items() if k in {"labels", "annotations"}},
        "spec": pod["spec"],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**pod["metadata"], "name": name},
        "spec": {
            "backoffLimit": 3,
            "activeDeadlineSeconds": VISIT_SECONDS,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": "visit", "operator": "NotIn", "values": [137, 143]},
                    },
                ]
            },
            "template": template,
        },
    }


def validation_pod(upgrade: NodeUpgrade, *, reverting: bool, boot_id: str, settings: StackSettings) -> Manifest:
    """A pod with a GPU that works on it, before the node is given back."""
    _, after = _ways(upgrade, reverting=reverting)
    order = ValidateOrder(
        driver=Driver(vendor=after.driver_vendor, version=after.driver_version), boot_id=boot_id, devices=1
    )
    run = {"name": "run", "mountPath": RUN_DIRECTORY, "readOnly": True}
    container = _node_command("validate", order, settings, mounts=[run])
    container["securityContext"] = {"privileged": False}
    container["resources"] = {"limits": {after.resource_name: "1"}}
    spec = {"containers": [container], "volumes": [_host("run", RUN_DIRECTORY)]}
    return _pod(validation_name(upgrade, reverting=reverting), upgrade, "validate", spec, settings)


def _ways(upgrade: NodeUpgrade, *, reverting: bool) -> tuple[NodeState, NodeState]:
    spec = upgrade.spec
    return (spec.target, spec.source) if reverting else (spec.source, spec.target)


def _kubelet(before: NodeState, after: NodeState) -> KubeletTarget | None:
    if not after.kubelet_version or not after.kubelet_binary or after.kubelet_version == before.kubelet_version:
        return None
    return KubeletTarget(version=after.kubelet_version, binary=after.kubelet_binary)


def _fetch(source: NodeState, target: NodeState) -> list[Manifest]:
    if _kubelet(source, target) is None:
        return []
    place = f"{HOST_ROOT}{STATE_DIRECTORY}/kubelet/{target.kubelet_version}"
    return [
        {
            "name": "kubelet",
            "image": target.kubelet_artifact,
            "args": [place],
            "volumeMounts": [{"name": "host", "mountPath": HOST_ROOT}],
        }
    ]


def _pulls(source: NodeState, target: NodeState) -> list[Manifest]:
    """Images of both ways are on the node afterwards: the next without waiting, the former so that going back works."""
    plugin = [*NODE_PROGRAM, "device-plugin", "--help"]
    pulls: list[Manifest] = [{"name": "next-plugin", "image": target.plugin_image, "command": plugin}]
    if source.driver_image:
        mount = [{"name": "former", "mountPath": WORK}]
        command = ["/driver/prepare", WORK]
        pulls.append({"name": "former-driver", "image": source.driver_image, "command": command, "volumeMounts": mount})
    if source.plugin_image and source.plugin_image != target.plugin_image:
        pulls.append({"name": "former-plugin", "image": source.plugin_image, "command": plugin})
    return pulls


def _node_command(name: str, order: msgspec.Struct, settings: StackSettings, *, mounts: list[Manifest]) -> Manifest:
    return {
        "name": name,
        "image": settings.node_image,
        "command": [*NODE_PROGRAM, name],
        "env": [
            {"name": ORDER_VARIABLE, "value": msgspec.json.encode(order).decode()},
            {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"privileged": True},
        "volumeMounts": mounts,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    }


def _mount_host() -> Manifest:
    return {"name": "host", "mountPath": HOST_ROOT, "mountPropagation": "HostToContainer"}


def _host(name: str, path: str) -> Manifest:
    volume: Manifest = {"path": path}
    if path != "/":
        volume["type"] = "DirectoryOrCreate"
    return {"name": name, "hostPath": volume}


def _pod(name: str, upgrade: NodeUpgrade, component: str, spec: Manifest, settings: StackSettings) -> Manifest:
    owner = {
        "apiVersion": NODE_UPGRADES.api_version,
        "kind": NODE_UPGRADES.kind,
        "name": upgrade.metadata.name,
        "uid": upgrade.metadata.uid,
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": {names.LABEL_COMPONENT: component, names.LABEL_STACK: upgrade.spec.stack},
            "annotations": {ANNOTATION_UPGRADE: upgrade.metadata.name},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": upgrade.spec.node.name,
            "restartPolicy": "Never",
            "serviceAccountName": settings.service_account,
            "automountServiceAccountToken": False,
            "tolerations": EVERYWHERE,
            "priorityClassName": "system-node-critical",
            "terminationGracePeriodSeconds": 30,
            **spec,
        },
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
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": settings.service_account,
                    "automountServiceAccountToken": False,
                    "tolerations": EVERYWHERE,
                    "priorityClassName": "system-node-critical",
                    "terminationGracePeriodSeconds": 5,
                    **spec,
                },
            },
        },
    }
