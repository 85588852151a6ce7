"""The facts of nodes: total functions of the objects of the API server."""

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.core import untrusted
from upgrader.core.driver_image.missing_images import code_name, read_removed_driver
from upgrader.core.gpu_stack.adoption import consent_time, foreign_labels, unpaused_labels
from upgrader.core.model.fleet import NodeFacts
from upgrader.core.node_protocol.gpu_resources import PoolGpus, count_of, gpus_by_name
from upgrader.core.node_protocol.node_features import read_record

LONGEST_SETTINGS = 2048
"""Characters of a kubelet's settings, and of modules' parameters; those of a GpuStack have fewer."""

_SETTINGS = {names.ANNOTATION_KUBELET: "kubelet", names.ANNOTATION_PARAMETERS: "driver"}
"""Annotations with settings of a stack, and of which component."""


def node_facts(node: Node, resource: str, former: tuple[str, ...] = ()) -> NodeFacts:
    """The facts of a node. `resource`: extended resource whose devices are its GPUs; `former`: used in its place if the
    node offers none by that name.
    """
    labels, status = node.metadata.labels, node.status
    resource = PoolGpus(resource=resource, former=former).offered_as(status.allocatable, status.capacity)
    maintenance_taint = next((taint for taint in node.spec.taints if taint.key == names.TAINT_MAINTENANCE), None)
    offered = gpus_by_name(status.allocatable, resource)
    annotations = node.metadata.annotations
    return NodeFacts(
        name=node.metadata.name,
        uid=node.metadata.uid,
        kernel=untrusted.cut_name(status.node_info.kernel_version),
        kubelet_version=untrusted.cut_name(status.node_info.kubelet_version).removeprefix("v"),
        kubelet_settings=annotations.get(names.ANNOTATION_KUBELET, "")[:LONGEST_SETTINGS],
        module_parameters=annotations.get(names.ANNOTATION_PARAMETERS, "")[:LONGEST_SETTINGS],
        boot_id=untrusted.cut_name(status.node_info.boot_id),
        gpus=count_of(status.capacity, resource),
        gpus_allocatable=sum(offered.values()),
        gpus_in_parts=tuple((name, count) for name, count in offered.items() if name != resource),
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions),
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
        maintenance=(maintenance_taint.value or "without a name") if maintenance_taint is not None else "",
        closed_at=untrusted.parse_instant(maintenance_taint.time_added) if maintenance_taint is not None else None,
        claimed_by=untrusted.cut_name(node.metadata.annotations.get(names.ANNOTATION_CLAIMED_BY, "")),
        released_by=untrusted.cut_name(node.metadata.annotations.get(names.ANNOTATION_RELEASED_BY, "")),
        pending_kernel=pending_kernel(node),
        foreign_labels=foreign_labels(labels),
        unpaused_labels=unpaused_labels(labels),
        adopted=names.ANNOTATION_ADOPT in node.metadata.annotations,
        adopted_at=consent_time(node.metadata.annotations.get(names.ANNOTATION_ADOPT)),
        removed_driver=read_removed_driver(node.metadata.annotations.get(names.ANNOTATION_REMOVED_DRIVER)),
        os=code_name(untrusted.cut_name(status.node_info.os_image)),
        arch=untrusted.cut_name(status.node_info.architecture),
        unreadable=_unreadable_value(node, resource),
        labels=labels,
    )


def _unreadable_value(node: Node, resource: str) -> str:
    """The first unreadable value of a node and its resolution, as a sentence."""
    where = f"of node {node.metadata.name} cannot be read:"
    for annotation, component in _SETTINGS.items():
        text = node.metadata.annotations.get(annotation, "")
        if text and (len(text) > LONGEST_SETTINGS or untrusted.read_json(text, dict[str, str]) is None):
            return (
                f"Annotation {annotation} {where} {untrusted.quote_text(text)} is not a JSON object of strings. "
                f"Correct it, or remove it if the {component} has no settings of a stack."
            )
    for values in (node.status.capacity, node.status.allocatable):
        for name in PoolGpus(resource=resource).unreadable_names(values):
            return (
                f"{name} {where} {untrusted.quote_text(str(values[name]))} is not a whole number of GPUs. "
                "See its device plugin, and restart its kubelet."
            )
    return ""


def _labels_boot(node: Node) -> str:
    """The boot on which the operator's labeller wrote the kernel label; empty if another writer set or changed it."""
    text = node.metadata.annotations.get(names.ANNOTATION_NODE_FEATURES)
    record = read_record(text) if text is not None else None
    name = names.LABEL_KERNEL_NFD
    is_current = record is not None and record.labels.get(name, "") == node.metadata.labels.get(name)
    return record.boot_id if record is not None and is_current else ""


def pending_kernel(node: Node) -> str:
    """The kernel of the next boot, as reported on the present boot."""
    text = node.metadata.annotations.get(names.ANNOTATION_NODE_FEATURES)
    record = read_record(text) if text is not None else None
    present = record is not None and record.boot_id == node.status.node_info.boot_id
    return untrusted.cut_name(record.pending) if record is not None and present else ""
