"""Owners of pods: reading them all at once, and what is seen in each."""

import asyncio
from collections.abc import Mapping
from functools import partial

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.kubernetes import ObjectMeta, OwnerObject, Pod
from upgrader.api.resources import ResourceKind, owner_resource
from upgrader.core import untrusted
from upgrader.core.errors import describe
from upgrader.core.model.fleet import Owner
from upgrader.core.workloads.checkpoint_annotations import Declared, nearest
from upgrader.core.workloads.owner_kinds import BETWEEN, DECLARING, OWNERS, ReadKind, served_version
from upgrader.core.workloads.owner_objects import Work, group_of, suspended
from upgrader.core.workloads.suspend_patches import record_of
from upgrader.reconcile.facts.object_cache import ObjectCache
from upgrader.reconcile.facts.pod_facts import controller_of, declared
from upgrader.reconcile.ports import Cluster, Reads

log = structlog.get_logger()

READ: tuple[ReadKind, ...] = (*OWNERS, *BETWEEN, *DECLARING)
_POD = ReadKind(kind="Pod", group="", version="v1", plural="pods")
"""Leaders of a LeaderWorkerSet own the StatefulSets of their workers."""


async def read_works(cluster: Cluster, kept: ObjectCache[Work]) -> tuple[Work, ...]:
    """All owners of the kinds that are known here and that the API server serves: one list for each kind.

    `kept`: as they were read before.

    Raises:
        ClusterError: a list was refused or did not come; who owns a pod is not guessed then.
    """
    served = await cluster.served()
    kinds = [resource for kind in READ if (resource := _resource(kind, served)) is not None]
    lists = await asyncio.gather(*(cluster.list(kind) for kind in kinds))
    kept.begin()
    return tuple(
        kept.derive(one.metadata, kind, partial(read_work, kind, one))
        for kind, found in zip(kinds, lists, strict=True)
        for one in found
    )


async def declared_above(cluster: Reads, pod: Pod) -> Declared:
    """What the owners of one pod declare, the nearest first: each is read by itself, now.

    Raises:
        ClusterError: an owner was refused or did not come; it may declare what keeps its pods from being evicted.
    """
    served = await cluster.served()
    found: list[Declared] = []
    above, seen = controller_of(pod.metadata), {pod.metadata.uid}
    while above is not None and above.uid not in seen:
        seen.add(above.uid)
        kind = next((one for one in (_POD, *READ) if (one.kind, one.group) == (above.kind, group_of(above))), None)
        resource = _resource(kind, served) if kind is not None else None
        one = await cluster.get(resource, above.name, pod.metadata.namespace) if resource is not None else None
        if one is None or one.metadata.uid != above.uid:
            break
        found.append(declared(one.metadata))
        above = controller_of(one.metadata)
    return nearest(found)


def _resource(kind: ReadKind, served: Mapping[tuple[str, str], tuple[str, ...]]) -> ResourceKind[OwnerObject] | None:
    version = served_version(kind, served)
    return owner_resource(kind, version) if version else None


def read_work(kind: ResourceKind[OwnerObject], seen: OwnerObject) -> Work:
    """The same as `work_of`; of an owner that cannot be read only who owns it is known."""
    try:
        work = work_of(kind, seen)
        suspended(work)
    except Exception as error:  # noqa: BLE001 - one owner must not keep all others from being looked at
        meta, why = seen.metadata, describe(error)
        log.warning("owner cannot be read", kind=kind.kind, name=f"{meta.namespace}/{meta.name}", because=why)
        owner = Owner(kind=kind.kind, name=meta.name, uid=meta.uid, api_version=kind.api_version)
        above, owned_by = controller_of(meta), tuple(one.uid for one in meta.owner_references)
        said = f"{kind.kind} {meta.name}: {why}"
        return Work(owner=owner, namespace=meta.namespace, controller=above, owned_by=owned_by, unread=said)
    return work


def work_of(kind: ResourceKind[OwnerObject], seen: OwnerObject) -> Work:
    """An owner as the rules see it; its API version is the one that it was read in."""
    meta = seen.metadata
    return Work(
        owner=Owner(kind=kind.kind, name=meta.name, uid=meta.uid, api_version=kind.api_version),
        namespace=meta.namespace,
        controller=controller_of(meta),
        owned_by=tuple(one.uid for one in meta.owner_references),
        labels=meta.labels,
        declared=declared(meta),
        stopped_by=_stopped_by(meta),
        stop=record_of(meta.annotations),
        spec=seen.spec,
        status=seen.status,
    )


class _Stopped(msgspec.Struct, frozen=True):
    plan: str = ""


def _stopped_by(meta: ObjectMeta) -> str:
    text = meta.annotations.get(names.ANNOTATION_STOPPED, "")
    found = untrusted.document(text, _Stopped)
    # One that cannot be read is a record of a stop all the same.
    return found.plan if found is not None and found.plan else text[: untrusted.SHOWN]
