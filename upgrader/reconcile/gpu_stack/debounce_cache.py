"""Debouncing of node state: a state counts when two passes have seen it, and drift when it persists.

This is kept in memory only: after a restart, a decision takes a little longer.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from upgrader.core.gpu_stack.debounce import Observation, labels_seen, needs_seen, update_seen
from upgrader.core.gpu_stack.drift import NodeDrift
from upgrader.core.model.fleet import NodeFacts, Target


@dataclass
class Steady:
    """Observations of the nodes of a stack, by uid: differences from a revision, and labels that disagree."""

    revision: str = ""
    needs: dict[str, Observation] = field(default_factory=dict)
    labels: dict[str, Observation] = field(default_factory=dict)


@dataclass
class Sightings:
    """First sightings by stack and node uid (boot, kernel, time), and the observations of each stack."""

    first: dict[tuple[str, str], tuple[str, str, datetime]] = field(default_factory=dict)
    steady: dict[str, Steady] = field(default_factory=dict)

    def was_seen_before(self, stack: str, node: NodeFacts, now: datetime, apart_seconds: float) -> bool:
        """Whether this boot and kernel were seen before, at least `apart_seconds` ago."""
        key, seen = (stack, node.uid), (node.boot_id, node.kernel)
        before = self.first.get(key)
        if before is None or before[:2] != seen:
            self.first[key] = (*seen, now)
            return False
        return now - before[2] >= timedelta(seconds=apart_seconds)

    def keep_nodes(self, stack: str, uids: Collection[str]) -> None:
        """Drop every other node of the stack: it is in order again, or deleted."""
        for key in [sighting for sighting in self.first if sighting[0] == stack and sighting[1] not in uids]:
            del self.first[key]

    def has_single_sighting(self, stack: str, now: datetime, apart_seconds: float) -> bool:
        """Whether a node of the stack was seen only once so far, so that the next pass should follow soon."""
        apart = timedelta(seconds=apart_seconds)
        return any(key[0] == stack and now - seen[2] < apart for key, seen in self.first.items())

    def record_nodes(
        self, target: Target, nodes: Iterable[NodeFacts], drift: Iterable[NodeDrift], now: datetime
    ) -> Steady:
        """Record the present state of all nodes of a stack. A new revision resets recorded differences."""
        stack = target.stack
        before, drift_of_node = self.steady.get(stack, Steady()), {node.node: node for node in drift}
        after, needs = Steady(revision=target.revision), before.needs if before.revision == target.revision else {}
        for node in nodes:
            node_drift = drift_of_node.get(node.name)
            for was, into, what in (
                (needs, after.needs, needs_seen(node, node_drift)),
                (before.labels, after.labels, labels_seen(node, node_drift)),
            ):
                seen = update_seen(was.get(node.uid), what, now)
                if seen is not None:
                    into[node.uid] = seen
        self.steady[stack] = after
        return after

    def forget_stack(self, stack: str) -> None:
        """Drop a deleted stack."""
        self.keep_nodes(stack, ())
        self.steady.pop(stack, None)
