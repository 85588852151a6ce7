"""Extended resources that are GPUs of a pool: the stack's own, and NVIDIA's names for parts of them. Pure.

With MIG strategy `mixed` a partition is a resource of its own, `nvidia.com/mig-<slices>g.<memory>gb`; with
`renameByDefault` a shared GPU is `<resource>.shared` (README of NVIDIA's k8s-device-plugin, v0.20.0). Both count with
any strategy: pods created under an earlier one, or for another operator's plugin, hold the driver as well.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from upgrader.core import untrusted

NVIDIA_DOMAIN = "nvidia.com/"
PARTITIONS = f"{NVIDIA_DOMAIN}mig-"
SHARED = ".shared"

DOUBT = 1
"""GPUs of a pod that requests an unreadable number of them."""

Claimed = Mapping[tuple[str, str], int]
"""GPUs of each ResourceClaim, by namespace and name."""


class PoolGpus(Struct, frozen=True, kw_only=True):
    """The resources and claims by which pods hold GPUs of a pool."""

    resource: str  # that its stack's device plugin offers
    former: tuple[str, ...] = ()  # that other revisions of the stack offer: nodes and pods may still use those
    claimed: Claimed = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Extended resources that are GPUs here, the stack's own first; see `is_gpu` for related names."""
        return (self.resource, *self.former)

    def requested_gpus(self, values: Mapping[str, str | int]) -> dict[str, int]:
        """How many GPUs are requested, by extended resource of any revision.

        An unreadable number is DOUBT: a pod that may hold GPUs never counts as one that holds none.
        """
        counts = {name: untrusted.parse_quantity(values[name]) for name in self._is_offered(values)}
        return {name: DOUBT if count is None else count for name, count in counts.items() if count != 0}

    def unreadable_names(self, values: Mapping[str, str | int]) -> list[str]:
        """Extended resources that are GPUs here and whose number is unreadable."""
        return [name for name in self._is_offered(values) if untrusted.parse_quantity(values[name]) is None]

    def _is_offered(self, values: Mapping[str, str | int]) -> list[str]:
        return sorted(name for name in values if any(is_gpu(name, resource) for resource in self.names))

    def not_offered(self, names: Iterable[str]) -> str:
        """A name among these that nodes of the stack's present revision do not offer; empty: there is none.

        The partitions of a node are not known before it has them.
        """
        others = sorted(name for name in names if name != self.resource and not name.startswith(PARTITIONS))
        return next((name for name in others if name != f"{self.resource.removesuffix(SHARED)}{SHARED}"), "")

    def offered_as(self, allocatable: Mapping[str, str | int], capacity: Mapping[str, str | int]) -> str:
        """The name by which a node offers GPUs.

        A kubelet keeps the capacity of a stopped plugin for five minutes: the allocatable number counts first.
        """
        if not self.former:
            return self.resource
        return max(self.names, key=lambda name: (count_of(allocatable, name), count_of(capacity, name)))


def is_gpu(name: str, resource: str) -> bool:
    """Whether an extended resource means GPUs of a pool, whole, shared or partitioned.

    Args:
        name: of the extended resource.
        resource: the pool's, by its stack; it may itself be the name of shared GPUs.
    """
    if name.removesuffix(SHARED) == resource.removesuffix(SHARED):
        return True
    return name.startswith(PARTITIONS) and resource.startswith(NVIDIA_DOMAIN)


def count_of(values: Mapping[str, str | int], resource: str) -> int:
    """The number of GPUs of a pool; a partition counts as one. An unreadable number counts as none."""
    return sum(untrusted.parse_quantity(value) or 0 for name, value in values.items() if is_gpu(name, resource))


def gpus_by_name(values: Mapping[str, str | int], resource: str) -> dict[str, int]:
    """The number of each extended resource that is GPUs of a pool, by name, without those that are 0 or unreadable."""
    return {
        name: count
        for name in sorted(values)
        if is_gpu(name, resource) and (count := untrusted.parse_quantity(values[name]) or 0)
    }
