"""Owners of gangs on the API server, of any kind: read whole, suspended by their row of core.workloads.owner_kinds."""

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
from upgrader.core.workloads.checkpoint_annotations import nearest
from upgrader.core.workloads.owner_kinds import OWNERS, OwnerKind, Switch, owner_kind, pods_of, served_version
from upgrader.core.workloads.placement import Placement
from upgrader.core.workloads.pod_disruption_budgets import blocked
from upgrader.reconcile.facts.pod_facts import controller_of, declared
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context

log = structlog.get_logger()

Object = dict[str, Any]


class LiveOwner(msgspec.Struct, frozen=True, kw_only=True):
    """An owner as the API server has it now; `body` is None where it is gone or another of its name is there."""

    row: OwnerKind
    resource: ResourceKind[Object]
    body: Object | None
    unread: str = ""  # why it could not be read; then nothing is known of it

    @property
    def meta(self) -> ObjectMeta:
        """Its metadata."""
        return msgspec.convert(self.present["metadata"], ObjectMeta)

    @property
    def present(self) -> Object:
        """Its body; NotFoundError where there is none."""
        if self.body is None:
            raise NotFoundError(f"the {self.row.kind} of a gang is gone")
        return self.body


async def served_resource(context: Context, row: OwnerKind, api_version: str = "") -> ResourceKind[Object] | None:
    """Where owners of a row are read and written now; None where the API server serves no version of them.

    `api_version`: the one that a reference names; another one takes its place where that is no longer served.

    Raises:
        ClusterError: what is served is not known, so nothing is known of these owners.
    """
    version = served_version(row, await context.cluster.served(), api_version.rpartition("/")[2])
    return resource_of(row, version) if version else None


def resource_of(row: OwnerKind, api_version: str) -> ResourceKind[Object]:
    """Where owners of a row live in one version."""
    version = api_version.rpartition("/")[2] or row.version
    return ResourceKind(
        group=row.group, version=version, kind=row.kind, plural=row.plural, namespaced=True, type=Object
    )


async def read_owner(context: Context, ref: OwnerRef, namespace: str) -> LiveOwner:
    """The owner that a request names, whole.

    Raises:
        ConfigurationError: a kind that we know no switch of.
    """
    row = owner_kind(ref.kind, ref.api_version)
    if row is None:
        raise ConfigurationError(
            f"a {ref.kind} of {ref.api_version} cannot be stopped and restarted by us",
            resolution="docs/owners.md lists the kinds that can.",
        )
    resource = resource_of(row, ref.api_version)
    try:
        # Where nothing of it is served, the API server says so itself.
        resource = await served_resource(context, row, ref.api_version) or resource
        found = await context.cluster.get(resource, ref.name, namespace)
    except REFUSED as error:
        if not error.refused:
            raise
        return LiveOwner(row=row, resource=resource, body=None, unread=error.brief)
    return LiveOwner(row=row, resource=resource, body=found if _uid(found) == ref.uid else None)


async def read_pods(context: Context, owner: LiveOwner, request: CheckpointRequest) -> Sequence[Pod]:
    """All pods of the gang as they are now: those of its owner, and members that have lost it."""
    namespace = request.metadata.namespace
    members = {member.uid for member in request.spec.members}
    selector = await pod_selector(context, owner, namespace)
    if selector:
        found = await context.cluster.list(PODS, namespace, labels=selector)
        return [pod for pod in found if pod.metadata.uid in members or _belongs(pod, owner)]
    found = await context.cluster.list(PODS, namespace)
    return [pod for pod in found if pod.metadata.uid in members]


async def pod_selector(context: Context, owner: LiveOwner, namespace: str) -> str:
    """Label selector of all pods of an owner; empty where it cannot be told."""
    if owner.body is None:
        return ""
    if owner.row.switch is not Switch.DEACTIVATE:
        return pods_of(owner.row, owner.body)
    bearer = controller_of(owner.meta)
    if bearer is None:  # a workload of plain pods: they carry its name
        return f"kueue.x-k8s.io/pod-group-name={owner.meta.name}"
    row = owner_kind(bearer.kind, bearer.api_version)
    resource = await served_resource(context, row, bearer.api_version) if row is not None else None
    if row is None or resource is None:
        return ""
    body = await context.cluster.get(resource, bearer.name, namespace)
    return pods_of(row, body) if body is not None and _uid(body) == bearer.uid else ""


def _belongs(pod: Pod, owner: LiveOwner) -> bool:
    """A selector of a StatefulSet may select pods of others; labels of the other kinds are their controllers' own."""
    if owner.row.pod_label or owner.row.switch is Switch.DEACTIVATE:
        return True
    controller = controller_of(pod.metadata)
    return controller is not None and controller.uid == owner.meta.uid


async def forbidden(
    context: Context, gang: str, owner: LiveOwner, pods: Sequence[Pod], members: Sequence[MemberFacts]
) -> str:
    """Why the gang must not be disrupted right now, as a sentence: a suspend would bypass its PodDisruptionBudgets."""
    if owner.body is None or not pods:
        return ""
    namespace = owner.meta.namespace
    spaces = await context.cluster.list(NAMESPACES, fields=f"metadata.name={namespace}")
    around = [declared(owner.meta), *(declared(space.metadata) for space in spaces)]
    veto = next((found for pod in pods if (found := nearest([declared(pod.metadata), *around]).veto)), "")
    if veto:
        return f"annotation {veto} forbids any disruption"
    budgets = [cluster_snapshot.disruption_budget(one) for one in await context.cluster.list(PDBS, namespace)]
    alive = tuple(one for one in members if one.phase not in {"Succeeded", "Failed"})
    name = blocked([Gang(name=gang, namespace=namespace, members=alive)], budgets).get(gang)
    return f"PodDisruptionBudget {name} does not allow to disrupt it" if name else ""


async def marked(context: Context) -> Sequence[LiveOwner]:
    """Every owner in the cluster that carries a mark of ours, whatever became of its request.

    Raises:
        ClusterError: it is not known what is served, or a list was refused or did not come.
    """
    found: list[LiveOwner] = []
    for row in OWNERS:
        resource = await served_resource(context, row)
        if resource is None:
            log.debug("not served", kind=row.kind, group=row.group)  # so nothing of it is stopped
            continue
        bodies = await context.cluster.list(resource)
        live = (LiveOwner(row=row, resource=resource, body=body) for body in bodies)
        found += [
            one for one in live if {names.ANNOTATION_STOPPED, names.ANNOTATION_FENCE} & one.meta.annotations.keys()
        ]
    return found


async def stop(context: Context, owner: LiveOwner, request: CheckpointRequest) -> None:
    """Off, with the record of it: one patch, or the record first and then the order for it."""
    body, name = owner.present, request.metadata.name
    record = suspend_patches.record_of(owner.meta.annotations)
    if record is None or record.request != name:
        patch = suspend_patches.stop_patch(owner.row, body, request.spec.plan or "", name)
        await context.cluster.merge(owner.resource, owner.meta, patch)
    if owner.row.switch is Switch.COMMAND:
        await _order(context, owner, name, on=False)


async def fence(context: Context, owner: LiveOwner, request: CheckpointRequest) -> None:
    """The owner's resourceVersion moves on, so that a stop that is still on its way meets a conflict.

    Whatever refuses this for good refuses such a stop too.
    """
    meta = owner.meta
    try:
        for patch in suspend_patches.fence_patches(request.metadata.name):
            written = await context.cluster.merge(owner.resource, meta, patch)
            meta = msgspec.convert(written["metadata"], ObjectMeta)
    except UpgraderError as error:
        if not error.refused:
            raise
        log.warning("not fenced", gang=request.spec.gang, because=error.brief, details=error.details)


async def restart(context: Context, owner: LiveOwner, request: str, placement: Placement | None) -> LiveOwner:
    """On as before, without the record; an order for it comes before the record goes. `request`: name of its stop."""
    body = owner.present
    if owner.row.switch is Switch.COMMAND:
        await _order(context, owner, request, on=True)
    patch = suspend_patches.restart_patch(owner.row, body, placement)
    return msgspec.structs.replace(owner, body=await context.cluster.merge(owner.resource, owner.meta, patch))


async def order_on(context: Context, owner: LiveOwner, request: str) -> None:
    """Order it to go on, and keep the record: an order can be lost, and is given again while the owner is off."""
    await _order(context, owner, request, on=True)


async def recall(context: Context, owner: LiveOwner, request: str) -> None:
    """Take back an order to go off that its controller has not taken yet: it might act on it after one to go on."""
    order = suspend_patches.command(owner.row, owner.present, request, on=False)["metadata"]
    pending = await context.cluster.get(COMMANDS, order["name"], order["namespace"])
    if pending is not None:
        log.info("order taken back", owner=owner.meta.name)
        await context.cluster.delete(COMMANDS, pending.metadata)  # exactly this one, by its uid


async def _order(context: Context, owner: LiveOwner, request: str, *, on: bool) -> None:
    if on:
        await recall(context, owner, request)
    try:
        await context.cluster.create(COMMANDS, suspend_patches.command(owner.row, owner.present, request, on=on))
    except ConflictError:
        log.info("already ordered", owner=owner.meta.name, on=on)


def _uid(body: Mapping[str, Any] | None) -> str:
    return str(body["metadata"]["uid"]) if body is not None else ""
