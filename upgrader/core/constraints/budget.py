"""The budget, in GPUs of whole gangs: what may be out of service, what is already, what a group would take.

It never lies: percentages are rounded down, what is unknown counts as out of service, and so does everything that is
broken, cordoned by others or in a node upgrade, before a batch may take anything.
"""

import re
from collections.abc import Container, Iterable, Mapping

from msgspec import Struct, structs

from upgrader.core.errors import ConfigurationError
from upgrader.core.model.fleet import Gang, NodeFacts

_PERCENT = re.compile(r"^(\d{1,3})%$")


class Availability(Struct, frozen=True, kw_only=True):
    """GPUs of a pool: `sizes`, `credited` and `unavailable` by node; `taken` are out of service already, here or by
    other plans.

    `credited` is what a node adds to what may be taken: its kubelet alone says how many GPUs it has, so it adds no more
    than a second node has. What a node costs, and what of it is out of service, is what it says.
    """

    allowed: int
    sizes: dict[str, int]
    credited: dict[str, int]
    unavailable: dict[str, int]
    total: int
    taken: int

    @property
    def remaining(self) -> int:
        """GPUs that may still be taken."""
        return max(0, self.allowed - self.taken)

    def share(self, max_unavailable: int | str, nodes: Iterable[str]) -> int:
        """`4` or `25%` of the GPUs that these nodes are credited with, rounded down; `100%` is all that they have.

        Raises:
            ConfigurationError: see `allowed_gpus`.
        """
        counted = self.sizes if max_unavailable == "100%" else self.credited
        return allowed_gpus(max_unavailable, sum(counted[name] for name in nodes))


class Cost(Struct, frozen=True, kw_only=True, gc=False):
    """What a group takes out of service: `gpus` in all, `added` those of them that are in service now."""

    gpus: int
    added: int


def allowed_gpus(max_unavailable: int | str, total: int) -> int:
    """`4` or `25%` of `total` GPUs, rounded down.

    Raises:
        ConfigurationError: neither a number from 0 on nor a percentage from 0% to 100%.
    """
    if isinstance(max_unavailable, int) and not isinstance(max_unavailable, bool) and max_unavailable >= 0:
        return max_unavailable
    found = _PERCENT.match(max_unavailable) if isinstance(max_unavailable, str) else None
    if found is None or int(found[1]) > 100:
        raise ConfigurationError(
            f"maxUnavailable is {max_unavailable!r}",
            resolution="Give a number of GPUs (16) or a percentage of the pool's GPUs (25%).",
        )
    return total * int(found[1]) // 100


def availability(
    nodes: Iterable[NodeFacts],
    max_unavailable: int | str,
    *,
    broken: frozenset[str] = frozenset(),
    elsewhere: int = 0,
) -> Availability:
    """What the pool has and what of it is out of service.

    `broken`: nodes that are down for a reason that they do not show (their driver is for another kernel).
    `elsewhere`: GPUs that other plans have out of service.

    Raises:
        ConfigurationError: see `allowed_gpus`.
    """
    pool = sorted(nodes, key=lambda node: node.name)
    guess = max([1, *(node.gpus for node in pool)])
    sizes = {node.name: _size(node, guess) for node in pool}
    unavailable = {
        node.name: gone for node in pool if (gone := _gone(node, sizes[node.name], broken=node.name in broken))
    }
    found = Availability(
        allowed=0,
        sizes=sizes,
        credited=_credited(pool, sizes),
        unavailable=unavailable,
        total=sum(sizes.values()),
        taken=sum(unavailable.values()) + elsewhere,
    )
    return structs.replace(found, allowed=found.share(max_unavailable, sizes))


def costs(upgrading: Iterable[str], stopped: Iterable[Gang], pool: Availability) -> dict[str, Cost]:
    """By node: GPUs of the upgrading nodes, and of the stopped gangs' members wherever else they run."""
    taken: dict[str, Cost] = {}
    for node in upgrading:
        size = pool.sizes[node]
        taken[node] = Cost(gpus=size, added=size - pool.unavailable.get(node, 0))
    for node, count in _members_elsewhere(stopped, taken).items():
        in_service = pool.sizes.get(node, count) - pool.unavailable.get(node, 0)
        taken[node] = Cost(gpus=count, added=min(count, max(0, in_service)))
    return taken


def _members_elsewhere(gangs: Iterable[Gang], nodes: Container[str]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for gang in gangs:
        for member in gang.members:
            if member.node and member.node not in nodes:
                counts[member.node] = counts.get(member.node, 0) + member.gpus
    return counts


def _size(node: NodeFacts, guess: int) -> int:
    # A node that was given a driver and offers nothing has GPUs that nobody can count now; one that never was given a
    # driver has brought none into service yet.
    if node.gpus or not node.driver_key:
        return node.gpus
    return guess


def _credited(pool: Iterable[NodeFacts], sizes: Mapping[str, int]) -> dict[str, int]:
    # The second largest is the most that one kubelet, whatever it says, cannot have made up alone.
    said = sorted((node.gpus for node in pool if node.gpus), reverse=True)[:2]
    return {name: min([size, *said[-1:]]) for name, size in sizes.items()}


def _gone(node: NodeFacts, size: int, *, broken: bool) -> int:
    down = not node.ready or node.unschedulable or node.taken or node.operands == "off" or node.driver_key == "none"
    if broken or down or (node.driver_key and not node.gpus):
        return size
    return max(0, size - node.gpus_allocatable)
