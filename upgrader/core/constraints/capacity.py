"""All limits on the GPUs that a batch may take out of service: the budget, topology budgets, the floor.

Each limit counts GPUs of whole gangs where they run. A topology budget covers the nodes of this pool only; those
without its label form one domain, since they may fail together.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from upgrader.core.constraints.budget import Availability, node_costs
from upgrader.core.model.fleet import Gang, NodeFacts
from upgrader.core.model.strategy import StrategyFacts


class Domain(Struct, frozen=True, kw_only=True):
    """Nodes with the same value of one label, in GPUs."""

    key: str
    value: str
    total: int
    allowed: int
    taken: int  # out of service already

    @property
    def name(self) -> str:
        """`key=value`, or that the nodes have no such label."""
        return f"{self.key}={self.value}" if self.value else f"nodes without label {self.key}"

    @property
    def remaining(self) -> int:
        """GPUs that may still be taken."""
        return max(0, self.allowed - self.taken)


class GpuDemand(Struct, frozen=True, kw_only=True, gc=False):
    """GPUs that a group takes: `gpus` in all, `added` those in service now; `domains` the same pairs by domain."""

    gpus: int
    added: int
    domains: dict[str, tuple[int, int]] = {}


class Capacity(Struct, frozen=True, kw_only=True):
    """A pool with all its limits; `of_node` names the domains that a node is in."""

    pool: Availability
    floor: int = 0
    domains: dict[str, Domain] = {}
    of_node: dict[str, tuple[str, ...]] = {}

    @property
    def in_service(self) -> int:
        """GPUs that the pool is credited with and that are in service."""
        return sum(self.pool.credited.values()) - self.pool.taken

    @property
    def above_floor(self) -> int:
        """GPUs in service beyond minAvailableGPUs."""
        return max(0, self.in_service - self.floor)

    @property
    def most_added(self) -> int:
        """GPUs in service that a batch may take."""
        return min(self.pool.remaining, self.above_floor)

    def room_by_limit(self) -> dict[str, int]:
        """GPUs that an empty batch may take, by limit; see `load_demands`."""
        rooms = {"gpus": self.pool.allowed, "added": self.most_added}
        for name, domain in self.domains.items():
            rooms[f"gpus of {name}"] = domain.allowed
            rooms[f"added of {name}"] = domain.remaining
        return rooms

    def load_of(self, upgrading: Iterable[str], stopped: Iterable[Gang]) -> GpuDemand:
        """GPUs that an upgrade of these nodes and a stop of these gangs take."""
        gpus = added = 0
        parts: dict[str, tuple[int, int]] = {}
        for node, cost in node_costs(upgrading, stopped, self.pool).items():
            gpus, added = gpus + cost.gpus, added + cost.added
            for name in self.of_node.get(node, ()):
                before = parts.get(name, (0, 0))
                parts[name] = (before[0] + cost.gpus, before[1] + cost.added)
        return GpuDemand(gpus=gpus, added=added, domains=dict(sorted(parts.items())))


def load_demands(load: GpuDemand) -> tuple[tuple[str, int], ...]:
    """A load by the limits of `Capacity.room_by_limit`; zeros are left out: they fit into an exhausted limit."""
    pairs = [("gpus", load.gpus), ("added", load.added)]
    for name, (gpus, added) in load.domains.items():
        pairs += [(f"gpus of {name}", gpus), (f"added of {name}", added)]
    return tuple(pair for pair in pairs if pair[1])


def pool_capacity(nodes: Iterable[NodeFacts], pool: Availability, strategy: StrategyFacts) -> Capacity:
    """The limits of a strategy for a pool.

    Raises:
        ConfigurationError: a topology budget is neither a number nor a percentage.
    """
    ordered = sorted(nodes, key=lambda node: node.name)
    domains: dict[str, Domain] = {}
    of_node: dict[str, tuple[str, ...]] = {}
    for budget in strategy.topology:
        inside: dict[str, list[str]] = {}
        for node in ordered:
            inside.setdefault(node.labels.get(budget.key, ""), []).append(node.name)
        for value, names in inside.items():
            domain = _topology_domain(budget.key, value, names, budget.max_unavailable, pool)
            domains[domain.name] = domain
            for name in names:
                of_node[name] = (*of_node.get(name, ()), domain.name)
    return Capacity(pool=pool, floor=strategy.min_available_gpus, domains=_sort_by_name(domains), of_node=of_node)


def _topology_domain(key: str, value: str, nodes: list[str], most: int | str, pool: Availability) -> Domain:
    return Domain(
        key=key,
        value=value,
        total=sum(pool.sizes[name] for name in nodes),
        allowed=pool.share(most, nodes),
        taken=sum(pool.unavailable.get(name, 0) for name in nodes),
    )


def _sort_by_name(domains: Mapping[str, Domain]) -> dict[str, Domain]:
    return dict(sorted(domains.items()))
