"""The fleet at the start of a simulation, and its events, as values. Times are seconds from the begin."""

from enum import StrEnum

from msgspec import Struct

KERNEL = "6.1.0-49-amd64"

CHECKPOINT, RESTART, PERIOD = 120, 600, 3600
"""Seconds if a job does not declare them: a checkpoint, a restart until training, the period of its own checkpoints."""


class FleetNode(Struct, frozen=True, kw_only=True):
    """A node in service on the old revision."""

    name: str
    gpus: int = 8
    model: str = "H100"
    kernel: str = KERNEL
    rack: str = ""


class FleetJob(Struct, frozen=True, kw_only=True):
    """A job: `size` members with `gpus` each; one member on each node of `nodes`, or placed when it starts.

    `end` is its end if it is never stopped, `declared_end` the end that it declares. Each second of a stop delays both.
    """

    name: str
    size: int
    nodes: tuple[str, ...] = ()  # nodes of its members at the begin; empty: the scheduler places it at `start`
    gpus: int = 8
    start: int = 0  # not after 0: it runs at the begin
    end: int | None = None  # None: after the simulation
    declared_end: int | None = None
    min_runtime: int = 0
    method: str = "file"  # file, none; empty: undeclared
    timeout: int | None = None  # declared timeout of a checkpoint
    checkpoint: int = CHECKPOINT  # median
    restart: int = RESTART  # median
    period: int = PERIOD  # between the checkpoints that it makes by itself: what a kill throws away
    lane: str = ""  # between its own checkpoints: the most work that a kill loses
    refuses: int = 0  # requests that it refuses before it accepts one

    @property
    def running(self) -> bool:
        """Whether it runs at the begin."""
        return bool(self.nodes)


class EventKind(StrEnum):
    """The kind of an event of a node or a job; `value` as in the comments."""

    NODE_NOT_READY = "NodeNotReady"  # its jobs are killed
    NODE_READY = "NodeReady"
    NODE_CORDONED = "NodeCordoned"  # by an administrator
    NODE_LEAVES = "NodeLeaves"
    NODE_JOINS = "NodeJoins"  # value: the node that it copies
    NODE_RENAMED = "NodeRenamed"  # value: its new name
    UPGRADE_FAILS = "UpgradeFails"  # value: the number of failures
    JOB_ENDS = "JobEnds"
    JOB_GROWS = "JobGrows"  # value: the node of an additional member
    JOB_RESUMED = "JobResumed"  # by its user, if it is suspended
    UNEQUAL_STEPS = "UnequalSteps"  # from then on its members answer with different steps
    SLOW_CHECKPOINT = "SlowCheckpoint"  # value: the seconds of each checkpoint from then on
    PDB_BLOCKS = "PdbBlocks"  # value: its PodDisruptionBudget
    PDB_ALLOWS = "PdbAllows"


class FleetEvent(Struct, frozen=True, kw_only=True):
    """An event; `subject` is the name of a node or a job."""

    at: int
    what: EventKind
    subject: str
    value: str = ""


class Fleet(Struct, frozen=True, kw_only=True):
    """Nodes, jobs and events."""

    name: str
    nodes: tuple[FleetNode, ...]
    jobs: tuple[FleetJob, ...] = ()
    events: tuple[FleetEvent, ...] = ()

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return sum(node.gpus for node in self.nodes)
