"""The cost of a rollout: GPU time without work, by node and by gang, and lost work."""

from collections import Counter
from dataclasses import dataclass, field

HOUR = 3600
Span = tuple[int, int]


@dataclass(kw_only=True)
class Stall:
    """An interruption of a gang's training: its start, when it has nodes again, its end."""

    job: str
    gpus: int  # of one member
    homes: tuple[str, ...]
    since: int
    places: tuple[str, ...] = ()
    placed: int | None = None
    until: int | None = None


@dataclass(kw_only=True)
class Ledger:
    """Spans in seconds from the begin. An open span counts until `now`."""

    down: dict[str, list[Span]] = field(default_factory=dict)
    """By node: spans out of service for its upgrade."""
    open_outages: dict[str, int] = field(default_factory=dict)
    stalls: list[Stall] = field(default_factory=list)
    thrown_away: int = 0
    """GPU-seconds of work after the checkpoint from which a gang resumed."""
    idle: int = 0
    """GPU-seconds of free GPUs on cordoned nodes with running jobs."""
    interruptions: Counter[str] = field(default_factory=Counter)
    """How often each gang was stopped while it trained."""

    def start_outage(self, node: str, now: int) -> None:
        """A node goes out of service."""
        self.open_outages.setdefault(node, now)

    def end_outage(self, node: str, now: int) -> None:
        """A node returns to service."""
        since = self.open_outages.pop(node, None)
        if since is not None:
            self.down.setdefault(node, []).append((since, now))

    def outage_spans(self, node: str, now: int) -> list[Span]:
        """The spans in which a node was out of service."""
        still = [(self.open_outages[node], now)] if node in self.open_outages else []
        return self.down.get(node, []) + still

    def outage_gpu_seconds(self, sizes: dict[str, int], now: int) -> int:
        """GPU-seconds of nodes out of service; `sizes`: GPUs by node."""
        return sum(
            sizes[node] * (until - since)
            for node in {*self.down, *self.open_outages}
            for since, until in self.outage_spans(node, now)
        )

    def stall_gpu_seconds(self, now: int) -> int:
        """GPU-seconds without training of gangs, beyond the upgrades of their nodes."""
        return sum(self._seconds_beyond_outages(stall, now) for stall in self.stalls)

    def _seconds_beyond_outages(self, stall: Stall, now: int) -> int:
        until = now if stall.until is None else stall.until
        placed = until if stall.placed is None else stall.placed
        waiting = sum(
            stall.gpus * _seconds_outside((stall.since, placed), self.outage_spans(home, now)) for home in stall.homes
        )
        places = stall.places or stall.homes
        starting = sum(
            stall.gpus * _seconds_outside((placed, until), self.outage_spans(place, now)) for place in places
        )
        return waiting + starting


def _seconds_outside(span: Span, others: list[Span]) -> int:
    """Seconds of a span that are in none of the other spans, which do not overlap each other."""
    since, until = span
    inside = sum(max(0, min(until, end) - max(since, start)) for start, end in others)
    return max(0, until - since - inside)
