"""Everything that goes wrong in chaos runs, by name."""

from collections.abc import Container, Mapping
from enum import StrEnum

from msgspec import Struct

from upgrader_dev.chaos.draws import Draws


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
    FORBIDDEN = "forbidden"  # 403: an admission webhook, or a right that is missing in one namespace
    READ_FAILS = "read-fails"
    READ_THROTTLED = "read-throttled"

    WATCH_CUT = "watch-cut"
    WATCH_STALE = "watch-stale"  # it stays open and brings nothing
    HISTORY_GONE = "history-gone"  # 410: what changed since then is not known any more
    CLOCK_SKEW = "clock-skew"  # of each controller process, against the world's

    NODE_DOWN = "node-down"  # NotReady for a while
    NODE_LOST = "node-lost"  # its object is deleted; one of the same name joins later
    LABEL_FLAPS = "label-flaps"  # the pool's label, or the kernel's, is away or wrong for a moment
    ODD_NODE = "odd-node"  # its kubelet writes what nobody can read into our annotations
    CORDON = "cordon"  # a person's

    POD_APPEARS = "pod-appears"
    TOLERANT_POD = "tolerant-pod"  # it tolerates every taint
    GANG_GROWS = "gang-grows"
    GANG_SHRINKS = "gang-shrinks"
    GANG_ENDS = "gang-ends"
    GANG_RESTARTS = "gang-restarts"  # a member fails, and its controller makes another
    GANG_REPLACED = "gang-replaced"  # deleted, and made again under its name
    PDB_TIGHTENS = "pdb-tightens"

    ODD_TEXT = "odd-text"  # annotations that nobody can read, on a tenant's pod
    ODD_NUMBERS = "odd-numbers"  # numbers beyond all reason, in a tenant's Job
    FORGED_POD = "forged-pod"  # the operator's labels on a tenant's pod
    FORGED_REQUEST = "forged-request"  # a tenant's CheckpointRequest that names the plan
    FORGED_RECORD = "forged-record"  # what looks like the record of a stop, on a tenant's Job

    FORCE_DELETED = "force-deleted"  # an object of ours, whatever its finalizers say
    PERSON = "person"  # somebody pauses, resumes, aborts or deletes the plan
    NODE_POD_FAILS = "node-pod-fails"  # a prepare, upgrade or validation pod reports a failure
    UPGRADE_HANGS = "upgrade-hangs"  # the pod of a node upgrade neither ends nor is ended by its Job's deadline
    BATCH_INTERRUPTED = (
        "batch-interrupted"  # the controller dies between a batch and its upgrades, and a node is astray
    )

    READ_SLOW = "read-slow"  # what was read comes a while later, and the world has gone on


class Rates(Struct, frozen=True):
    """How often each fault happens, of all occasions that there are for it."""

    of: Mapping[Fault, float]

    def at(self, fault: Fault) -> float:
        """Its rate; zero for what does not happen in this run."""
        return self.of.get(fault, 0.0)


def draw_rates(draws: Draws, off: Container[Fault] = frozenset()) -> Rates:
    """Which faults a run has, and how often: some runs have few of them, others many at once.

    What is off changes nothing for the others: a seed stays the same run as nearly as it can.
    """
    found: dict[Fault, float] = {}
    crowd = draws.among([0.2, 0.5, 0.9])
    for fault in Fault:
        rate = draws.among([0.002, 0.01, 0.05]) if draws.happens(crowd) else 0.0
        if rate and fault not in off:
            found[fault] = rate
    return Rates(found)
