"""Owners of gangs on the API server, of any kind: read whole, suspended by their row in core.workloads.owner_kinds."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta, Pod
from upgrader.api.resources import COMMANDS, NAMESPACES, PDBS, PODS, ResourceKind
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.api.v1alpha1.checkpoint_request import OwnerRef
from upgrader.core.errors import REFUSED, ConfigurationError, ConflictError, NotFoundError, UpgraderError
from upgrader.core.model.fleet import Gang, MemberFacts
from upgrader.core.workloads import suspend_patches
from upgrader.core.workloads.checkpoint_annotations import nearest_declared
from upgrader.core.workloads.owner_kinds import OWNERS, OwnerKind, Switch, owner_kind, pods_of, served_version
from upgrader.core.workloads.placement import Placement
from upgrader.core.workloads.pod_disruption_budgets import blocked_gangs
from upgrader.reconcile.facts.pod_facts import controller_of, read_declared
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()

Object = dict[str, Any]


class LiveOwner(msgspec.Struct, frozen=True, kw_only=True):
    """An owner as read from the API server; `body` is None if it is deleted or replaced by one of the same name."""

    row: OwnerKind
    resource: ResourceKind[Object]
    body: Object | None
    unread: str = ""  # why it could not be read; its state is unknown then

    @property
    def meta(self) -> ObjectMeta:
        """Metadata of the owner."""
        return msgspec.convert(self.present["metadata"], ObjectMeta)

    @property
    def present(self) -> Object:
        """Body of the owner; NotFoundError if there is none."""
        if self.body is None:
            raise NotFoundError(f"the {self.row.kind} of a gang was deleted")
        return self.body


async def served_resource(context: Context, row: OwnerKind, api_version: str = "") -> ResourceKind[Object] | None:
    """The served resource of a row; None if the API server serves no version of it.

    `api_version`: the version that a reference names; a served one replaces it if it is no longer served.

    Raises:
        ClusterError: discovery failed, so nothing is known of these owners.
    """
    version = served_version(row, await context.cluster.served(), api_version.rpartition("/")[2])
    return resource_of(row, version) if version else None


def resource_of(row: OwnerKind, api_version: str) -> ResourceKind[Object]:
    """The resource of a row in one version."""
    version = api_version.rpartition("/")[2] or row.version
    return ResourceKind(
        group=row.group, version=version, kind=row.kind, plural=row.plural, namespaced=True, type=Object
    )


async def read_owner(context: Context, ref: OwnerRef, namespace: str) -> LiveOwner:
    """The owner that a request names, whole.

    Raises:
        ConfigurationError: a kind without a known way to suspend it.
    """
    row = owner_kind(ref.kind, ref.api_version)
    if row is None:
        raise ConfigurationError(
            f"a {ref.kind} of {ref.api_version} cannot be stopped and restarted",
            resolution="docs/concepts/owners.md lists the kinds that can.",
        )
    resource = resource_of(row, ref.api_version)
    try:
        # If no version is served, the API server's own error is raised.
        resource = await served_resource(context, row, ref.api_version) or resource
        body = await context.cluster.get(resource, ref.name, namespace)
    except REFUSED as error:
        if not error.refused:
            raise
        return LiveOwner(row=row, resource=resource, body=None, unread=error.brief)
    return LiveOwner(row=row, resource=resource, body=body if _object_uid(body) == ref.uid else None)


async def read_pods(context: Context, owner: LiveOwner, request: CheckpointRequest) -> Sequence[Pod]:
    """All pods of the gang now: pods of its owner, and members that are no longer owned."""
    namespace = request.metadata.namespace
    members = {member.uid for member in request.spec.members}
    selector = await pod_selector(context, owner, namespace)
    if selector:
        pods = await context.cluster.list(PODS, namespace, labels=selector)
        return [pod for pod in pods if pod.metadata.uid in members or _is_pod_of(pod, owner)]
    pods = await context.cluster.list(PODS, namespace)
    return [pod for pod in pods if pod.metadata.uid in members]


async def pod_selector(context: Context, owner: LiveOwner, namespace: str) -> str:
    """Label selector of all pods of an owner; empty if unknown."""
    if owner.body is None:
        return ""
    if owner.row.switch is not Switch.DEACTIVATE:
        return pods_of(owner.row, owner.body)
    bearer = controller_of(owner.meta)
    if bearer is None:  # a workload of plain pods, which have its name as a label
        return f"kueue.x-k8s.io/pod-group-name={owner.meta.name}"
    row = owner_kind(bearer.kind, bearer.api_version)
    resource = await served_resource(context, row, bearer.api_version) if row is not None else None
    if row is None or resource is None:
        return ""
    body = await context.cluster.get(resource, bearer.name, namespace)
    return pods_of(row, body) if body is not None and _object_uid(body) == bearer.uid else ""


def _is_pod_of(pod: Pod, owner: LiveOwner) -> bool:
    """Whether a pod belongs to an owner: the selector of a StatefulSet may select pods of other owners too."""
    if owner.row.pod_label or owner.row.switch is Switch.DEACTIVATE:
        return True
    controller = controller_of(pod.metadata)
    return controller is not None and controller.uid == owner.meta.uid


async def explain_forbidden(
    context: Context, gang: str, owner: LiveOwner, pods: Sequence[Pod], members: Sequence[MemberFacts]
) -> str:
    """Why the gang must not be disrupted now, as a sentence: a suspend would bypass its PodDisruptionBudgets."""
    if owner.body is None or not pods:
        return ""
    namespace = owner.meta.namespace
    spaces = await context.cluster.list(NAMESPACES, fields=f"metadata.name={namespace}")
    around = [read_declared(owner.meta), *(read_declared(space.metadata) for space in spaces)]
    veto = next(
        (vetoed for pod in pods if (vetoed := nearest_declared([read_declared(pod.metadata), *around]).veto)), ""
    )
    if veto:
        return f"annotation {veto} forbids any disruption"
    budgets = [cluster_snapshot.disruption_budget(budget) for budget in await context.cluster.list(PDBS, namespace)]
    alive = tuple(member for member in members if member.phase not in {"Succeeded", "Failed"})
    name = blocked_gangs([Gang(name=gang, namespace=namespace, members=alive)], budgets).get(gang)
    return f"PodDisruptionBudget {name} does not allow its disruption" if name else ""


async def list_recorded_owners(context: Context) -> Sequence[LiveOwner]:
    """Every owner in the cluster with an annotation of the operator, also without its request.

    Raises:
        ClusterError: discovery or a list failed.
    """
    owners: list[LiveOwner] = []
    for row in OWNERS:
        resource = await served_resource(context, row)
        if resource is None:
            log.debug("owner kind not served", kind=row.kind, group=row.group)  # so nothing of it is stopped
            continue
        bodies = await context.cluster.list(resource)
        live = (LiveOwner(row=row, resource=resource, body=body) for body in bodies)
        owners += [
            owner
            for owner in live
            if {names.ANNOTATION_STOPPED, names.ANNOTATION_FENCE} & owner.meta.annotations.keys()
        ]
    return owners


async def suspend_owner(context: Context, owner: LiveOwner, request: CheckpointRequest) -> None:
    """Suspend an owner and record the stop: in one patch, or the record first and then a command."""
    body, name = owner.present, request.metadata.name
    record = suspend_patches.record_of(owner.meta.annotations)
    if record is None or record.request != name:
        patch = suspend_patches.stop_patch(owner.row, body, request.spec.plan or "", name)
        await context.cluster.merge(owner.resource, owner.meta, patch)
    if owner.row.switch is Switch.COMMAND:
        await _order_switch(context, owner, name, on=False)


async def fence_owner(context: Context, owner: LiveOwner, request: CheckpointRequest) -> None:
    """Change the owner's resourceVersion, so that a stop in flight meets a conflict.

    A webhook that refuses this refuses such a stop too.
    """
    meta = owner.meta
    try:
        for patch in suspend_patches.fence_patches(request.metadata.name):
            written = await context.cluster.merge(owner.resource, meta, patch)
            meta = msgspec.convert(written["metadata"], ObjectMeta)
    except UpgraderError as error:
        if not error.refused:
            raise
        log.warning(
            "owner not fenced against a stop in flight",
            gang=request.spec.gang,
            because=error.brief,
            details=error.details,
        )


async def resume_owner(context: Context, owner: LiveOwner, request: str, placement: Placement | None) -> LiveOwner:
    """Resume an owner, by a command where needed, then remove the record. `request`: name of the stopping request."""
    body = owner.present
    if owner.row.switch is Switch.COMMAND:
        await _order_switch(context, owner, request, on=True)
    patch = suspend_patches.restart_patch(owner.row, body, placement)
    return msgspec.structs.replace(owner, body=await context.cluster.merge(owner.resource, owner.meta, patch))


async def order_on(context: Context, owner: LiveOwner, request: str) -> None:
    """Create the command to resume, and keep the record: a lost command is repeated while the owner is off."""
    await _order_switch(context, owner, request, on=True)


async def cancel_stop_order(context: Context, owner: LiveOwner, request: str) -> None:
    """Delete a pending command to suspend, which the controller might execute after the one to resume."""
    order = suspend_patches.volcano_command(owner.row, owner.present, request, on=False)["metadata"]
    pending = await context.cluster.get(COMMANDS, order["name"], order["namespace"])
    if pending is not None:
        log.info("Volcano Command deleted", owner=owner.meta.name)
        await context.cluster.delete(COMMANDS, pending.metadata)  # precondition: its uid


async def _order_switch(context: Context, owner: LiveOwner, request: str, *, on: bool) -> None:
    if on:
        await cancel_stop_order(context, owner, request)
    try:
        await context.cluster.create(
            COMMANDS, suspend_patches.volcano_command(owner.row, owner.present, request, on=on)
        )
    except ConflictError:
        log.info("Volcano Command already exists", owner=owner.meta.name, on=on)


def _object_uid(body: Mapping[str, Any] | None) -> str:
    return str(body["metadata"]["uid"]) if body is not None else ""
