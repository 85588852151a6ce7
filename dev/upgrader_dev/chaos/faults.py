"""All faults of chaos runs."""

from collections.abc import Container, Mapping
from enum import StrEnum

from msgspec import Struct

from upgrader_dev.chaos.draws import Draws


class Fault(StrEnum):
    """A fault of a chaos run."""

    THROTTLED = "throttled"  # 429 without Retry-After
    THROTTLED_FOR = "throttled-for"  # 429 with Retry-After
    CONFLICT = "conflict"  # 409: the object changed since it was read
    UNAVAILABLE = "unavailable"  # 500, or no response: the write is not done
    ANSWER_LOST = "answer-lost"  # no response: the write is done
    LATE_WRITE = "late-write"  # no response: the write is done some seconds later
    CRASH_BEFORE = "crash-before"  # the controller is killed before a write
    CRASH_AFTER = "crash-after"  # the controller is killed after a write
    FROZEN_LEADER = "frozen-leader"  # the last write of a frozen leader arrives when the next leader already works
    FORBIDDEN = "forbidden"  # 403: by an admission webhook, or missing rights in one namespace
    READ_FAILS = "read-fails"
    READ_THROTTLED = "read-throttled"

    WATCH_CUT = "watch-cut"
    WATCH_STALE = "watch-stale"  # the connection stays open and delivers nothing
    HISTORY_GONE = "history-gone"  # 410: the API server no longer has the resourceVersion
    CLOCK_SKEW = "clock-skew"  # of each controller process, relative to the API server

    NODE_DOWN = "node-down"  # NotReady for some time
    NODE_LOST = "node-lost"  # the Node is deleted; a node of the same name joins later
    LABEL_FLAPS = "label-flaps"  # the pool label or the kernel label is missing or wrong for some seconds
    MALFORMED_NODE = "malformed-node"  # the kubelet writes malformed values into the operator's annotations
    CORDON = "cordon"  # by a user

    POD_APPEARS = "pod-appears"
    TOLERANT_POD = "tolerant-pod"  # it tolerates every taint
    GANG_GROWS = "gang-grows"
    GANG_SHRINKS = "gang-shrinks"
    GANG_ENDS = "gang-ends"
    GANG_RESTARTS = "gang-restarts"  # a member fails, and its controller creates another
    GANG_REPLACED = "gang-replaced"  # deleted, and created again with the same name
    PDB_TIGHTENS = "pdb-tightens"

    MALFORMED_TEXT = "malformed-text"  # malformed annotations on a tenant's pod
    EXTREME_NUMBERS = "extreme-numbers"  # extreme numbers in a tenant's Job
    FORGED_POD = "forged-pod"  # the operator's labels on a tenant's pod
    FORGED_REQUEST = "forged-request"  # a tenant's CheckpointRequest that names the plan
    FORGED_RECORD = "forged-record"  # a forged record of a stop, on a tenant's Job

    FORCE_DELETED = "force-deleted"  # an object of the operator, regardless of its finalizers
    USER_ACTION = "user-action"  # a user pauses, resumes, aborts or deletes the plan
    NODE_POD_FAILS = "node-pod-fails"  # a prepare, upgrade or validation pod reports a failure
    UPGRADE_HANGS = (
        "upgrade-hangs"  # the pod of a node upgrade does not end, and the deadline of its Job does not end it
    )
    BATCH_INTERRUPTED = (
        "batch-interrupted"  # the controller dies between a batch and its upgrades, and a node changes its pool
    )

    READ_SLOW = "read-slow"  # the response to a read arrives later, and objects have changed since


class Rates(Struct, frozen=True):
    """How often each fault happens, as a part of its occasions."""

    by_fault: Mapping[Fault, float]

    def rate_of(self, fault: Fault) -> float:
        """The rate of a fault; zero if it does not happen in this run."""
        return self.by_fault.get(fault, 0.0)


def draw_rates(draws: Draws, off: Container[Fault] = frozenset()) -> Rates:
    """The faults of a run and their rates: some runs have few faults, others many.

    A fault that is left out does not change the draws of the others, so a seed stays nearly the same run.
    """
    rates: dict[Fault, float] = {}
    density = draws.draw_choice([0.2, 0.5, 0.9])
    for fault in Fault:
        rate = draws.draw_choice([0.002, 0.01, 0.05]) if draws.is_hit(density) else 0.0
        if rate and fault not in off:
            rates[fault] = rate
    return Rates(rates)
