"""The facts of pods: total functions of the objects of the API server, without I/O."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Container as Holding
from types import MappingProxyType

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import Container, DownwardVolume, ObjectMeta, OwnerReference, Pod, Volume, VolumeMount
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import untrusted
from upgrader.core.errors import describe_error
from upgrader.core.model.fleet import MemberFacts, Owner
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads.checkpoint_annotations import NOTHING, CheckpointAnnotations, nearest_declared
from upgrader.core.workloads.gang_rules import MembershipRule, PodMetadata, resolve_gang
from upgrader.core.workloads.gangs import ENDED, REPLICATED, PodFacts
from upgrader.core.workloads.owner_chain import Chains
from upgrader.reconcile.facts.device_claims import gpus_behind_resources, gpus_by_claims, refers_to_claims
from upgrader.reconcile.facts.object_cache import ObjectCache
from upgrader.reconcile.facts.storage import Classes, storage_class

log = structlog.get_logger()

NO_CLASSES: Classes = MappingProxyType({})
NOWHERE: Holding[str] = frozenset()

_OF_THE_NODE = frozenset({"DaemonSet", "Node"})
"""Controllers of pods that belong to the node; a static pod's is the Node itself."""

DECLARED = MappingProxyType(
    {
        "method": names.ANNOTATION_METHOD,
        "command": names.ANNOTATION_COMMAND,
        "endpoint": names.ANNOTATION_ENDPOINT,
        "signal": names.ANNOTATION_SIGNAL,
        "container": names.ANNOTATION_CONTAINER,
        "scope": names.ANNOTATION_ACK_SCOPE,
        "timeout": names.ANNOTATION_TIMEOUT,
        "min_runtime": names.ANNOTATION_MIN_RUNTIME,
        "expected_runtime": names.ANNOTATION_EXPECTED_RUNTIME,
        "expected_completion": names.ANNOTATION_EXPECTED_COMPLETION,
        "max_loss": names.ANNOTATION_MAX_LOSS,
        "on_deadline": names.ANNOTATION_ON_DEADLINE,
        "lane": names.ANNOTATION_LANE,
        "path": names.ANNOTATION_PATH,
    }
)
"""The annotation of each field of CheckpointAnnotations."""


def gpus_of(pod: Pod, gpus: PoolGpus) -> int:
    """GPUs that the scheduler reserves for a pod: of each resource the sum over containers, or the largest request of
    an init container.

    Partitions of any resource name and devices of claims count as GPUs.
    """
    return _count_gpus(pod, gpus, _held_resources(pod, gpus))


def _count_gpus(pod: Pod, gpus: PoolGpus, held: Counter[str]) -> int:
    if not refers_to_claims(pod):
        return held.total()
    return max(held.total(), gpus_behind_resources(pod, gpus.claimed)) + gpus_by_claims(pod, gpus.claimed)


def _held_resources(pod: Pod, gpus: PoolGpus) -> Counter[str]:
    held: Counter[str] = Counter()
    for container in pod.spec.containers:
        held.update(_requested_gpus(container, gpus))
    for container in pod.spec.init_containers:
        held |= _requested_gpus(container, gpus)
    return held


def of_the_node(pod: Pod) -> bool:
    """Whether a pod belongs to its node and returns with it: a pod of a DaemonSet, or a static pod."""
    owner = controller_of(pod.metadata)
    return owner is not None and owner.kind in _OF_THE_NODE


def is_own_pod(pod: Pod, namespace: str) -> bool:
    """Whether the operator created a pod: an operand, a node pod, a labeller.

    `namespace`: the operator's namespace. Tenants may set any label on pods of other namespaces, so the label counts
    only in this namespace.
    """
    return pod.metadata.namespace == namespace and names.LABEL_COMPONENT in pod.metadata.labels


def ended_by_reboot(pod: Pod, rebooted: Holding[str]) -> bool:
    """Whether a pod runs on one of these nodes and would be lost by its reboot."""
    return pod.spec.node_name in rebooted and pod.status.phase not in ENDED and not of_the_node(pod)


def asked_id(pod: Pod) -> str:
    """The id of the last checkpoint request of a pod; empty if there is none."""
    return pod.metadata.annotations.get(names.ANNOTATION_REQUEST, "")


def read_declared(meta: ObjectMeta) -> CheckpointAnnotations:
    """The declarations in an object's own annotations."""
    annotations = meta.annotations
    if not annotations:
        return NOTHING
    veto = next((name for name, value in names.ANNOTATIONS_VETO.items() if annotations.get(name) == value), "")
    values = {field: annotations.get(name, "").strip() for field, name in DECLARED.items()}
    return CheckpointAnnotations(**values, veto=f"{veto}={names.ANNOTATIONS_VETO[veto]}" if veto else "")


def controller_of(meta: ObjectMeta) -> Owner | None:
    """The controller of an object."""
    return next((_owner_of(reference) for reference in meta.owner_references if reference.controller), None)


def _owner_of(reference: OwnerReference) -> Owner:
    version = {"api_version": untrusted.cut_name(reference.api_version)} if reference.api_version else {}
    kind, name, uid = map(untrusted.cut_name, (reference.kind, reference.name, reference.uid))
    return Owner(kind=kind, name=name, uid=uid, **version)


def is_replicated(pod: Pod, around: CheckpointAnnotations | None = None) -> bool:
    """Whether a pod may be evicted alone: its owner replaces it, and no checkpoint method or veto is declared.

    `around`: declarations of the pod's owners and namespace.
    """
    owner = controller_of(pod.metadata)
    declared = nearest_declared([read_declared(pod.metadata), around or CheckpointAnnotations()])
    return owner is not None and owner.kind in REPLICATED and not (declared.method or declared.veto)


def member_facts(pod: Pod, gpus: PoolGpus, container: str = "") -> MemberFacts:
    """A pod as a member of its gang.

    `container`: the container that answers; empty: that of its annotations, else the first. A container that does not
    exist gives the empty name, and no checkpoint can be requested of such a pod.
    """
    held = _held_resources(pod, gpus)
    name = container or read_declared(pod.metadata).container or _default_container(pod)
    answering = next((candidate for candidate in pod.spec.containers if candidate.name == name), None)
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    mounts = answering.volume_mounts if answering is not None else []
    outlives = {mount.mount_path: _outlives_pod(volumes.get(mount.name)) for mount in mounts}
    return MemberFacts(
        pod=pod.metadata.name,
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        node=pod.spec.node_name,
        container=name if answering is not None else "",
        phase=pod.status.phase,
        gpus=_count_gpus(pod, gpus, held),
        not_offered=gpus.not_offered(held),
        terminating=pod.metadata.deletion_timestamp is not None,
        request=asked_id(pod),
        ephemeral_paths=tuple(sorted(path for path, stays in outlives.items() if not stays)),
        volume_paths=tuple(sorted(path for path, stays in outlives.items() if stays)),
        mounted=_mounts_requests(mounts, volumes),
        answers_mounted=_volume_at(mounts, volumes, names.ANSWER_DIRECTORY) is not None,
        shares_processes=pod.spec.share_process_namespace or pod.spec.host_pid,
        rank=_pod_rank(pod),
        labels=pod.metadata.labels,
        started_at=untrusted.parse_instant(pod.status.start_time),
        unreadable=_unreadable_number(pod, gpus),
    )


def members_of(request: CheckpointRequest, pods: Iterable[Pod], gpus: PoolGpus) -> tuple[MemberFacts, ...]:
    """Members of a requested gang: those that the request names, and newer pods that have not failed."""
    containers = {member.uid: member.container for member in request.spec.members}
    return tuple(
        member_facts(pod, gpus, containers.get(pod.metadata.uid, ""))
        for pod in pods
        if pod.status.phase != "Failed" or pod.metadata.uid in containers
    )


def pod_metadata(pod: Pod) -> PodMetadata:
    """The fields of a pod that determine its gang."""
    meta, group = pod.metadata, pod.spec.scheduling_group
    return PodMetadata(
        pod=meta.name,
        uid=meta.uid,
        namespace=meta.namespace,
        labels=meta.labels,
        annotations=meta.annotations,
        scheduling_group=group.pod_group_name if group is not None else "",
        controller=controller_of(meta),
    )


def pod_facts(
    pod: Pod,
    gpus: PoolGpus,
    around: CheckpointAnnotations,
    metadata: PodMetadata | None = None,
    classes: Classes = NO_CLASSES,
    *,
    rebooted: Holding[str] = NOWHERE,
) -> PodFacts:
    """The facts of a pod for the derivation of gangs.

    Args:
        pod: the pod.
        gpus: resources by which it may hold GPUs.
        around: declarations of its owners and namespace.
        metadata: result of pod_metadata(), if known.
        classes: StorageClasses of claims.
        rebooted: names of nodes that will be rebooted.
    """
    own = read_declared(pod.metadata)
    declared = nearest_declared([own, around])
    member = member_facts(pod, gpus, declared.container)
    return PodFacts(
        member=member,
        storage_class=storage_class(pod, member.container, declared.path, classes),
        metadata=metadata or pod_metadata(pod),
        declared=own,
        rebooted=ended_by_reboot(pod, rebooted),
        group_total=untrusted.parse_whole(pod.metadata.annotations.get(names.ANNOTATION_GROUP_TOTAL)) or 0,
        active_deadline_seconds=pod.spec.active_deadline_seconds,
    )


def read_pod(
    pod: Pod,
    gpus: PoolGpus,
    around: Callable[[], CheckpointAnnotations],
    metadata: PodMetadata,
    classes: Classes,
    *,
    rebooted: Holding[str],
    kept: ObjectCache[PodFacts],
) -> PodFacts:
    """The same as `pod_facts`; a pod with invalid content counts as a pod with GPUs that declares nothing."""
    try:
        declared = around()
        settings = (gpus, declared, classes, ended_by_reboot(pod, rebooted))
        return kept.derive(
            pod.metadata, settings, lambda: pod_facts(pod, gpus, declared, metadata, classes, rebooted=rebooted)
        )
    except Exception as error:  # noqa: BLE001 - one pod must not keep all others from being processed
        meta, why = pod.metadata, describe_error(error)
        log.warning("pod cannot be read", pod=f"{meta.namespace}/{meta.name}", because=why)
        member = MemberFacts(
            pod=meta.name,
            uid=meta.uid,
            namespace=meta.namespace,
            node=pod.spec.node_name,
            container="",
            phase=pod.status.phase,
            gpus=1,
        )
        return PodFacts(member=member, metadata=metadata, unread=f"pod {meta.name}: {why}")


def with_mates(
    pods: Iterable[Pod],
    chains: Chains,
    gpus: PoolGpus,
    rules: Sequence[MembershipRule],
    rebooted: Holding[str] = NOWHERE,
) -> list[tuple[Pod, PodMetadata]]:
    """Pods of gangs with at least one running pod that requests GPUs or that a reboot of its node would end.

    `pods`: without the operator's own. `rebooted`: names of nodes that will be rebooted. The result includes that pod
    itself. A pod with invalid content counts as its own gang.
    """
    groups: dict[tuple[str, tuple[str, str]], list[tuple[Pod, PodMetadata]]] = {}
    counting = set()
    for pod in pods:
        alive = pod.status.phase not in ENDED
        metadata = pod_metadata(pod)
        try:
            key = (metadata.namespace, resolve_gang(metadata, chains, rules).key)
            counts = bool(gpus_of(pod, gpus)) or ended_by_reboot(pod, rebooted)
        except Exception:  # noqa: BLE001 - one pod must not keep all others from being processed; the code below records why
            key, counts = (metadata.namespace, ("unread", metadata.uid)), True
        groups.setdefault(key, []).append((pod, metadata))
        if alive and counts:
            counting.add(key)
    return [member for key, group in groups.items() if key in counting for member in group]


def _requested_gpus(container: Container, gpus: PoolGpus) -> Counter[str]:
    # For extended resources requests equal limits; either may be set alone.
    limits, requests = container.resources.limits, container.resources.requests
    if not limits and not requests:
        return Counter()
    return Counter(gpus.requested_gpus(requests | limits))


def _default_container(pod: Pod) -> str:
    first = pod.spec.containers[0].name if pod.spec.containers else ""
    return pod.metadata.annotations.get(names.ANNOTATION_DEFAULT_CONTAINER, "") or first


def _pod_rank(pod: Pod) -> int | None:
    places = (untrusted.parse_whole(pod.metadata.labels.get(name)) for name in names.LABELS_RANK)
    return next((place for place in places if place is not None), None)


def _unreadable_number(pod: Pod, gpus: PoolGpus) -> str:
    """The first unreadable number of a pod, as a sentence; numbers of GPUs or members are not guessed."""
    for name in (names.ANNOTATION_GROUP_TOTAL,):
        text = pod.metadata.annotations.get(name)
        if text is not None and untrusted.parse_whole(text) is None:
            return (
                f"Annotation {name} of pod {pod.metadata.name} cannot be read: "
                f"{untrusted.quote_text(text)} is not a number."
            )
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        values = container.resources.requests | container.resources.limits
        for name in gpus.unreadable_names(values) if values else ():
            value = untrusted.quote_text(str(values[name]))
            return (
                f"{name} of container {container.name} of pod {pod.metadata.name} cannot be read: "
                f"{value} is not a number."
            )
    return ""


def _outlives_pod(volume: Volume | None) -> bool:
    # An `ephemeral` claim is deleted with its pod; so may be every other kind of volume that is not listed here.
    if volume is None:
        return False
    stays = (
        volume.persistent_volume_claim,
        volume.host_path,
        volume.nfs,
        volume.iscsi,
        volume.fc,
        volume.cephfs,
        volume.azure_file,
    )
    return any(source is not None for source in stays)


def _mounts_requests(mounts: Iterable[VolumeMount], volumes: Mapping[str, Volume]) -> bool:
    requests = _volume_at(mounts, volumes, names.REQUEST_DIRECTORY)
    if requests is None or _volume_at(mounts, volumes, names.ANSWER_DIRECTORY) is None:
        return False
    projected = requests.projected.sources if requests.projected is not None else []
    items = _projected_items(requests.downward_api) | {
        key: value for source in projected for key, value in _projected_items(source.downward_api).items()
    }
    return all(items.get(file) == f"metadata.annotations['{name}']" for file, name in names.REQUEST_FILES.items())


def _volume_at(mounts: Iterable[VolumeMount], volumes: Mapping[str, Volume], path: str) -> Volume | None:
    # A subPath mount never sees the annotation change, so it does not count.
    at = {mount.mount_path.rstrip("/"): volumes.get(mount.name) for mount in mounts if not mount.sub_path}
    return at.get(path)


def _projected_items(volume: DownwardVolume | None) -> dict[str, str]:
    return {item.path: item.field_ref.field_path for item in volume.items} if volume is not None else {}
