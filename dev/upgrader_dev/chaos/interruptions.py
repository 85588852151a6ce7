"""Interruptions between a batch and its upgrades: the controller dies, and a node is in another pool for a while."""

from collections.abc import Callable

from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.faults import Fault
from upgrader_dev.chaos.laws.cluster_state import starts_batch
from upgrader_dev.chaos.laws.journal import JournalEntry
from upgrader_dev.chaos.ports import FaultyCluster

OFTEN = 10.0
"""The rate of interruptions is multiplied by this, since batches are rare."""


class Interruptions:
    """Reads the journal, and interrupts the controller after it wrote a batch."""

    def __init__(self, cluster: FaultyCluster, draws: Draws, move_node: Callable[[], None]) -> None:
        self._cluster, self._draws, self._strays = cluster, draws, move_node

    def read_entry(self, entry: JournalEntry) -> None:
        """Interrupt the controller, with the rate of the fault."""
        rate = self._cluster.rates.rate_of(Fault.BATCH_INTERRUPTED) * OFTEN
        if starts_batch(entry) and self._draws.is_hit(rate):
            self._cluster.killed = True
            self._cluster.clock.later(0, self._strays)
