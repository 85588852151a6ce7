"""What a rollout cost: GPU time that did no work, by node and by gang, and work that was thrown away."""

from collections import Counter
from dataclasses import dataclass, field

HOUR = 3600
Span = tuple[int, int]


@dataclass(kw_only=True)
class Stall:
    """A gang that does not train: from when, since when it has nodes again, until when."""

    job: str
    gpus: int  # of one member
    homes: tuple[str, ...]
    since: int
    places: tuple[str, ...] = ()
    placed: int | None = None
    until: int | None = None


@dataclass(kw_only=True)
class Ledger:
    """Spans in seconds from the begin. A span that is open counts until `now`."""

    down: dict[str, list[Span]] = field(default_factory=dict)
    """By node: out of service for its upgrade."""
    open: dict[str, int] = field(default_factory=dict)
    stalls: list[Stall] = field(default_factory=list)
    thrown_away: int = 0
    """GPU-seconds of work that was done after the checkpoint that a gang came back from."""
    idle: int = 0
    """GPU-seconds of free GPUs on nodes that were cordoned while others on them went on."""
    interruptions: Counter[str] = field(default_factory=Counter)
    """How often each gang was stopped while it trained."""

    def close(self, node: str, now: int) -> None:
        """A node goes out of service."""
        self.open.setdefault(node, now)

    def release(self, node: str, now: int) -> None:
        """A node is back."""
        since = self.open.pop(node, None)
        if since is not None:
            self.down.setdefault(node, []).append((since, now))

    def spans(self, node: str, now: int) -> list[Span]:
        """When a node was out of service."""
        still = [(self.open[node], now)] if node in self.open else []
        return self.down.get(node, []) + still

    def of_nodes(self, sizes: dict[str, int], now: int) -> int:
        """GPU-seconds of nodes out of service; `sizes`: GPUs by node."""
        return sum(
            sizes[node] * (until - since) for node in {*self.down, *self.open} for since, until in self.spans(node, now)
        )

    def of_gangs(self, now: int) -> int:
        """GPU-seconds that gangs did not train beyond the upgrades of the nodes that they had."""
        return sum(self._beyond(stall, now) for stall in self.stalls)

    def _beyond(self, stall: Stall, now: int) -> int:
        until = now if stall.until is None else stall.until
        placed = until if stall.placed is None else stall.placed
        waiting = sum(
            stall.gpus * _seconds_outside((stall.since, placed), self.spans(home, now)) for home in stall.homes
        )
        places = stall.places or stall.homes
        starting = sum(stall.gpus * _seconds_outside((placed, until), self.spans(place, now)) for place in places)
        return waiting + starting


def _seconds_outside(span: Span, taken: list[Span]) -> int:
    """Seconds of a span that are in none of others, which do not overlap each other."""
    since, until = span
    inside = sum(max(0, min(until, end) - max(since, start)) for start, end in taken)
    return max(0, until - since - inside)
