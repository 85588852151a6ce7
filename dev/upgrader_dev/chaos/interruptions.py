"""What comes between a batch and its upgrades: the controller dies, and a node is of another pool for a while."""

from collections.abc import Callable

from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.faults import Fault
from upgrader_dev.chaos.laws.journal import Entry
from upgrader_dev.chaos.laws.known import starts_batch
from upgrader_dev.chaos.ports import FaultyCluster

OFTEN = 10.0
"""Batches are rare, so that many of them are interrupted: so many times the rate."""


class Interruptions:
    """Reads the journal, and strikes when a batch was written."""

    def __init__(self, cluster: FaultyCluster, draws: Draws, strays: Callable[[], None]) -> None:
        self._cluster, self._draws, self._strays = cluster, draws, strays

    def read(self, entry: Entry) -> None:
        """Strike, perhaps."""
        rate = self._cluster.rates.at(Fault.BATCH_INTERRUPTED) * OFTEN
        if starts_batch(entry) and self._draws.happens(rate):
            self._cluster.killed = True
            self._cluster.clock.later(0, self._strays)
