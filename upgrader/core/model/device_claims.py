"""GPUs that pods hold by ResourceClaims (dynamic resource allocation) instead of extended resources. Pure and total.

The driver of a claim's devices is known once they are allocated; before that, only the DeviceClasses that it requests.
Administrators choose the names of classes, and vendors those of drivers: a device that is not known to be of another
kind counts as a GPU.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from upgrader.core.naming import list_names
from upgrader.core.patches import values_at

OTHER_DEVICES = frozenset({"dra.net", "dra.cpu", "sriovnetwork.k8snetworkplumbingwg.io"})
"""Drivers of network interfaces and CPUs (dranet, dra-driver-cpu, dra-driver-sriov), and classes named after them."""

DOUBT = 1
"""GPUs of a claim whose devices are unknown."""

_RESULTS = ("status", "allocation", "devices", "results", "*")
_REQUESTS = ("spec", "devices", "requests", "*")
_CLASSES = (
    (*_REQUESTS, "exactly", "deviceClassName"),
    (*_REQUESTS, "firstAvailable", "*", "deviceClassName"),
    (*_REQUESTS, "deviceClassName"),  # until v1beta1
)


def count_gpus(claim: Mapping[str, Any]) -> int:
    """GPUs of a ResourceClaim, a whole object in any version of resource.k8s.io; a partition counts as one GPU."""
    results = list(values_at(claim, _RESULTS))
    if results:
        return sum(_may_be_gpu(result.get("driver") if isinstance(result, Mapping) else None) for result in results)
    classes = [name for path in _CLASSES for name in values_at(claim, path)]
    return DOUBT if not classes or any(map(_may_be_gpu, classes)) else 0


def describe_holders(pods: Sequence[str]) -> str:
    """That pods hold GPUs by claims, and the consequence for their nodes, for messages, without a full stop."""
    return (
        f"{list_names(sorted(pods))} {'hold' if len(pods) > 1 else 'holds'} GPUs by ResourceClaim (dynamic resource "
        "allocation). The operator cannot request checkpoints from such jobs or stop them, so no upgrade begins there "
        "until they have ended"
    )


def _may_be_gpu(name: object) -> bool:
    return not isinstance(name, str) or name not in OTHER_DEVICES
