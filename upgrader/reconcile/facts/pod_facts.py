"""Pods as the rules see them: total functions from what the API server sends, nothing is fetched here."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Container as Holding
from types import MappingProxyType

import structlog

from upgrader.api import names
from upgrader.api.kubernetes import Container, DownwardVolume, ObjectMeta, OwnerReference, Pod, Volume, VolumeMount
from upgrader.api.v1alpha1 import CheckpointRequest
from upgrader.core import untrusted
from upgrader.core.errors import describe
from upgrader.core.model.fleet import MemberFacts, Owner
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads.checkpoint_annotations import NOTHING, Declared, nearest
from upgrader.core.workloads.gang_rules import PodMarks, Rule, resolve
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
"""The annotation of each field of Declared."""


def gpus_of(pod: Pod, gpus: PoolGpus) -> int:
    """GPUs that the scheduler holds for a pod: of each resource those of all containers, or of the init container that
    asks for most.

    Partitions count as GPUs do, whatever resource a pod asks for them by; so do devices of its claims.
    """
    return _count(pod, gpus, _held(pod, gpus))


def _count(pod: Pod, gpus: PoolGpus, held: Counter[str]) -> int:
    if not refers_to_claims(pod):
        return held.total()
    return max(held.total(), gpus_behind_resources(pod, gpus.claimed)) + gpus_by_claims(pod, gpus.claimed)


def _held(pod: Pod, gpus: PoolGpus) -> Counter[str]:
    held: Counter[str] = Counter()
    for container in pod.spec.containers:
        held.update(_asked(container, gpus))
    for container in pod.spec.init_containers:
        held |= _asked(container, gpus)
    return held


def of_the_node(pod: Pod) -> bool:
    """Whether a pod belongs to its node and comes back with it: a DaemonSet's, or a static one."""
    owner = controller_of(pod.metadata)
    return owner is not None and owner.kind in _OF_THE_NODE


def ours(pod: Pod, namespace: str) -> bool:
    """Whether a pod is of our own making: an operand, a pod of a node upgrade, a labeller.

    `namespace` is the one that we run in. Anybody may set a label on a pod of another namespace, so it says nothing
    there: such a pod counts as every other does.
    """
    return pod.metadata.namespace == namespace and names.LABEL_COMPONENT in pod.metadata.labels


def ended_by_reboot(pod: Pod, rebooted: Holding[str]) -> bool:
    """Whether a pod stands on one of these nodes and would be gone for good after its reboot."""
    return pod.spec.node_name in rebooted and pod.status.phase not in ENDED and not of_the_node(pod)


def asked_id(pod: Pod) -> str:
    """The checkpoint request that a pod was given last; empty where there is none."""
    return pod.metadata.annotations.get(names.ANNOTATION_REQUEST, "")


def declared(meta: ObjectMeta) -> Declared:
    """What an object's own annotations declare."""
    annotations = meta.annotations
    if not annotations:
        return NOTHING
    veto = next((name for name, value in names.ANNOTATIONS_VETO.items() if annotations.get(name) == value), "")
    said = {field: annotations.get(name, "").strip() for field, name in DECLARED.items()}
    return Declared(**said, veto=f"{veto}={names.ANNOTATIONS_VETO[veto]}" if veto else "")


def controller_of(meta: ObjectMeta) -> Owner | None:
    """The one owner that controls an object."""
    return next((_owner(one) for one in meta.owner_references if one.controller), None)


def _owner(reference: OwnerReference) -> Owner:
    said = {"api_version": untrusted.name(reference.api_version)} if reference.api_version else {}
    kind, name, uid = map(untrusted.name, (reference.kind, reference.name, reference.uid))
    return Owner(kind=kind, name=name, uid=uid, **said)


def replicated(pod: Pod, around: Declared | None = None) -> bool:
    """Whether a pod may be evicted alone: its owner replaces it, and nobody declared how to ask it or forbids it.

    `around`: what the pod's owners and namespace declare.
    """
    owner = controller_of(pod.metadata)
    said = nearest([declared(pod.metadata), around or Declared()])
    return owner is not None and owner.kind in REPLICATED and not (said.method or said.veto)


def member_facts(pod: Pod, gpus: PoolGpus, container: str = "") -> MemberFacts:
    """A pod as a member of its gang.

    `container` is the one that answers; empty means: as its annotations say, else the first. A container that the pod
    does not have gives the empty name, and such a pod cannot be asked.
    """
    held = _held(pod, gpus)
    name = container or declared(pod.metadata).container or _default_container(pod)
    answering = next((one for one in pod.spec.containers if one.name == name), None)
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    mounts = answering.volume_mounts if answering is not None else []
    outlives = {mount.mount_path: _outlives(volumes.get(mount.name)) for mount in mounts}
    return MemberFacts(
        pod=pod.metadata.name,
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        node=pod.spec.node_name,
        container=name if answering is not None else "",
        phase=pod.status.phase,
        gpus=_count(pod, gpus, held),
        not_offered=gpus.not_offered(held),
        terminating=pod.metadata.deletion_timestamp is not None,
        request=asked_id(pod),
        ephemeral_paths=tuple(sorted(path for path, stays in outlives.items() if not stays)),
        volume_paths=tuple(sorted(path for path, stays in outlives.items() if stays)),
        mounted=_mounted(mounts, volumes),
        answers_mounted=_at(mounts, volumes, names.ANSWER_DIRECTORY) is not None,
        shares_processes=pod.spec.share_process_namespace or pod.spec.host_pid,
        rank=_rank(pod),
        labels=pod.metadata.labels,
        started_at=untrusted.instant(pod.status.start_time),
        unreadable=_unreadable(pod, gpus),
    )


def members_of(request: CheckpointRequest, pods: Iterable[Pod], gpus: PoolGpus) -> tuple[MemberFacts, ...]:
    """Members of a gang that is asked: those that the request names, and what has come since and has not failed."""
    containers = {member.uid: member.container for member in request.spec.members}
    return tuple(
        member_facts(pod, gpus, containers.get(pod.metadata.uid, ""))
        for pod in pods
        if pod.status.phase != "Failed" or pod.metadata.uid in containers
    )


def marks_of(pod: Pod) -> PodMarks:
    """What of a pod says whom it belongs to."""
    meta, group = pod.metadata, pod.spec.scheduling_group
    return PodMarks(
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
    around: Declared,
    marks: PodMarks | None = None,
    classes: Classes = NO_CLASSES,
    *,
    rebooted: Holding[str] = NOWHERE,
) -> PodFacts:
    """A pod, as far as it matters for who belongs together.

    Args:
        pod: the pod.
        gpus: by what it may hold GPUs.
        around: what its owners and namespace declare.
        marks: as marks_of() found them already.
        classes: StorageClasses of claims.
        rebooted: names of nodes that are to be rebooted.
    """
    own = declared(pod.metadata)
    said = nearest([own, around])
    member = member_facts(pod, gpus, said.container)
    return PodFacts(
        member=member,
        storage_class=storage_class(pod, member.container, said.path, classes),
        marks=marks or marks_of(pod),
        declared=own,
        rebooted=ended_by_reboot(pod, rebooted),
        group_total=untrusted.whole(pod.metadata.annotations.get(names.ANNOTATION_GROUP_TOTAL)) or 0,
        active_deadline_seconds=pod.spec.active_deadline_seconds,
    )


def read_pod(
    pod: Pod,
    gpus: PoolGpus,
    around: Callable[[], Declared],
    marks: PodMarks,
    classes: Classes,
    *,
    rebooted: Holding[str],
    kept: ObjectCache[PodFacts],
) -> PodFacts:
    """The same as `pod_facts`; one that cannot be read is taken for a pod with GPUs that declares nothing."""
    try:
        said = around()
        settings = (gpus, said, classes, ended_by_reboot(pod, rebooted))
        return kept.derive(
            pod.metadata, settings, lambda: pod_facts(pod, gpus, said, marks, classes, rebooted=rebooted)
        )
    except Exception as error:  # noqa: BLE001 - one pod must not keep all others from being looked at
        meta, why = pod.metadata, describe(error)
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
        return PodFacts(member=member, marks=marks, unread=f"pod {meta.name}: {why}")


def with_mates(
    pods: Iterable[Pod], chains: Chains, gpus: PoolGpus, rules: Sequence[Rule], rebooted: Holding[str] = NOWHERE
) -> list[tuple[Pod, PodMarks]]:
    """Pods that belong together with one that is alive and asks for GPUs, or that a reboot of its node would end.

    `pods`: none of our own. `rebooted`: names of nodes that are to be rebooted. That pod itself is among them. One that
    cannot be read counts, by itself.
    """
    found: dict[tuple[str, tuple[str, str]], list[tuple[Pod, PodMarks]]] = {}
    counting = set()
    for pod in pods:
        alive = pod.status.phase not in ENDED
        marks = marks_of(pod)
        try:
            key = (marks.namespace, resolve(marks, chains, rules).key)
            counts = bool(gpus_of(pod, gpus)) or ended_by_reboot(pod, rebooted)
        except Exception:  # noqa: BLE001 - one pod must not keep all others from being looked at; what follows says why
            key, counts = (marks.namespace, ("unread", marks.uid)), True
        found.setdefault(key, []).append((pod, marks))
        if alive and counts:
            counting.add(key)
    return [one for key, group in found.items() if key in counting for one in group]


def _asked(container: Container, gpus: PoolGpus) -> Counter[str]:
    # For extended resources requests equal limits; either may stand alone.
    limits, requests = container.resources.limits, container.resources.requests
    if not limits and not requests:
        return Counter()
    return Counter(gpus.asked(requests | limits))


def _default_container(pod: Pod) -> str:
    first = pod.spec.containers[0].name if pod.spec.containers else ""
    return pod.metadata.annotations.get(names.ANNOTATION_DEFAULT_CONTAINER, "") or first


def _rank(pod: Pod) -> int | None:
    places = (untrusted.whole(pod.metadata.labels.get(name)) for name in names.LABELS_RANK)
    return next((place for place in places if place is not None), None)


def _unreadable(pod: Pod, gpus: PoolGpus) -> str:
    """Which of a pod's numbers cannot be read, as a sentence; how many GPUs or members there are is not guessed."""
    for name in (names.ANNOTATION_GROUP_TOTAL,):
        text = pod.metadata.annotations.get(name)
        if text is not None and untrusted.whole(text) is None:
            return f"Annotation {name} of pod {pod.metadata.name} cannot be read: {untrusted.shown(text)} is no number."
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        values = container.resources.requests | container.resources.limits
        for name in gpus.unreadable(values) if values else ():
            said = untrusted.shown(str(values[name]))
            return (
                f"{name} of container {container.name} of pod {pod.metadata.name} cannot be read: {said} is no number."
            )
    return ""


def _outlives(volume: Volume | None) -> bool:
    # A claim made for this pod only (`ephemeral`) goes with it; so does, for all we know, every sort not named here.
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


def _mounted(mounts: Iterable[VolumeMount], volumes: Mapping[str, Volume]) -> bool:
    requests = _at(mounts, volumes, names.REQUEST_DIRECTORY)
    if requests is None or _at(mounts, volumes, names.ANSWER_DIRECTORY) is None:
        return False
    projected = requests.projected.sources if requests.projected is not None else []
    found = _items(requests.downward_api) | {
        key: value for one in projected for key, value in _items(one.downward_api).items()
    }
    return all(found.get(file) == f"metadata.annotations['{name}']" for file, name in names.REQUEST_FILES.items())


def _at(mounts: Iterable[VolumeMount], volumes: Mapping[str, Volume], path: str) -> Volume | None:
    # A subPath mount never sees the annotation change, so it does not count.
    at = {mount.mount_path.rstrip("/"): volumes.get(mount.name) for mount in mounts if not mount.sub_path}
    return at.get(path)


def _items(volume: DownwardVolume | None) -> dict[str, str]:
    return {item.path: item.field_ref.field_path for item in volume.items} if volume is not None else {}
