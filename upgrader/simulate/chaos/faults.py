"""Everything that goes wrong in chaos runs, by name; which of it is switched off, and why."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from upgrader.simulate.chaos.draws import Draws


class Fault(StrEnum):
    """What goes wrong."""

    THROTTLED = "throttled"  # 429 without Retry-After
    THROTTLED_FOR = "throttled-for"  # 429 with Retry-After
    CONFLICT = "conflict"  # 409: a write meets a newer object
    UNAVAILABLE = "unavailable"  # 500, or no answer: the write was not done
    ANSWER_LOST = "answer-lost"  # the write was done
    LATE_WRITE = "late-write"  # no answer, and the write is done a while later
    CRASH_BEFORE = "crash-before"  # the controller is killed before a write
    CRASH_AFTER = "crash-after"  # or right after it
    FROZEN_LEADER = "frozen-leader"  # the next leader works already when the frozen one's last write arrives
    READ_FAILS = "read-fails"
    READ_THROTTLED = "read-throttled"


SWITCHED_OFF: Mapping[Fault, str] = MappingProxyType({})
"""Faults that find defects which are known and not repaired yet, each with the defect. An empty table is the aim."""


class Rates(Struct, frozen=True):
    """How often each fault happens, of all occasions that there are for it."""

    of: Mapping[Fault, float]

    def at(self, fault: Fault) -> float:
        """Its rate; zero for what does not happen in this run."""
        return self.of.get(fault, 0.0)


def rates(draws: Draws, without: frozenset[Fault] = frozenset()) -> Rates:
    """Which faults a run has, and how often: some runs have few of them, others many at once."""
    found: dict[Fault, float] = {}
    crowd = draws.among([0.2, 0.5, 0.9])
    for fault in Fault:
        rate = draws.among([0.002, 0.01, 0.05]) if draws.happens(crowd) else 0.0
        if rate and fault not in SWITCHED_OFF and fault not in without:
            found[fault] = rate
    return Rates(MappingProxyType(found))
