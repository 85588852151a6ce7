"""What a visit runs on its node, as manifests: prepare pod, visit Job, validation pod. Pure.

All are pinned to the node by name, so that no scheduler is asked, and all tolerate everything. What images promise is
in docs/node-contract.md.
"""

import msgspec

from upgrader.api import names
from upgrader.api.resources import NODE_UPGRADES
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.orders import (
    HOST_ROOT,
    NODE_VARIABLE,
    ORDER_VARIABLE,
    RUN_DIRECTORY,
    STATE_DIRECTORY,
    Driver,
    KubeletTarget,
    PrepareOrder,
    ValidateOrder,
    VisitOrder,
)
from upgrader.core.phases import NodePhase, row
from upgrader.stack.naming import (
    PREPARE,
    VALIDATE,
    VISIT,
    prepare_name,
    validation_name,
    visit_name,
)
from upgrader.stack.parts import EVERYWHERE, NODE_PROGRAM, PULL, Manifest, host_path, mount, owned_by, scratch
from upgrader.stack.settings import StackSettings

REPORTED = (1, *range(10, 20))
"""Exit codes by which a visit says itself that it failed (docs/node-contract.md; 1 is Python's own). These are final.
Any other is the death of a container (137, 143, 255 after a power cut, 128 where it never started): it is run again."""

RUNS_AGAIN = 3
MARGIN_SECONDS = 60
"""Our pods are ended this long before their phase is: nothing of ours is on the node any more when it turns round."""

_MANIFEST = "/manifest"
_STATE = "/state"
_LOGS_ON_ERROR = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def prepare_pod(upgrade: NodeUpgrade, settings: StackSettings) -> Manifest:
    """Pulls what the visit needs, and what going back needs, and proves both while jobs run; loads nothing."""
    target = upgrade.spec.target
    order = PrepareOrder(
        kernel=target.kernel,
        driver=_driver(target),
        manifest=f"{_MANIFEST}/manifest.json",
        kubelet=_kubelet(upgrade, reverting=False),
    )
    container = _node_command(PREPARE, order, settings)
    container["volumeMounts"].append(mount("manifest", _MANIFEST, readOnly=True))
    volumes = [host_path("host", "/"), scratch("manifest")]
    first = [_driver_image("driver", target.driver_image, "manifest"), _plugin_image("plugin", target.plugin_image)]
    if upgrade.spec.source.driver_image not in {"", target.driver_image}:
        first.append(_driver_image("former-driver", upgrade.spec.source.driver_image, "former-manifest"))
        volumes.append(scratch("former-manifest"))
    if upgrade.spec.source.plugin_image not in {"", target.plugin_image}:
        first.append(_plugin_image("former-plugin", upgrade.spec.source.plugin_image))
    if order.kubelet is not None:
        first.append(_kubelet_image(target))
        volumes.append(host_path("state", STATE_DIRECTORY))
    spec = {"initContainers": first, "containers": [container], "volumes": volumes, **_on_the_host()}
    seconds = _seconds(NodePhase.PREPARING)
    return _pod(prepare_name(upgrade), upgrade, PREPARE, {**spec, "activeDeadlineSeconds": seconds}, settings)


def visit_job(upgrade: NodeUpgrade, *, reverting: bool, settings: StackSettings) -> Manifest:
    """Unloads the driver and swaps the kubelet, in the direction of the walk.

    A pod that dies is run again, which is safe because every step asks first what is so already; a failure that it
    reports is final. It has no TTL: its name, by which a restarted controller finds it, stays taken.
    """
    order = VisitOrder(
        visit=f"{upgrade.metadata.uid}{'-revert' if reverting else ''}",
        unload=_former_driver(upgrade, reverting=reverting),
        kubelet=_kubelet(upgrade, reverting=reverting),
    )
    spec = {
        "containers": [_node_command(VISIT, order, settings)],
        "volumes": [host_path("host", "/")],
        **_on_the_host(),
    }
    pod = _pod(visit_name(upgrade, reverting=reverting), upgrade, VISIT, spec, settings)
    template = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pod["metadata"],
        "spec": {
            "backoffLimit": RUNS_AGAIN,
            "activeDeadlineSeconds": _seconds(NodePhase.VISITING),
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": VISIT, "operator": "In", "values": list(REPORTED)},
                    },
                ]
            },
            "template": {"metadata": template, "spec": pod["spec"]},
        },
    }


def validation_pod(upgrade: NodeUpgrade, *, reverting: bool, boot_id: str, settings: StackSettings) -> Manifest:
    """Asks for one GPU, as a job does, and works on it before the node is given back."""
    after = upgrade.spec.source if reverting else upgrade.spec.target
    order = ValidateOrder(driver=_driver(after), boot_id=boot_id, devices=1)
    container = _node_command(VALIDATE, order, settings) | {
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [mount("run", RUN_DIRECTORY, readOnly=True)],
    }
    container["resources"] = container["resources"] | {"limits": {after.resource_name: "1"}}
    spec = {
        "containers": [container],
        "volumes": [host_path("run", RUN_DIRECTORY)],
        "activeDeadlineSeconds": _seconds(NodePhase.VALIDATING),
    }
    return _pod(validation_name(upgrade, reverting=reverting), upgrade, VALIDATE, spec, settings)


def _driver(state: NodeState) -> Driver:
    return Driver(vendor=state.driver_vendor, version=state.driver_version)


def _former_driver(upgrade: NodeUpgrade, *, reverting: bool) -> Driver:
    """What is unloaded. A node that joined anew shows nothing of us, but a driver of ours may still be loaded."""
    before = upgrade.spec.target if reverting else upgrade.spec.source
    return _driver(before) if before.driver_version else Driver(vendor=upgrade.spec.target.driver_vendor, version="")


def _kubelet(upgrade: NodeUpgrade, *, reverting: bool) -> KubeletTarget | None:
    """The kubelet that this way puts in place; None where the stack does not manage it or its version stays.

    The way back goes to the version that was found, at the place where the visit swapped it: an earlier revision may
    not have managed the kubelet, and need not have known where it is.
    """
    source, target = upgrade.spec.source, upgrade.spec.target
    after = source if reverting else target
    if not target.kubelet_version or not after.kubelet_version or source.kubelet_version == target.kubelet_version:
        return None
    return KubeletTarget(version=after.kubelet_version, binary=target.kubelet_binary)


def _driver_image(name: str, image: str, volume: str) -> Manifest:
    """Shows that a driver image is here and runs here."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": PULL,
        "command": ["/driver/prepare", _MANIFEST],
        "volumeMounts": [mount(volume, _MANIFEST)],
        **_LOGS_ON_ERROR,
    }


def _plugin_image(name: str, image: str) -> Manifest:
    """Shows that a plugin image is here and runs here."""
    command = [*NODE_PROGRAM, "device-plugin", "--help"]
    return {"name": name, "image": image, "imagePullPolicy": PULL, "command": command, **_LOGS_ON_ERROR}


def _kubelet_image(target: NodeState) -> Manifest:
    return {
        "name": "kubelet",
        "image": target.kubelet_artifact,
        "imagePullPolicy": PULL,
        "args": ["install", f"{_STATE}/kubelet/{target.kubelet_version}"],
        "volumeMounts": [mount("state", _STATE)],
        **_LOGS_ON_ERROR,
    }


def _node_command(name: str, order: msgspec.Struct, settings: StackSettings) -> Manifest:
    return {
        "name": name,
        "image": settings.node_image,
        "imagePullPolicy": PULL,
        "command": [*NODE_PROGRAM, name],
        "env": [
            {"name": ORDER_VARIABLE, "value": msgspec.json.encode(order).decode()},
            {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "securityContext": {"privileged": True},
        "volumeMounts": [mount("host", HOST_ROOT, mountPropagation="HostToContainer")],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        **_LOGS_ON_ERROR,
    }


def _on_the_host() -> Manifest:
    # The kubelet's /healthz is on the node's loopback, and it is found among the node's processes.
    return {"hostPID": True, "hostNetwork": True}


def _seconds(phase: NodePhase) -> int:
    return (row(phase).seconds or 0) - MARGIN_SECONDS


def _pod(name: str, upgrade: NodeUpgrade, component: str, spec: Manifest, settings: StackSettings) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": {names.LABEL_COMPONENT: component, names.LABEL_STACK: upgrade.spec.stack},
            "annotations": {names.ANNOTATION_NODE_UPGRADE: upgrade.metadata.name},
            "ownerReferences": [owned_by(NODE_UPGRADES, upgrade.metadata)],
        },
        "spec": {
            "nodeName": upgrade.spec.node.name,
            "restartPolicy": "Never",
            "serviceAccountName": settings.service_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": EVERYWHERE,
            "priorityClassName": settings.priority_class,
            "terminationGracePeriodSeconds": 5,
            **spec,
        },
    }
