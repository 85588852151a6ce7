"""Manifests of a node upgrade: prepare pod, upgrade Job, validation pod. Pure.

All are bound to the node by name, without the scheduler, and tolerate all taints. docs/reference/node-contract.md has
the contract of the images.
"""

import msgspec

from upgrader.api import names
from upgrader.api.resources import NODE_UPGRADES
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.model.operands import Operand, PluginSettings
from upgrader.core.model.phases import NodePhase, row
from upgrader.core.model.vendors import SIM
from upgrader.core.node_protocol.node_places import HOST_ROOT, RUN_DIRECTORY, STATE_DIRECTORY
from upgrader.core.node_protocol.orders import (
    Driver,
    KubeletSettings,
    KubeletTarget,
    PrepareOrder,
    Reboot,
    UpgradeOrder,
    ValidateDriverOrder,
    ValidateOrder,
)
from upgrader.stack import containers
from upgrader.stack.commands import LOGS_ON_ERROR, node_command
from upgrader.stack.naming import (
    PREPARE,
    UPGRADE,
    VALIDATE,
    prepare_name,
    upgrade_name,
    validation_name,
)
from upgrader.stack.order import hook_left
from upgrader.stack.parts import EVERYWHERE, PULL, Manifest, host_path, mount, owned_by, scratch
from upgrader.stack.settings import StackSettings
from upgrader.stack.validation import Workload, driver_check, driver_check_volumes, in_runtime, works
from upgrader.stack.vendors import VENDORS

BUSY = 15
"""Processes use the driver: the pod is run again until they end or the phase ends, without a limit of attempts."""

OCCUPIED = 21
"""Another upgrade works on the node: the pod is run again in the same way."""

REPORTED = (1, *range(10, BUSY), *range(BUSY + 1, 21))
"""Exit codes by which an upgrade reports a failure (docs/reference/node-contract.md; 1 is that of Python). These are
final. Any other code is that of a killed container (137, 143, 255 after a power failure, 128 if it never started),
which is run again.
"""

RUNS_AGAIN = 3
MARGIN_SECONDS = 60
"""The deadline of the pods is this long before that of their phase, so that none runs on the node when a revert
starts.
"""

_MANIFEST = "/manifest"
_STATE = "/state"


def prepare_pod(upgrade: NodeUpgrade, settings: StackSettings) -> Manifest:
    """The pod that pulls and tests the images of the upgrade and of its revert while jobs run; it loads nothing."""
    target = upgrade.spec.target
    order = PrepareOrder(
        kernel=target.kernel,
        driver=_driver_of_state(target),
        manifest=f"{_MANIFEST}/manifest.json",
        kubelet=_kubelet_target(upgrade, reverting=False),
        settings=_kubelet_settings(upgrade, reverting=False),
        reboot=_reboot_order(upgrade, reverting=False),
    )
    container = _privileged_container(PREPARE, order, settings)
    container["volumeMounts"].append(mount("manifest", _MANIFEST, readOnly=True))
    volumes = [host_path("host", "/"), scratch("manifest")]
    first = [_driver_image("driver", target.driver_image, "manifest")]
    for name, image, operand in _operand_images(target):
        first.append(_operand_image(name, image, operand, target))
    if upgrade.spec.source.driver_image not in {"", target.driver_image}:
        first.append(_driver_image("former-driver", upgrade.spec.source.driver_image, "former-manifest"))
        volumes.append(scratch("former-manifest"))
    source, taken = upgrade.spec.source, {image for _, image, _ in _operand_images(target)}
    first += [
        _operand_image(f"former-{name}", image, operand, source, former=True)
        for name, image, operand in _operand_images(source)
        if image not in taken
    ]
    if order.kubelet is not None:
        first.append(_kubelet_image(target))
        volumes.append(host_path("state", STATE_DIRECTORY))
    spec = {"initContainers": first, "containers": [container], "volumes": volumes, **_on_the_host()}
    seconds = _deadline_seconds(NodePhase.PREPARING)
    return _upgrade_pod(prepare_name(upgrade), upgrade, PREPARE, {**spec, "activeDeadlineSeconds": seconds}, settings)


def upgrade_job(upgrade: NodeUpgrade, *, reverting: bool, settings: StackSettings) -> Manifest:
    """The Job that unloads the driver, replaces the kubelet and reboots, in the direction of the upgrade or its
    revert.

    A pod that is killed is run again, which is safe because each step is idempotent; a failure that it reports is
    final. The Job has no TTL, so that a restarted controller finds it by its name.

    The Job is created suspended, and a second write starts it: a leader that was frozen may send the first write
    after the end of its upgrade, when a node of the same name may be a different node.
    """
    order = UpgradeOrder(
        upgrade=f"{upgrade.metadata.uid}{'-revert' if reverting else ''}",
        undoes=upgrade.metadata.uid if reverting else "",
        unload=_former_driver(upgrade, reverting=reverting),
        kubelet=_kubelet_target(upgrade, reverting=reverting),
        settings=_kubelet_settings(upgrade, reverting=reverting),
        reboot=_reboot_order(upgrade, reverting=reverting),
        forget=_left_by_hooks(upgrade),
    )
    spec = {
        "containers": [_privileged_container(UPGRADE, order, settings)],
        "volumes": [host_path("host", "/")],
        **_on_the_host(),
    }
    pod = _upgrade_pod(upgrade_name(upgrade, reverting=reverting), upgrade, UPGRADE, spec, settings)
    template = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pod["metadata"],
        "spec": {
            "suspend": True,
            "backoffLimit": RUNS_AGAIN,
            "activeDeadlineSeconds": _deadline_seconds(NodePhase.UPGRADING),
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    {"action": "Ignore", "onExitCodes": _exit_codes(BUSY, OCCUPIED)},
                    {"action": "FailJob", "onExitCodes": _exit_codes(*REPORTED)},
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
    each device; without a workload they are only checked, and the result states that.

    Args:
        upgrade: the upgrade.
        reverting: whether the node is reverted.
        node: state of the node after the upgrade; no other pod has a device of it.
        settings: settings of the stack.
    """
    after = upgrade.spec.source if reverting else upgrade.spec.target
    limits = _all_offered(after.resource_name, node)
    asked = sum(limits.values())
    look = ValidateDriverOrder(
        driver=_driver_of_state(after),
        boot_id=node.boot_id,
        resource=after.resource_name,
        expected=max(offered(upgrade, after, upgrade.status.found.gpus), node.gpus),
    )
    workload = Workload(image=after.workload_image, runtime_class=after.workload_runtime)
    last: list[Manifest]
    if (after.vendor or after.driver_vendor) == SIM:
        order = ValidateOrder(
            driver=_driver_of_state(after), boot_id=node.boot_id, devices=max(1, asked // after.shares)
        )
        first, last = [driver_check(look, settings)], [_works_on_all(order, limits, settings)]
    elif not workload.image:
        told = msgspec.structs.replace(look, besides="checked only, because the stack has no workload")
        first, last = [], [driver_check(told, settings, name=VALIDATE)]
    else:
        told = msgspec.structs.replace(look, besides=f"{workload.image} ran on {asked} of them, on each separately")
        first = [driver_check(look, settings)]
        last = [driver_check(told, settings, name=VALIDATE), *works(workload, limits)]
    spec = {
        **in_runtime(workload),
        **({"initContainers": first} if first else {}),  # the API server drops an empty list
        "containers": last,
        "volumes": driver_check_volumes(),
        "activeDeadlineSeconds": _deadline_seconds(NodePhase.VALIDATING),
    }
    return _upgrade_pod(validation_name(upgrade, reverting=reverting), upgrade, VALIDATE, spec, settings)


def offered(upgrade: NodeUpgrade, after: NodeState, found: int) -> int:
    """Number of devices that the node is expected to advertise in a state, from those before the upgrade and their
    sharing.

    0, which means at least one, if the number is unknown: the node was never installed, or is partitioned or shared
    differently now.
    """
    before = upgrade.spec.source
    if before.mig_strategy != after.mig_strategy:
        return 0
    if before.shares == after.shares:
        return found
    # With `mixed` only whole GPUs are shared, and the number of these before the upgrade is not recorded.
    return 0 if after.mig_strategy == "mixed" else found // before.shares * after.shares


def _all_offered(resource: str, node: NodeFacts) -> dict[str, int]:
    """Number of devices of each extended resource that a pod requests to get all GPUs, at least one."""
    whole = {resource: node.gpus_whole} if node.gpus_whole else {}
    return whole | dict(node.gpus_in_parts) or {resource: 1}


def _works_on_all(order: ValidateOrder, asked: dict[str, int], settings: StackSettings) -> Manifest:
    run = mount("run", RUN_DIRECTORY, readOnly=True)
    unprivileged = {"allowPrivilegeEscalation": False}
    container = node_command(VALIDATE, order, settings, securityContext=unprivileged, volumeMounts=[run])
    limits = {name: str(count) for name, count in asked.items()}
    return container | {"resources": container["resources"] | {"limits": limits}}


def _exit_codes(*values: int) -> Manifest:
    return {"containerName": UPGRADE, "operator": "In", "values": list(values)}


def _driver_of_state(state: NodeState) -> Driver:
    return Driver(vendor=state.driver_vendor, version=state.driver_version)


def _former_driver(upgrade: NodeUpgrade, *, reverting: bool) -> Driver:
    """The driver to unload. A node that joined again has no labels, but a driver of the stack may still be loaded."""
    before = upgrade.spec.target if reverting else upgrade.spec.source
    return (
        _driver_of_state(before)
        if before.driver_version
        else Driver(vendor=upgrade.spec.target.driver_vendor, version="")
    )


def _left_by_hooks(upgrade: NodeUpgrade) -> tuple[str, ...]:
    """Files that managed runtime hooks left on the node, which are off while the upgrade Job runs."""
    states = [one for one in (upgrade.spec.source, upgrade.spec.target) if one.runtime_key]
    plugins = [
        PluginSettings(
            vendor=one.vendor or one.driver_vendor, driver_vendor=one.driver_vendor, resource_name=one.resource_name
        )
        for one in states
    ]
    return tuple(sorted({file for one in plugins if (file := hook_left(one))}))


def _kubelet_target(upgrade: NodeUpgrade, *, reverting: bool) -> KubeletTarget | None:
    """The kubelet to install in this direction; None if the stack does not manage it or its version does not change.

    A revert installs the version before the upgrade at the path of the upgrade: an earlier revision may not have
    managed the kubelet, and may not contain its path.
    """
    source, target = upgrade.spec.source, upgrade.spec.target
    after = source if reverting else target
    if not target.kubelet_version or not after.kubelet_version or source.kubelet_version == target.kubelet_version:
        return None
    return KubeletTarget(version=after.kubelet_version, binary=target.kubelet_binary)


def empties(upgrade: NodeUpgrade) -> bool:
    """Whether the upgrade ends all pods on the node, with GPUs or without."""
    return upgrade.spec.reboot is not None or sets_kubelet(upgrade)


def sets_kubelet(upgrade: NodeUpgrade) -> bool:
    """Whether the upgrade changes how the kubelet places pods on CPUs, which requires a node without running pods."""
    return upgrade.spec.source.kubelet_settings != upgrade.spec.target.kubelet_settings


def _kubelet_settings(upgrade: NodeUpgrade, *, reverting: bool) -> KubeletSettings | None:
    """The settings of the kubelet in this direction; None if they do not change."""
    if not sets_kubelet(upgrade):
        return None
    source, target = upgrade.spec.source, upgrade.spec.target
    after = source if reverting else target
    return KubeletSettings(
        binary=target.kubelet_binary or source.kubelet_binary, values=dict(sorted(after.kubelet_settings.items()))
    )


def _reboot_order(upgrade: NodeUpgrade, *, reverting: bool) -> Reboot | None:
    """The reboot in this direction; a revert leads to the kernel before the upgrade and does nothing if that still
    runs.
    """
    found = upgrade.spec.reboot
    if found is None:
        return None
    kernel = found.source if reverting else found.target
    return Reboot(kernel=kernel, select=tuple(found.select), restart=tuple(found.restart))


def _driver_image(name: str, image: str, volume: str) -> Manifest:
    """A container that shows that a driver image is on the node and runs there."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": PULL,
        "command": ["/driver/prepare", _MANIFEST],
        "volumeMounts": [mount(volume, _MANIFEST)],
        **LOGS_ON_ERROR,
    }


def _operand_images(state: NodeState) -> list[tuple[str, str, Operand]]:
    """Images of operands that change in upgrades: name of the container, image, operand."""
    found = [("runtime", state.runtime_image, Operand.RUNTIME), ("plugin", state.plugin_image, Operand.DEVICE_PLUGIN)]
    return [one for one in found if one[1]]


def _operand_image(name: str, image: str, operand: Operand, state: NodeState, *, former: bool = False) -> Manifest:
    """A container that shows that an operand image is on the node and runs there with its options, except for a
    former one.
    """
    proof = VENDORS[state.vendor or state.driver_vendor].proofs[operand](None if former else plugin_settings(state))
    found = containers.container(name, image, proof) | LOGS_ON_ERROR
    found.pop("volumeMounts")
    return found


def plugin_settings(state: NodeState) -> PluginSettings:
    """The settings of the device plugin in a state."""
    return PluginSettings(
        vendor=state.vendor or state.driver_vendor,
        driver_vendor=state.driver_vendor,
        resource_name=state.resource_name,
        time_slices=state.time_slices,
        mps_replicas=state.mps_replicas,
        mps_runtime=state.mps_runtime,
        mig_strategy=state.mig_strategy,
        cdi=bool(state.runtime_image),
    )


def _kubelet_image(target: NodeState) -> Manifest:
    return {
        "name": "kubelet",
        "image": target.kubelet_artifact,
        "imagePullPolicy": PULL,
        "args": ["install", f"{_STATE}/kubelet/{target.kubelet_version}"],
        "volumeMounts": [mount("state", _STATE)],
        **LOGS_ON_ERROR,
    }


def _privileged_container(name: str, order: msgspec.Struct, settings: StackSettings) -> Manifest:
    host = mount("host", HOST_ROOT, mountPropagation="HostToContainer")
    return node_command(name, order, settings, securityContext={"privileged": True}, volumeMounts=[host])


def _on_the_host() -> Manifest:
    # /healthz of the kubelet is on the loopback interface of the node, and the kubelet is found among its processes.
    return {"hostPID": True, "hostNetwork": True}


def _deadline_seconds(phase: NodePhase) -> int:
    return (row(phase).seconds or 0) - MARGIN_SECONDS


def _upgrade_pod(name: str, upgrade: NodeUpgrade, component: str, spec: Manifest, settings: StackSettings) -> Manifest:
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
