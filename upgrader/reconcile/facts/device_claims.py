"""ResourceClaims of pods, and the GPUs that pods hold by them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from upgrader.api.kubernetes import Pod
from upgrader.api.resources import owner_resource
from upgrader.core.model.device_claims import DOUBT, count_gpus
from upgrader.core.node_protocol.gpu_resources import Claimed
from upgrader.core.workloads.gangs import ENDED
from upgrader.core.workloads.owner_kinds import ReadKind, served_version
from upgrader.reconcile.ports import Reads

CLAIM = ReadKind(kind="ResourceClaim", group="resource.k8s.io", version="v1", plural="resourceclaims")
"""v1 from Kubernetes 1.34, v1beta2 and v1beta1 before; the fields that are read are the same."""


async def read_claimed(cluster: Reads, pods: Iterable[Pod]) -> Claimed:
    """GPUs of each ResourceClaim, by namespace and name; listed only if a pod refers to a claim.

    Raises:
        ClusterError: the list failed, so the GPUs of pods are unknown.
    """
    if not any(map(refers_to_claims, pods)):
        return {}
    version = served_version(CLAIM, await cluster.served())
    claims = await cluster.list(owner_resource(CLAIM, version)) if version else ()
    return {
        (claim.metadata.namespace, claim.metadata.name): count_gpus({"spec": claim.spec, "status": claim.status})
        for claim in claims
    }


def refers_to_claims(pod: Pod) -> bool:
    """Whether a pod holds or waits for devices by a claim."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def gpus_by_claims(pod: Pod, claimed: Claimed) -> int:
    """GPUs that a pod holds by claims that it names."""
    return sum(_count_claimed(pod, name, claimed) for name in _claim_names(pod))


def gpus_behind_resources(pod: Pod, claimed: Claimed) -> int:
    """GPUs of the claim that the scheduler created for a pod's extended resources."""
    behind = pod.status.extended_resource_claim_status
    return _count_claimed(pod, behind.resource_claim_name, claimed) if behind is not None else 0


def holds_by_claim(pod: Pod, claimed: Claimed) -> bool:
    """Whether a pod holds GPUs that no device plugin allocated."""
    return bool(gpus_by_claims(pod, claimed) or gpus_behind_resources(pod, claimed))


def holders_by_node(pods: Iterable[Pod], claimed: Claimed) -> Mapping[str, tuple[str, ...]]:
    """Pods that hold GPUs of a node by claims, as namespace/name, by node."""
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods:
        if (
            refers_to_claims(pod)
            and pod.spec.node_name
            and pod.status.phase not in ENDED
            and holds_by_claim(pod, claimed)
        ):
            holders[pod.spec.node_name].append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return {node: tuple(sorted(names)) for node, names in holders.items()}


def _claim_names(pod: Pod) -> Iterator[str]:
    """Names of the claims of a pod; empty for a claim that is not created from its template yet."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    for claim in pod.spec.resource_claims:
        name = claim.resource_claim_name or made.get(claim.name, "")
        if name is not None:  # None: no claim is needed
            yield name


def _count_claimed(pod: Pod, name: str, claimed: Claimed) -> int:
    return claimed.get((pod.metadata.namespace, name), DOUBT)
