"""Which extended resources are the GPUs of a pool: the stack's own, and what NVIDIA's plugin calls parts of them. Pure.

With MIG strategy `mixed` a partition is a resource of its own, `nvidia.com/mig-<slices>g.<memory>gb`; with
`renameByDefault` a shared GPU is `<resource>.shared` (README of NVIDIA's k8s-device-plugin, v0.20.0). Both are counted
whatever the strategy says: pods made under an earlier one, or for another operator's plugin, hold the driver as well.
"""

from collections.abc import Mapping

NVIDIA_DOMAIN = "nvidia.com/"
PARTITIONS = f"{NVIDIA_DOMAIN}mig-"
SHARED = ".shared"


def is_gpu(name: str, resource: str) -> bool:
    """Whether what an extended resource offers are GPUs of a pool, whole, shared or in part.

    Args:
        name: of the extended resource.
        resource: the pool's, as its stack says; that may itself be the name of shared ones.
    """
    if name.removesuffix(SHARED) == resource.removesuffix(SHARED):
        return True
    return name.startswith(PARTITIONS) and resource.startswith(NVIDIA_DOMAIN)


def count_of(values: Mapping[str, str | int], resource: str) -> int:
    """How many GPUs of a pool; a partition is one of them."""
    return sum(_whole(value) for name, value in values.items() if is_gpu(name, resource))


def gpus_by_name(values: Mapping[str, str | int], resource: str) -> dict[str, int]:
    """How many of each extended resource that are GPUs of a pool, by name; none that is 0.

    Extended resources are whole numbers, anything else counts as none.
    """
    return {name: count for name in sorted(values) if is_gpu(name, resource) and (count := _whole(values[name]))}


def _whole(value: str | int) -> int:
    if isinstance(value, int):
        return max(0, value)
    return int(value) if value.isdecimal() else 0
