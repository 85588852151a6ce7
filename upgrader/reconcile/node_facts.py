"""Nodes as the rules see them: total functions from what the API server sends."""

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.core import untrusted
from upgrader.core.adoption import theirs
from upgrader.core.fleet import NodeFacts
from upgrader.core.gpu_resources import PoolGpus, count_of, gpus_by_name
from upgrader.core.node_features import read_record
from upgrader.core.uncovered import code_name, read_uncovered


def node_facts(node: Node, resource: str, former: tuple[str, ...] = ()) -> NodeFacts:
    """A node. `resource` is the extended resource whose devices are its GPUs; `former`: where none is offered by that
    name, those by another one are.
    """
    labels, status = node.metadata.labels, node.status
    resource = PoolGpus(resource=resource, former=former).offered_as(status.allocatable, status.capacity)
    ours = next((taint for taint in node.spec.taints if taint.key == names.TAINT_MAINTENANCE), None)
    offered = gpus_by_name(status.allocatable, resource)
    return NodeFacts(
        name=node.metadata.name,
        uid=node.metadata.uid,
        kernel=status.node_info.kernel_version,
        kubelet_version=status.node_info.kubelet_version.removeprefix("v"),
        kubelet_settings=node.metadata.annotations.get(names.ANNOTATION_KUBELET, ""),
        boot_id=status.node_info.boot_id,
        gpus=count_of(status.capacity, resource),
        gpus_allocatable=sum(offered.values()),
        gpus_in_parts=tuple((name, count) for name, count in offered.items() if name != resource),
        ready=any(one.type == "Ready" and one.status == "True" for one in status.conditions),
        unschedulable=node.spec.unschedulable,
        skip=labels.get(names.LABEL_SKIP) == "true",
        kernel_label=labels.get(names.LABEL_KERNEL_NFD, ""),
        labels_boot=_labels_boot(node),
        driver_version_label=labels.get(names.LABEL_DRIVER_GFD, ""),
        driver_key=labels.get(names.LABEL_DRIVER, ""),
        runtime_key=labels.get(names.LABEL_RUNTIME, ""),
        plugin_key=labels.get(names.LABEL_DEVICE_PLUGIN, ""),
        operands=labels.get(names.LABEL_OPERANDS, ""),
        revision=labels.get(names.LABEL_REVISION, ""),
        maintenance=(ours.value or "without a name") if ours is not None else "",
        closed_at=untrusted.instant(ours.time_added) if ours is not None else None,
        visit=node.metadata.annotations.get(names.ANNOTATION_VISIT, ""),
        pending_kernel=pending_kernel(node),
        theirs=theirs(labels),
        adopted=names.ANNOTATION_ADOPT in node.metadata.annotations,
        uncovered=read_uncovered(node.metadata.annotations.get(names.ANNOTATION_UNCOVERED)),
        os=code_name(status.node_info.os_image),
        arch=status.node_info.architecture,
        labels=labels,
    )


def _labels_boot(node: Node) -> str:
    """The boot on which our labeller read the kernel label; empty where it is not ours, or was changed after us."""
    text = node.metadata.annotations.get(names.ANNOTATION_NODE_FEATURES)
    record = read_record(text) if text is not None else None
    name = names.LABEL_KERNEL_NFD
    ours = record is not None and record.labels.get(name, "") == node.metadata.labels.get(name)
    return record.boot_id if record is not None and ours else ""


def pending_kernel(node: Node) -> str:
    """The kernel of the next boot, as it was read on this one."""
    text = node.metadata.annotations.get(names.ANNOTATION_NODE_FEATURES)
    record = read_record(text) if text is not None else None
    present = record is not None and record.boot_id == node.status.node_info.boot_id
    return record.pending if record is not None and present else ""
