"""The storage of a pod's checkpoints, by the StorageClass of the claim that it mounts there."""

from collections.abc import Iterable, Mapping

from upgrader.api.kubernetes import PersistentVolumeClaim, Pod, VolumeMount

Classes = Mapping[tuple[str, str], str]
"""StorageClass of each claim that names one, by its namespace and name."""


def classes_of(claims: Iterable[PersistentVolumeClaim]) -> Classes:
    """The StorageClasses of these claims."""
    named = ((claim.metadata.namespace, claim.metadata.name, claim.spec.storage_class_name) for claim in claims)
    return {(namespace, name): kind for namespace, name, kind in named if kind}


def keeps_on_claims(pod: Pod) -> bool:
    """Whether a pod that requests devices mounts a claim: else no claim has to be read for it.

    Names of extended resources contain a slash, those of native resources do not.
    """
    if not any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes):
        return False
    return any(
        "/" in name
        for container in pod.spec.containers
        for name in (*container.resources.limits, *container.resources.requests)
    )


def storage_class(pod: Pod, container: str, path: str, classes: Classes) -> str:
    """The StorageClass of a pod's checkpoints; empty if unknown.

    Args:
        pod: the pod.
        container: the container that answers.
        path: declared path of its checkpoints; empty: any claim that it mounts.
        classes: StorageClasses of all claims.
    """
    claims = {
        volume.name: str(volume.persistent_volume_claim.get("claimName", ""))
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    }
    answering = next(
        (container_spec for container_spec in pod.spec.containers if container_spec.name == container), None
    )
    mounts = answering.volume_mounts if answering is not None else []
    if path:
        nearest = max((mount for mount in mounts if _is_under(path, mount.mount_path)), key=_path_depth, default=None)
        mounts = [nearest] if nearest is not None else []
    storage_classes = {
        classes.get((pod.metadata.namespace, claims[mount.name]), "") for mount in mounts if mount.name in claims
    }
    return storage_classes.pop() if len(storage_classes) == 1 else ""


def _path_depth(mount: VolumeMount) -> int:
    return len(mount.mount_path.rstrip("/"))


def _is_under(path: str, parent: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{parent.rstrip('/')}/")
