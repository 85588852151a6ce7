"""The fleet that a simulation starts from, and what happens to it, as values. Times are seconds from the begin."""

from enum import StrEnum

from msgspec import Struct

KERNEL = "6.1.0-49-amd64"

CHECKPOINT, RESTART, PERIOD = 120, 600, 3600
"""Seconds, where a job does not say: one checkpoint, from restart to training again, between its own checkpoints."""


class SimNode(Struct, frozen=True, kw_only=True):
    """A node in service on the old revision."""

    name: str
    gpus: int = 8
    model: str = "H100"
    kernel: str = KERNEL
    rack: str = ""


class SimJob(Struct, frozen=True, kw_only=True):
    """A job: `size` members of `gpus` each; one member on each node of `nodes`, or placed when it starts.

    `end` is when it ends by itself if nobody ever stops it, `declared_end` what it says about that. Each second that it
    is stopped moves both.
    """

    name: str
    size: int
    nodes: tuple[str, ...] = ()  # where its members run at the begin; none: a scheduler finds room from `start` on
    gpus: int = 8
    start: int = 0  # not after 0: it runs at the begin
    end: int | None = None  # None: after the simulation
    declared_end: int | None = None
    min_runtime: int = 0
    method: str = "file"  # file, none; empty: undeclared
    timeout: int | None = None  # longest one checkpoint may take, where declared
    checkpoint: int = CHECKPOINT  # median
    restart: int = RESTART  # median
    period: int = PERIOD  # between the checkpoints that it makes by itself: what a kill throws away
    lane: str = ""  # storage that its checkpoints go to
    refuses: int = 0  # how many requests it refuses before it accepts one

    @property
    def running(self) -> bool:
        """Whether it runs at the begin."""
        return bool(self.nodes)


class Happening(StrEnum):
    """What happens to a node or a job, whoever upgrades; `value` as said."""

    NODE_NOT_READY = "NodeNotReady"  # its jobs are lost with it
    NODE_READY = "NodeReady"
    NODE_CORDONED = "NodeCordoned"  # by a person
    NODE_LEAVES = "NodeLeaves"
    NODE_JOINS = "NodeJoins"  # value: the node that it is like
    NODE_RENAMED = "NodeRenamed"  # value: its new name
    UPGRADE_FAILS = "UpgradeFails"  # value: how many times
    JOB_ENDS = "JobEnds"
    JOB_GROWS = "JobGrows"  # value: the node of one more member
    JOB_RESUMED = "JobResumed"  # by its user, if it is suspended then
    UNEQUAL_STEPS = "UnequalSteps"  # from then on its members answer with different steps
    SLOW_CHECKPOINT = "SlowCheckpoint"  # value: seconds that each takes from then on
    PDB_BLOCKS = "PdbBlocks"  # value: its PodDisruptionBudget
    PDB_ALLOWS = "PdbAllows"


class Event(Struct, frozen=True, kw_only=True):
    """Something that happens; `subject` is the name of a node or a job."""

    at: int
    what: Happening
    subject: str
    value: str = ""


class Fleet(Struct, frozen=True, kw_only=True):
    """Nodes, jobs, and what happens to them."""

    name: str
    nodes: tuple[SimNode, ...]
    jobs: tuple[SimJob, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(node.gpus for node in self.nodes)
