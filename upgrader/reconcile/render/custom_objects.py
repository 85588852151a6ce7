"""Manifests of NodeUpgrades and CheckpointRequests; pure. Names follow from the purpose of an object."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import CHECKPOINT_REQUESTS, NODE_UPGRADES
from upgrader.api.v1alpha1 import GpuStackSpec, NodeState, RebootSpec, RebootState
from upgrader.core import timing, untrusted
from upgrader.core.errors import ConfigurationError, UnreadableError
from upgrader.core.model.fleet import Gang, ImageFacts, NodeFacts, Target
from upgrader.core.model.phases import UpgradeReason
from upgrader.core.model.revisions import plugin_key_of, runtime_key_of
from upgrader.core.model.upgrade_limits import UpgradeLimits
from upgrader.core.model.validation import AllReduce, Diagnostics, ValidationLevel
from upgrader.core.naming import hash_digits, object_name
from upgrader.core.workloads.checkpoint_annotations import find_leader

Program = TypeVar("Program", AllReduce, Diagnostics)

LABEL_BATCH = f"{names.GROUP}/batch"


def batch_of(meta: ObjectMeta) -> int:
    """The number of an object's batch; 0 if its label is no number."""
    return untrusted.parse_whole(meta.labels.get(LABEL_BATCH)) or 0


def wanted_state(target: Target, image: ImageFacts) -> NodeState:
    """The state of a node under a revision, with the image for its kernel."""
    return NodeState(
        revision=target.revision,
        kernel=image.kernel,
        driver_vendor=image.vendor,
        driver_version=image.version,
        driver_image=image.digest,
        driver_key=image.key,
        plugin_image=target.plugin_digest,
        plugin_key=plugin_key_of(target),
        time_slices=target.time_slices,
        mps_replicas=target.mps_replicas,
        mps_runtime=target.mps_runtime,
        mig_strategy=target.mig_strategy,
        runtime_image=target.runtime_digest,
        runtime_key=runtime_key_of(target),
        kubelet_version=target.kubelet_version,
        kubelet_artifact=target.kubelet_digest,
        kubelet_binary=target.kubelet_binary,
        kubelet_settings=dict(target.kubelet_settings),
        module_parameters=dict(target.module_parameters),
        workload_image=target.workload_digest,
        workload_runtime=target.workload_runtime,
        all_reduce=_pin_program(target.all_reduce, target.all_reduce_digest),
        diagnostics=_pin_program(target.diagnostics, target.diagnostics_digest),
        resource_name=target.resource_name,
        vendor=target.vendor,
    )


def _pin_program(program: Program | None, digest: str) -> Program | None:
    """A program of the validation with its image by digest."""
    return msgspec.structs.replace(program, image=digest) if program is not None else None


def present_state(node: NodeFacts, had: Target | None, image: ImageFacts | None) -> NodeState:
    """The present state of a node, as far as the operator manages it: empty if it was never installed."""
    settings = _read_annotation(node, names.ANNOTATION_KUBELET, node.kubelet_settings)
    parameters = _read_annotation(node, names.ANNOTATION_PARAMETERS, node.module_parameters)
    if image is None or had is None:
        return NodeState(
            kubelet_version=node.kubelet_version,
            kubelet_binary=had.kubelet_binary if had else "",
            kubelet_settings=settings,
            module_parameters=parameters,
        )
    state = wanted_state(had, image)
    # These are read from the node: an earlier revision may not have managed them.
    return msgspec.structs.replace(
        state,
        kubelet_version=node.kubelet_version,
        kubelet_settings=settings,
        module_parameters=parameters,
        plugin_key=node.plugin_key or state.plugin_key,
        runtime_key=node.runtime_key or state.runtime_key,
    )


def _read_annotation(node: NodeFacts, annotation: str, text: str) -> dict[str, str]:
    """Settings that a node upgrade has made on the node, as recorded in an annotation.

    Raises:
        ConfigurationError: the annotation on the node is invalid.
    """
    try:
        return untrusted.decode_json(text or "{}", dict[str, str])
    except UnreadableError as error:
        raise ConfigurationError(
            f"annotation {annotation} of node {node.name} cannot be read ({error}): correct or remove it"
        ) from error


def reboot_state(node: NodeFacts, target: Target, image: ImageFacts, spec: GpuStackSpec) -> RebootState | None:
    """The reboot of a node upgrade to the driver of `image`; None if the node runs the wanted kernel, and an unload
    that fails is final or not needed.

    The way of the reboot is that of the present stack: the revision of a rollback may contain an older way.
    """
    kernel = target.kernel_of(node)
    may_reboot = spec.reboots_after_failed_unload and target.replaces_driver(node, image)
    if kernel == node.kernel and not may_reboot:
        return None
    way = spec.reboot or RebootSpec(
        kernel=kernel, select=list(target.reboot_select), restart=list(target.reboot_restart)
    )
    return RebootState(
        source=node.kernel,
        target=kernel,
        select=way.select,
        restart=way.restart,
        when="Always" if kernel != node.kernel else "UnloadFailed",
        on_loss=way.on_loss,
        settle_seconds=way.settle_seconds,
    )


def lone_group(node: str) -> str:
    """Name of the group of a node that is upgraded alone."""
    return f"n-{hash_digits(node, count=10)}"


def group_name(plan: str, batch: int, nodes: Sequence[str]) -> str:
    """Name of a started group, and value of its taint.

    It differs in each batch, since a Job keeps the toleration of its restart.
    """
    return f"c-{hash_digits(plan, str(batch), *sorted(nodes), count=10)}"


def upgrade_name(node: str, *identity: str) -> str:
    """Name of a NodeUpgrade."""
    return object_name(node, node, *identity)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A node upgrade to create; `plan` and `batch` only for a plan."""

    name: str
    node: NodeFacts
    stack: str
    group: str
    reason: UpgradeReason
    source: NodeState
    target: NodeState
    limits: UpgradeLimits
    stop_units: Sequence[str] = ()
    plan: str | None = None
    batch: int = 0
    reboot: RebootState | None = None
    attempt: int = 1
    takes_over: str = ""  # uid of a deleted node upgrade whose claim is on the node
    validation: ValidationLevel = ValidationLevel.DEVICES


def node_upgrade(order: Order, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    """A NodeUpgrade's manifest."""
    labels = {names.LABEL_STACK: order.stack, names.LABEL_GROUP: order.group}
    spec: dict[str, Any] = {
        "stack": order.stack,
        "group": order.group,
        "node": {"name": order.node.name, "uid": order.node.uid},
        "reason": order.reason.value,
        "source": msgspec.to_builtins(order.source),
        "target": msgspec.to_builtins(order.target),
        "limits": msgspec.to_builtins(order.limits),
    }
    if order.reboot is not None:
        spec["reboot"] = msgspec.to_builtins(order.reboot)
    if order.validation is not ValidationLevel.DEVICES:
        spec["validation"] = order.validation.value
    if order.stop_units:
        spec["stopUnits"] = list(order.stop_units)
    if order.attempt > 1:
        spec["attempt"] = order.attempt
    if order.takes_over:
        spec["takesOver"] = order.takes_over
    if order.plan is not None:
        labels |= {names.LABEL_PLAN: order.plan, LABEL_BATCH: str(order.batch)}
        spec["plan"] = order.plan
    return {
        "apiVersion": NODE_UPGRADES.api_version,
        "kind": NODE_UPGRADES.kind,
        "metadata": {
            "name": order.name,
            "labels": labels,
            "ownerReferences": [owner] if owner else [],
            "finalizers": [names.FINALIZER],
        },
        "spec": spec,
    }


def request_name(plan: str, batch: int | str, gang: str) -> str:
    """Name of a CheckpointRequest; `batch` may be the text of its label."""
    return object_name(gang, plan, str(batch), gang)


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request to create; `plan`, `batch` and `group` only for a plan."""

    gang: Gang
    name: str
    request_id: int
    asked_at: datetime
    park_seconds: int
    timeout_seconds: int
    plan: str | None = None
    batch: int = 0
    group: str | None = None
    refused_before: int = 0
    unanswered_before: int = 0


def checkpoint_request(ask: Ask) -> dict[str, Any]:
    """A CheckpointRequest's manifest for a gang that has an owner to stop.

    Raises:
        ValueError: the gang has no such owner; the forecast blocks such gangs.
    """
    metadata: dict[str, Any] = {"name": ask.name, "namespace": ask.gang.namespace}
    if ask.plan is not None:
        labels = {names.LABEL_PLAN: ask.plan, names.LABEL_GROUP: ask.group or "", LABEL_BATCH: str(ask.batch)}
        metadata |= {"labels": labels, "finalizers": [names.FINALIZER]}
    return {
        "apiVersion": CHECKPOINT_REQUESTS.api_version,
        "kind": CHECKPOINT_REQUESTS.kind,
        "metadata": metadata,
        "spec": _request_spec(ask),
    }


def _request_spec(ask: Ask) -> dict[str, Any]:
    gang, terms = ask.gang, ask.gang.terms
    if gang.owner is None:
        raise ValueError(f"gang {gang.name} has no owner that can be suspended")
    running = [member for member in gang.members if member.phase == "Running"]
    spec: dict[str, Any] = {
        "gang": gang.name,
        "owner": {
            "kind": gang.owner.kind,
            "apiVersion": gang.owner.api_version,
            "name": gang.owner.name,
            "uid": gang.owner.uid,
        },
        "members": [
            {"pod": member.pod, "uid": member.uid, "node": member.node, "container": member.container}
            for member in running
        ],
        "method": gang.method or "none",  # expendable without a method
        "fallbacks": [name for name in terms.methods if name != gang.method],
        "maxLossSeconds": terms.max_loss_seconds,
        "timeoutSeconds": ask.timeout_seconds,
        "onDeadline": terms.on_deadline,
        "lane": gang.lane,
        "refusedBefore": ask.refused_before,
        "unansweredBefore": ask.unanswered_before,
        "requestId": ask.request_id,
        "askedAt": timing.format_time(ask.asked_at),
        "parkSeconds": ask.park_seconds,
    }
    speaker = find_leader(running) if terms.ack_scope == "leader" else None
    optional = {
        "command": list(terms.command),
        "endpoint": terms.endpoint,
        "signal": terms.signal,
        "leader": speaker.uid if speaker is not None else "",
        "plan": ask.plan,
        "group": ask.group,
    }
    return spec | {key: value for key, value in optional.items() if value}


def next_request_id(last: int, seen: Iterable[str], now: int) -> int:
    """max(now in seconds, 1 + the highest id on any member): it grows even after objects were deleted."""
    known = (untrusted.parse_whole(request_id) for request_id in seen)
    return max(now, 1 + max((last, *(request_id for request_id in known if request_id is not None))))
