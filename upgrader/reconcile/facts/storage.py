"""Which storage a pod's checkpoints go to, by the StorageClass of the claim that it mounts there."""

from collections.abc import Iterable, Mapping

from upgrader.api.kubernetes import PersistentVolumeClaim, Pod, VolumeMount

Classes = Mapping[tuple[str, str], str]
"""StorageClass of each claim that names one, by its namespace and name."""


def classes_of(claims: Iterable[PersistentVolumeClaim]) -> Classes:
    """The StorageClasses of these claims."""
    found = ((one.metadata.namespace, one.metadata.name, one.spec.storage_class_name) for one in claims)
    return {(namespace, name): kind for namespace, name, kind in found if kind}


def keeps_on_claims(pod: Pod) -> bool:
    """Whether a pod that asks for devices of any sort keeps anything on a claim: else no claim has to be read for it.

    Names of extended resources have a slash in them, those of Kubernetes' own have none.
    """
    if not any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes):
        return False
    return any("/" in name for one in pod.spec.containers for name in (*one.resources.limits, *one.resources.requests))


def storage_class(pod: Pod, container: str, path: str, classes: Classes) -> str:
    """The StorageClass that a pod's checkpoints go to; empty where that is not known.

    Args:
        pod: the pod.
        container: the one that answers.
        path: where it says that it writes checkpoints; empty: every claim that it mounts may be the place.
        classes: of all claims.
    """
    claims = {
        one.name: str(one.persistent_volume_claim.get("claimName", ""))
        for one in pod.spec.volumes
        if one.persistent_volume_claim is not None
    }
    answering = next((one for one in pod.spec.containers if one.name == container), None)
    mounts = answering.volume_mounts if answering is not None else []
    if path:
        nearest = max((one for one in mounts if _under(path, one.mount_path)), key=_depth, default=None)
        mounts = [nearest] if nearest is not None else []
    found = {classes.get((pod.metadata.namespace, claims[one.name]), "") for one in mounts if one.name in claims}
    return found.pop() if len(found) == 1 else ""


def _depth(mount: VolumeMount) -> int:
    return len(mount.mount_path.rstrip("/"))


def _under(path: str, parent: str) -> bool:
    return f"{path.rstrip('/')}/".startswith(f"{parent.rstrip('/')}/")
