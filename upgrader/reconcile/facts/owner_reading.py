"""Owners of pods: joint read of all owners, and the values of each."""

import asyncio
from collections.abc import Mapping
from functools import partial

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta, OwnerObject, Pod
from upgrader.api.resources import ResourceKind, owner_resource
from upgrader.core import untrusted
from upgrader.core.errors import describe_error
from upgrader.core.model.fleet import Owner
from upgrader.core.workloads.checkpoint_annotations import CheckpointAnnotations, nearest_declared
from upgrader.core.workloads.owner_kinds import BETWEEN, DECLARING, OWNERS, ReadKind, served_version
from upgrader.core.workloads.owner_objects import Work, group_of, is_suspended
from upgrader.core.workloads.suspend_patches import record_of
from upgrader.reconcile.facts.object_cache import ObjectCache
from upgrader.reconcile.facts.pod_facts import controller_of, read_declared
from upgrader.reconcile.ports import Cluster, Reads

log = structlog.get_logger()

READ: tuple[ReadKind, ...] = (*OWNERS, *BETWEEN, *DECLARING)
_POD = ReadKind(kind="Pod", group="", version="v1", plural="pods")
"""Leaders of a LeaderWorkerSet own the StatefulSets of their workers."""


async def read_works(cluster: Cluster, kept: ObjectCache[Work]) -> tuple[Work, ...]:
    """All owners of the known kinds that the API server serves: one list for each kind.

    `kept`: values of earlier reads.

    Raises:
        ClusterError: a list failed, so owners are unknown.
    """
    served = await cluster.served()
    kinds = [resource for kind in READ if (resource := _served_resource(kind, served)) is not None]
    lists = await asyncio.gather(*(cluster.list(kind) for kind in kinds))
    kept.begin()
    return tuple(
        kept.derive(owner.metadata, kind, partial(read_work, kind, owner))
        for kind, owners in zip(kinds, lists, strict=True)
        for owner in owners
    )


async def declared_above(cluster: Reads, pod: Pod) -> CheckpointAnnotations:
    """The declarations of one pod's owners, the nearest first; each owner is read separately.

    Raises:
        ClusterError: an owner cannot be read; it may declare that its pods must not be evicted.
    """
    served = await cluster.served()
    declarations: list[CheckpointAnnotations] = []
    above, seen = controller_of(pod.metadata), {pod.metadata.uid}
    while above is not None and above.uid not in seen:
        seen.add(above.uid)
        kind = next(
            (known for known in (_POD, *READ) if (known.kind, known.group) == (above.kind, group_of(above))), None
        )
        resource = _served_resource(kind, served) if kind is not None else None
        owner = await cluster.get(resource, above.name, pod.metadata.namespace) if resource is not None else None
        if owner is None or owner.metadata.uid != above.uid:
            break
        declarations.append(read_declared(owner.metadata))
        above = controller_of(owner.metadata)
    return nearest_declared(declarations)


def _served_resource(
    kind: ReadKind, served: Mapping[tuple[str, str], tuple[str, ...]]
) -> ResourceKind[OwnerObject] | None:
    version = served_version(kind, served)
    return owner_resource(kind, version) if version else None


def read_work(kind: ResourceKind[OwnerObject], seen: OwnerObject) -> Work:
    """The same as `work_of`; an owner with invalid content has only its identity and its own owners."""
    try:
        work = work_of(kind, seen)
        is_suspended(work)
    except Exception as error:  # noqa: BLE001 - one owner must not keep all others from being processed
        meta, why = seen.metadata, describe_error(error)
        log.warning("owner cannot be read", kind=kind.kind, name=f"{meta.namespace}/{meta.name}", because=why)
        owner = Owner(kind=kind.kind, name=meta.name, uid=meta.uid, api_version=kind.api_version)
        above, owned_by = controller_of(meta), tuple(reference.uid for reference in meta.owner_references)
        unread = f"{kind.kind} {meta.name}: {why}"
        return Work(owner=owner, namespace=meta.namespace, controller=above, owned_by=owned_by, unread=unread)
    return work


def work_of(kind: ResourceKind[OwnerObject], seen: OwnerObject) -> Work:
    """The values of an owner; its API version is that of the read."""
    meta = seen.metadata
    return Work(
        owner=Owner(kind=kind.kind, name=meta.name, uid=meta.uid, api_version=kind.api_version),
        namespace=meta.namespace,
        controller=controller_of(meta),
        owned_by=tuple(reference.uid for reference in meta.owner_references),
        labels=meta.labels,
        declared=read_declared(meta),
        stopped_by=_stopped_by(meta),
        stop=record_of(meta.annotations),
        spec=seen.spec,
        status=seen.status,
    )


class _Stopped(msgspec.Struct, frozen=True):
    plan: str = ""


def _stopped_by(meta: ObjectMeta) -> str:
    text = meta.annotations.get(names.ANNOTATION_STOPPED, "")
    stopped = untrusted.read_json(text, _Stopped)
    # An unreadable record is still a record of a stop.
    return stopped.plan if stopped is not None and stopped.plan else text[: untrusted.SHOWN]
