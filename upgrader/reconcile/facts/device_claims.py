"""ResourceClaims of pods: which a pod refers to, and how many GPUs it holds by them."""

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
    """GPUs of each ResourceClaim, by namespace and name: one list where some pod refers to a claim, else nothing.

    Raises:
        ClusterError: the list was refused or did not come; what a pod holds is not guessed then.
    """
    if not any(map(refers_to_claims, pods)):
        return {}
    version = served_version(CLAIM, await cluster.served())
    found = await cluster.list(owner_resource(CLAIM, version)) if version else ()
    return {
        (one.metadata.namespace, one.metadata.name): count_gpus({"spec": one.spec, "status": one.status})
        for one in found
    }


def refers_to_claims(pod: Pod) -> bool:
    """Whether a pod holds, or waits for, devices by a claim."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def gpus_by_claims(pod: Pod, claimed: Claimed) -> int:
    """GPUs that a pod holds by claims that it names."""
    return sum(_count(pod, name, claimed) for name in _named(pod))


def gpus_behind_resources(pod: Pod, claimed: Claimed) -> int:
    """GPUs of the claim that the scheduler made for extended resources that a pod asks for."""
    behind = pod.status.extended_resource_claim_status
    return _count(pod, behind.resource_claim_name, claimed) if behind is not None else 0


def holds_by_claim(pod: Pod, claimed: Claimed) -> bool:
    """Whether a pod holds GPUs that no device plugin gave it."""
    return bool(gpus_by_claims(pod, claimed) or gpus_behind_resources(pod, claimed))


def holders_by_node(pods: Iterable[Pod], claimed: Claimed) -> Mapping[str, tuple[str, ...]]:
    """Pods that hold GPUs of a node by claims, as namespace/name, by node."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods:
        if (
            refers_to_claims(pod)
            and pod.spec.node_name
            and pod.status.phase not in ENDED
            and holds_by_claim(pod, claimed)
        ):
            found[pod.spec.node_name].append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return {node: tuple(sorted(names)) for node, names in found.items()}


def _named(pod: Pod) -> Iterator[str]:
    """Names of the claims of a pod; empty for one that is still to be made of a template."""
    made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    for one in pod.spec.resource_claims:
        name = one.resource_claim_name or made.get(one.name, "")
        if name is not None:  # None: it was found that none is needed
            yield name


def _count(pod: Pod, name: str, claimed: Claimed) -> int:
    return claimed.get((pod.metadata.namespace, name), DOUBT)
