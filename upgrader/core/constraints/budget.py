"""The budget, in GPUs of whole gangs: how many may be out of service, how many are, how many a group would take.

It is never exceeded: percentages are rounded down, and unknown GPUs count as out of service, as do those of nodes that
are broken, cordoned by others or in a node upgrade, before a batch may take any.
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

    `credited` is what a node adds to the budget: only its own kubelet reports its number of GPUs, so it adds no more
    than a second node has. The cost of a node, and its GPUs out of service, are as reported.
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
        """`4` or `25%` of the GPUs that these nodes are credited with, rounded down; `100%` is all of their GPUs.

        Raises:
            ConfigurationError: see `allowed_gpus`.
        """
        counted = self.sizes if max_unavailable == "100%" else self.credited
        return allowed_gpus(max_unavailable, sum(counted[name] for name in nodes))


class Cost(Struct, frozen=True, kw_only=True, gc=False):
    """GPUs that a group takes out of service: `gpus` in all, `added` those of them that are in service now."""

    gpus: int
    added: int


def allowed_gpus(max_unavailable: int | str, total: int) -> int:
    """`4` or `25%` of `total` GPUs, rounded down.

    Raises:
        ConfigurationError: neither a number from 0 on nor a percentage from 0% to 100%.
    """
    if isinstance(max_unavailable, int) and not isinstance(max_unavailable, bool) and max_unavailable >= 0:
        return max_unavailable
    percentage = _PERCENT.match(max_unavailable) if isinstance(max_unavailable, str) else None
    if percentage is None or int(percentage[1]) > 100:
        raise ConfigurationError(
            f"maxUnavailable is {max_unavailable!r}",
            resolution="Give a number of GPUs (16) or a percentage of the pool's GPUs (25%).",
        )
    return total * int(percentage[1]) // 100


def pool_availability(
    nodes: Iterable[NodeFacts],
    max_unavailable: int | str,
    *,
    broken: frozenset[str] = frozenset(),
    elsewhere: int = 0,
) -> Availability:
    """The GPUs of a pool, and how many of them are out of service.

    `broken`: nodes that are down for a reason that their status does not show (their driver is for another kernel).
    `elsewhere`: GPUs that other plans have out of service.

    Raises:
        ConfigurationError: see `allowed_gpus`.
    """
    pool = sorted(nodes, key=lambda node: node.name)
    guess = max([1, *(node.gpus for node in pool)])
    sizes = {node.name: _node_size(node, guess) for node in pool}
    unavailable = {
        node.name: gone
        for node in pool
        if (gone := _gpus_out_of_service(node, sizes[node.name], broken=node.name in broken))
    }
    without_budget = Availability(
        allowed=0,
        sizes=sizes,
        credited=_credited_sizes(pool, sizes),
        unavailable=unavailable,
        total=sum(sizes.values()),
        taken=sum(unavailable.values()) + elsewhere,
    )
    return structs.replace(without_budget, allowed=without_budget.share(max_unavailable, sizes))


def node_costs(upgrading: Iterable[str], stopped: Iterable[Gang], pool: Availability) -> dict[str, Cost]:
    """By node: GPUs of the upgrading nodes, and of the stopped gangs' members on other nodes."""
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


def _node_size(node: NodeFacts, guess: int) -> int:
    # A node that has a driver and offers no GPUs has some that cannot be counted now; a node that never had a driver
    # has brought none into service yet.
    if node.gpus or not node.driver_key:
        return node.gpus
    return guess


def _credited_sizes(pool: Iterable[NodeFacts], sizes: Mapping[str, int]) -> dict[str, int]:
    # The second largest number is the highest that one false kubelet cannot have raised alone.
    largest = sorted((node.gpus for node in pool if node.gpus), reverse=True)[:2]
    return {name: min([size, *largest[-1:]]) for name, size in sizes.items()}


def _gpus_out_of_service(node: NodeFacts, size: int, *, broken: bool) -> int:
    down = not node.ready or node.unschedulable or node.taken or node.operands == "off" or node.driver_key == "none"
    if broken or down or (node.driver_key and not node.gpus):
        return size
    return max(0, size - node.gpus_allocatable)
