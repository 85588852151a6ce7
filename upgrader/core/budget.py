"""The budget, in GPUs of whole gangs: what may be out of service, what is already, what a closure would take.

It never lies: percentages are rounded down, what is unknown counts as out of service, and so does everything that is
broken, cordoned by others or in a visit, before a batch may take anything.
"""

import re
from collections.abc import Container, Iterable, Mapping

from msgspec import Struct

from upgrader.core.errors import ConfigurationError
from upgrader.core.fleet import Gang, NodeFacts

_PERCENT = re.compile(r"^(\d{1,3})%$")


class Availability(Struct, frozen=True, kw_only=True):
    """GPUs of a pool: `sizes` and `unavailable` by node; `taken` are out of service already, here or by other plans."""

    allowed: int
    sizes: dict[str, int]
    unavailable: dict[str, int]
    total: int
    taken: int

    @property
    def remaining(self) -> int:
        """GPUs that may still be taken."""
        return max(0, self.allowed - self.taken)


class Cost(Struct, frozen=True, kw_only=True, gc=False):
    """What a closure takes out of service: `gpus` in all, `added` those of them that are in service now."""

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
    total = sum(sizes.values())
    return Availability(
        allowed=allowed_gpus(max_unavailable, total),
        sizes=sizes,
        unavailable=unavailable,
        total=total,
        taken=sum(unavailable.values()) + elsewhere,
    )


def costs(visited: Iterable[str], stopped: Iterable[Gang], pool: Availability) -> dict[str, Cost]:
    """By node: GPUs of the visited nodes, and of the stopped gangs' members wherever else they run."""
    taken: dict[str, Cost] = {}
    for node in visited:
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


def _gone(node: NodeFacts, size: int, *, broken: bool) -> int:
    down = not node.ready or node.unschedulable or node.taken or node.operands == "off" or node.driver_key == "none"
    if broken or down or (node.driver_key and not node.gpus):
        return size
    return max(0, size - node.gpus_allocatable)
