"""Manifests of a node upgrade: prepare pod, upgrade Job, validation pod. Pure.

All are bound to the node by name, without the scheduler, and tolerate all taints. docs/reference/node-contract.md has
the contract of the images.
"""

import msgspec

from upgrader.api import names
from upgrader.api.resources import NODE_UPGRADES
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.operands import Operand
from upgrader.core.model.phases import NodePhase
from upgrader.core.model.vendors import NVIDIA
from upgrader.core.node_protocol.node_places import RUN_DIRECTORY, STATE_DIRECTORY
from upgrader.core.node_protocol.orders import (
    ValidateDriverOrder,
    ValidateOrder,
)
from upgrader.stack.naming import (
    PREPARE,
    UPGRADE,
    VALIDATE,
    prepare_name,
    upgrade_name,
    validation_name,
)
from upgrader.stack.node_pods.commands import HOST_NAMESPACES, host_command, node_command
from upgrader.stack.node_pods.node_states import expected_devices, plugin_settings
from upgrader.stack.node_pods.upgrade_orders import MANIFEST_FOLDER, driver_of_state, prepare_order, upgrade_order
from upgrader.stack.node_pods.validation import (
    driver_check,
    driver_check_volumes,
    power_limit_restoration,
    power_limit_volumes,
    runtime_fields,
    workload_containers,
)
from upgrader.stack.node_pods.validation_programs import (
    program_containers,
    program_volumes,
    pull_containers,
    pull_volumes,
)
from upgrader.stack.operands import containers
from upgrader.stack.parts import (
    LOGS_ON_ERROR,
    PULL_POLICY,
    TOLERATE_ALL,
    Manifest,
    empty_dir_volume,
    host_path,
    owner_reference,
    volume_mount,
)
from upgrader.stack.settings import StackSettings
from upgrader.stack.vendors import find_vendor

BUSY = 15
"""Processes use the driver: the pod is run again until they end or the phase ends, without a limit of attempts."""

OCCUPIED = 21
"""Another upgrade works on the node: the pod is run again in the same way."""

DEGRADED = 23
"""After the reboot the node has less than before. The last of the codes."""

REPORTED_FAILURES = (1, *range(10, BUSY), *range(BUSY + 1, OCCUPIED), *range(OCCUPIED + 1, DEGRADED + 1))
"""Exit codes by which an upgrade reports a failure (docs/reference/node-contract.md; 1 is that of Python). These are
final. Any other code is that of a killed container (137, 143, 255 after a power failure, 128 if it never started),
which is run again.
"""

MAX_RETRIES = 3

_STATE = "/state"


def prepare_pod(upgrade: NodeUpgrade, settings: StackSettings, *, adopted: bool = False) -> Manifest:
    """The pod that pulls and tests the images of the upgrade and of its revert, and surveys the node, while jobs run.

    It loads nothing. `adopted`: a user handed the node over from another operator.
    """
    target = upgrade.spec.target
    order = prepare_order(upgrade, settings, adopted=adopted)
    container = host_command(PREPARE, order, settings)
    container["volumeMounts"].append(volume_mount("manifest", MANIFEST_FOLDER, readOnly=True))
    volumes = [host_path("host", "/"), empty_dir_volume("manifest")]
    init_containers = [_driver_image("driver", target.driver_image, "manifest")]
    for name, image, operand in _operand_images(target):
        init_containers.append(_operand_image(name, image, operand, target))
    if upgrade.spec.source.driver_image not in {"", target.driver_image}:
        init_containers.append(_driver_image("former-driver", upgrade.spec.source.driver_image, "former-manifest"))
        volumes.append(empty_dir_volume("former-manifest"))
    source, target_images = upgrade.spec.source, {image for _, image, _ in _operand_images(target)}
    init_containers += [
        _operand_image(f"former-{name}", image, operand, source, former=True)
        for name, image, operand in _operand_images(source)
        if image not in target_images
    ]
    if pulls := pull_containers(upgrade, settings):
        init_containers += pulls
        volumes += pull_volumes()
    if order.kubelet is not None:
        init_containers.append(_kubelet_image(target))
        volumes.append(host_path("state", STATE_DIRECTORY))
    spec = {"initContainers": init_containers, "containers": [container], "volumes": volumes, **HOST_NAMESPACES}
    seconds = upgrade.spec.limits.pod_seconds(NodePhase.PREPARING)
    return _upgrade_pod(prepare_name(upgrade), upgrade, PREPARE, {**spec, "activeDeadlineSeconds": seconds}, settings)


def upgrade_job(upgrade: NodeUpgrade, *, reverting: bool, settings: StackSettings, adopted: bool = False) -> Manifest:
    """The Job that unloads the driver if its image changes, replaces the kubelet and reboots, in the direction of the
    upgrade or its revert.

    A pod that is killed is run again, which is safe because each step is idempotent; a failure that it reports is
    final. The Job has no TTL, so that a restarted controller finds it by its name. `adopted`: a user handed the node
    over from another operator.

    The Job is created suspended, and a second write starts it: a leader that was frozen may send the first write
    after the end of its upgrade, when a node of the same name may be a different node.
    """
    order = upgrade_order(upgrade, reverting=reverting, adopted=adopted)
    spec = {
        "containers": [host_command(UPGRADE, order, settings)],
        "volumes": [host_path("host", "/")],
        **HOST_NAMESPACES,
    }
    pod = _upgrade_pod(upgrade_name(upgrade, reverting=reverting), upgrade, UPGRADE, spec, settings)
    template = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pod["metadata"],
        "spec": {
            "suspend": True,
            "backoffLimit": MAX_RETRIES,
            "activeDeadlineSeconds": upgrade.spec.limits.pod_seconds(NodePhase.UPGRADING),
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "Ignore", "onExitCodes": _exit_codes(BUSY, OCCUPIED)},
                    {"action": "FailJob", "onExitCodes": _exit_codes(*REPORTED_FAILURES)},
                ]
            },
            "template": {"metadata": template, "spec": pod["spec"]},
        },
    }


def validation_pod(
    upgrade: NodeUpgrade,
    *,
    reverting: bool,
    node: NodeFacts,
    settings: StackSettings,
) -> Manifest:
    """The pod that checks all devices of the node, then requests all of them, as jobs do, and uses each.

    It requests the devices that the kubelet advertises now, so that it also starts if a device is missing, and
    reports which. Devices that have no built-in program are used by the workload of the stack, with one container for
    each device; without a workload they are only checked, and the result states that. Programs of the validation level
    run before that, each with all devices.

    Args:
        upgrade: the upgrade.
        reverting: whether the node is reverted.
        node: state of the node after the upgrade; no other pod has a device of it.
        settings: settings of the stack.
    """
    after = upgrade.spec.source if reverting else upgrade.spec.target
    limits = _device_limits(after.resource_name, node)
    check = ValidateDriverOrder(
        driver=driver_of_state(after),
        boot_id=node.boot_id,
        resource=after.resource_name,
        expected=max(expected_devices(upgrade, after, upgrade.status.found.gpus), node.gpus),
        parameters=dict(sorted(after.module_parameters.items())),
    )
    programs = program_containers(after, upgrade.spec.validation, limits, settings)
    containers = _device_containers(after, check, limits, settings)
    # Without a workload or programs the only container is the check itself.
    init_containers = [driver_check(check, settings), *programs] if programs or _has_workload(after) else []
    volumes = [*driver_check_volumes(), *(program_volumes() if programs else [])]
    if after.driver_vendor == NVIDIA.name:
        init_containers = [power_limit_restoration(settings), *init_containers]
        volumes += power_limit_volumes()
    spec = {
        **runtime_fields(after.workload_runtime),
        **({"initContainers": init_containers} if init_containers else {}),  # the API server drops an empty list
        "containers": containers,
        "volumes": volumes,
        "activeDeadlineSeconds": upgrade.spec.limits.pod_seconds(NodePhase.VALIDATING),
    }
    return _upgrade_pod(validation_name(upgrade, reverting=reverting), upgrade, VALIDATE, spec, settings)


def _has_builtin_workload(state: NodeState) -> bool:
    return not find_vendor(state.vendor or state.driver_vendor).facts.workload


def _has_workload(state: NodeState) -> bool:
    return _has_builtin_workload(state) or bool(state.workload_image)


def _device_containers(
    state: NodeState, check: ValidateDriverOrder, limits: dict[str, int], settings: StackSettings
) -> list[Manifest]:
    """The containers of a validation pod: the workload on each device, and the check with the result of the pod."""
    devices = sum(limits.values())
    if _has_builtin_workload(state):
        order = ValidateOrder(driver=check.driver, boot_id=check.boot_id, devices=max(1, devices // state.shares))
        return [_builtin_workload(order, limits, settings)]
    if not state.workload_image:
        final_check = msgspec.structs.replace(check, besides="checked only, because the stack has no workload")
        return [driver_check(final_check, settings, name=VALIDATE)]
    final_check = msgspec.structs.replace(
        check, besides=f"{state.workload_image} ran on {devices} of them, on each separately"
    )
    return [driver_check(final_check, settings, name=VALIDATE), *workload_containers(state.workload_image, limits)]


def _device_limits(resource: str, node: NodeFacts) -> dict[str, int]:
    """Number of devices of each extended resource that a pod requests to get all GPUs, at least one."""
    whole = {resource: node.gpus_whole} if node.gpus_whole else {}
    return whole | dict(node.gpus_in_parts) or {resource: 1}


def _builtin_workload(order: ValidateOrder, devices: dict[str, int], settings: StackSettings) -> Manifest:
    run = volume_mount("run", RUN_DIRECTORY, readOnly=True)
    unprivileged = {"allowPrivilegeEscalation": False}
    container = node_command(VALIDATE, order, settings, securityContext=unprivileged, volumeMounts=[run])
    limits = {name: str(count) for name, count in devices.items()}
    return container | {"resources": container["resources"] | {"limits": limits}}


def _exit_codes(*values: int) -> Manifest:
    return {"containerName": UPGRADE, "operator": "In", "values": list(values)}


def _driver_image(name: str, image: str, volume: str) -> Manifest:
    """A container that shows that a driver image is on the node and runs there."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": PULL_POLICY,
        "command": ["/driver/prepare", MANIFEST_FOLDER],
        "volumeMounts": [volume_mount(volume, MANIFEST_FOLDER)],
        **LOGS_ON_ERROR,
    }


def _operand_images(state: NodeState) -> list[tuple[str, str, Operand]]:
    """Images of operands that change in upgrades: name of the container, image, operand."""
    images = [("runtime", state.runtime_image, Operand.RUNTIME), ("plugin", state.plugin_image, Operand.DEVICE_PLUGIN)]
    return [entry for entry in images if entry[1]]


def _operand_image(name: str, image: str, operand: Operand, state: NodeState, *, former: bool = False) -> Manifest:
    """A container that shows that an operand image is on the node and runs there with its options, except for a
    former one.
    """
    check = find_vendor(state.vendor or state.driver_vendor).image_checks[operand](
        None if former else plugin_settings(state)
    )
    container = containers.operand_container(name, image, check) | LOGS_ON_ERROR
    container.pop("volumeMounts")
    return container


def _kubelet_image(target: NodeState) -> Manifest:
    return {
        "name": "kubelet",
        "image": target.kubelet_artifact,
        "imagePullPolicy": PULL_POLICY,
        "args": ["install", f"{_STATE}/kubelet/{target.kubelet_version}"],
        "volumeMounts": [volume_mount("state", _STATE)],
        **LOGS_ON_ERROR,
    }


def _upgrade_pod(name: str, upgrade: NodeUpgrade, component: str, spec: Manifest, settings: StackSettings) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": {names.LABEL_COMPONENT: component, names.LABEL_STACK: upgrade.spec.stack},
            "annotations": {names.ANNOTATION_NODE_UPGRADE: upgrade.metadata.name},
            "ownerReferences": [owner_reference(NODE_UPGRADES, upgrade.metadata)],
        },
        "spec": {
            "nodeName": upgrade.spec.node.name,
            "restartPolicy": "Never",
            "serviceAccountName": settings.service_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": TOLERATE_ALL,
            "priorityClassName": settings.priority_class,
            "terminationGracePeriodSeconds": 5,
            **spec,
        },
    }
