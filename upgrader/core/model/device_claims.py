"""GPUs that pods hold by ResourceClaims (dynamic resource allocation) instead of extended resources. Pure and total.

What a claim's devices are is told by their driver once they are allocated, and before by the DeviceClasses that it asks
for. A class has any name that an administrator likes, a driver any that its vendor likes: what is not known to be
something else counts as a GPU.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from upgrader.core.naming import listed
from upgrader.core.patches import every

OTHER_DEVICES = frozenset({"dra.net", "dra.cpu", "sriovnetwork.k8snetworkplumbingwg.io"})
"""Drivers of network interfaces and CPUs (dranet, dra-driver-cpu, dra-driver-sriov), and classes named after them."""

DOUBT = 1
"""GPUs of a claim of which nothing is known."""

_RESULTS = ("status", "allocation", "devices", "results", "*")
_REQUESTS = ("spec", "devices", "requests", "*")
_CLASSES = (
    (*_REQUESTS, "exactly", "deviceClassName"),
    (*_REQUESTS, "firstAvailable", "*", "deviceClassName"),
    (*_REQUESTS, "deviceClassName"),  # until v1beta1
)


def count_gpus(claim: Mapping[str, Any]) -> int:
    """GPUs of a ResourceClaim, read whole in any version of resource.k8s.io; a partition is one of them."""
    results = list(every(claim, _RESULTS))
    if results:
        return sum(_may_be_gpu(one.get("driver") if isinstance(one, Mapping) else None) for one in results)
    classes = [name for path in _CLASSES for name in every(claim, path)]
    return DOUBT if not classes or any(map(_may_be_gpu, classes)) else 0


def describe_holders(pods: Sequence[str]) -> str:
    """That pods hold GPUs by claims and what that means for their nodes, for people, without a full stop."""
    return (
        f"{listed(sorted(pods))} {'hold' if len(pods) > 1 else 'holds'} GPUs by ResourceClaim (dynamic resource "
        "allocation); such jobs are not asked or stopped yet, and no upgrade begins there until they have ended"
    )


def _may_be_gpu(name: object) -> bool:
    return not isinstance(name, str) or name not in OTHER_DEVICES
