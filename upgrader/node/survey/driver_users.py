"""What uses the loaded driver: processes of pods and units, and modules of others. Also a driver of another program."""

from collections import defaultdict
from collections.abc import Iterator

from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.core.node_protocol.gpu_resources import is_gpu
from upgrader.node.driver.device_holders import DeviceHolder, find_device_holders
from upgrader.node.driver.foreign_driver import DEVICES, MODULES, read_module_version, removal_order
from upgrader.node.driver.loaded_driver import read_loaded_driver
from upgrader.node.kubelet.node_pods import NodePod
from upgrader.node.survey.surveyed_node import SurveyedNode, make_handled, make_problem, make_warning

DRIVER_MODULES = {"nvidia": frozenset({"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem"})}
"""By vendor, the modules of its driver."""

_STOP = "Add it to spec.host.stop of the stack, or disable it on nodes of this stack: systemctl disable --now {unit}"


def check_driver_users(node: SurveyedNode) -> Iterator[Advice]:
    """Processes that hold a device and that the upgrade does not end."""
    prefix = DEVICES.get(node.scope.vendor, "")
    if not prefix or not node.scope.swaps_driver:
        return
    by_pod, by_unit, others = defaultdict[str, list[DeviceHolder]](list), defaultdict[str, list[DeviceHolder]](list), []
    for holder in find_device_holders(node.host.proc, prefix):
        if holder.pod:
            by_pod[holder.pod].append(holder)
        elif holder.unit:
            by_unit[holder.unit].append(holder)
        else:
            others.append(holder)
    for uid, holders in by_pod.items():
        yield from _judge_pod(node, uid, holders)
    for unit, holders in by_unit.items():
        if unit in node.scope.stop_units:
            yield make_handled(
                SurveyCheck.DRIVER_IN_USE, unit, f"holds the driver: {_name_processes(holders)}; the upgrade stops it"
            )
            continue
        yield _make_finding(node, unit, f"holds the driver: {_name_processes(holders)}", _STOP.format(unit=unit))
    for holder in others:
        yield _make_finding(node, str(holder), "holds the driver, in no pod and no systemd unit", "End the process.")


def check_foreign_driver(node: SurveyedNode) -> Iterator[Advice]:
    """A driver that no image of this operator has loaded."""
    vendor = node.scope.vendor
    loaded = removal_order(node.system, MODULES.get(vendor, ""))
    if not loaded or not node.scope.swaps_driver or read_loaded_driver(node.host.run, vendor) is not None:
        return
    version = read_module_version(node.system / "module" / loaded[-1])
    message = f"{version}, loaded by another program ({', '.join(loaded)})"
    if node.scope.adopted:
        yield make_handled(
            SurveyCheck.FOREIGN_DRIVER, f"driver {vendor}", f"{message}; it is unloaded, because the node was adopted"
        )
        return
    yield make_problem(
        SurveyCheck.FOREIGN_DRIVER,
        f"driver {vendor}",
        message,
        "Remove what loads it (another operator's driver pod, or a package of the node) and reboot, or hand the node "
        "over: upgrader adopt NODE",
    )


def check_companions(node: SurveyedNode) -> Iterator[Advice]:
    """Modules of other projects that use the driver, such as gdrdrv and nvidia_fs."""
    own = DRIVER_MODULES.get(node.scope.vendor, frozenset())
    if not node.scope.swaps_driver:
        return
    names = [name for name in removal_order(node.system, MODULES.get(node.scope.vendor, "")) if name not in own]
    for name in names:
        yield _make_finding(
            node,
            f"module {name}",
            "uses the driver; it is not a part of the driver image and would not be loaded again",
            f"Stop the programs that use it, then: rmmod {name}",
            SurveyCheck.COMPANION_MODULES,
        )


def _judge_pod(node: SurveyedNode, uid: str, holders: list[DeviceHolder]) -> Iterator[Advice]:
    processes = _name_processes(holders)
    if node.pods is None:
        yield make_warning(
            SurveyCheck.DRIVER_IN_USE,
            f"pod {uid}",
            f"holds the driver ({processes}); the pods of the node cannot be read",
            "Check that the pod requests GPUs, so that the upgrade ends it.",
        )
        return
    pod = node.pods.get(uid)
    if pod is None or _is_ended(node, pod):
        return  # it ended in the meantime, or the upgrade ends it
    if node.scope.adopted and pod.owner == "DaemonSet":
        yield make_warning(
            SurveyCheck.DRIVER_IN_USE,
            f"pod {pod}",
            f"holds the driver without a request for GPUs: {processes}",
            "It is a DaemonSet's; on this adopted node the upgrade waits until its operator has removed it.",
        )
        return
    yield _make_finding(
        node,
        f"pod {pod}",
        f"holds the driver without a request for GPUs, so the upgrade does not end it: {processes}",
        "Request GPUs in the pod, or delete it before the upgrade.",
    )


def _is_ended(node: SurveyedNode, pod: NodePod) -> bool:
    """Whether the upgrade ends a pod before it unloads the driver."""
    if pod.namespace == node.scope.namespace:
        return True
    requests_gpus = any(is_gpu(name, resource) for name in pod.resources for resource in node.scope.resources)
    if requests_gpus or pod.claims:
        return True
    return node.scope.ends_pods and pod.owner != "DaemonSet" and not pod.static


def _make_finding(
    node: SurveyedNode, subject: str, message: str, fix: str, check: SurveyCheck = SurveyCheck.DRIVER_IN_USE
) -> Advice:
    """A problem; a warning if a reboot, also one after a failed unload, ends every process and unloads every module."""
    make = make_warning if node.scope.reboots else make_problem
    return make(check, subject, message, fix)


def _name_processes(holders: list[DeviceHolder]) -> str:
    return ", ".join(f"pid {holder.pid} ({holder.name})" for holder in holders)
