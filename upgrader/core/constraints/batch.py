"""A batch of a forecast: groups that are upgraded at the same time. Times are aware (UTC)."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class GroupForecast(Struct, frozen=True, kw_only=True, gc=False):
    """Nodes upgraded together; `gpus` are those of the nodes and of the stopped gangs on any node."""

    name: str
    nodes: tuple[str, ...]
    gangs: tuple[str, ...] = ()  # requested to checkpoint, stopped and restarted together
    evicted: tuple[str, ...] = ()  # replicated owners whose pods on these nodes are evicted
    gpus: int = 0
    added: int = 0  # those of the GPUs that are in service now
    rebooted: tuple[str, ...] = ()  # its nodes that are rebooted, which ends every pod on them
    perhaps_rebooted: tuple[str, ...] = ()  # its nodes that are rebooted only if their driver cannot be unloaded
    reconfigured: tuple[str, ...] = ()  # its nodes with a new kubelet configuration only, which ends every pod as well
    other_pods: int = 0  # pods without GPUs that end on these; static pods and pods of DaemonSets are not counted


class BatchKind(StrEnum):
    """Why a batch has its place in the order."""

    CANARY = "Canary"  # one idle node of each class (its smallest group if none is idle), then soak
    IDLE = "Idle"  # no gang is stopped
    ASKED = "Asked"  # gangs are requested to checkpoint and stopped


class BatchForecast(Struct, frozen=True, kw_only=True):
    """Upgrade groups upgraded at the same time, counted from 1.

    The first batch must not start before `starts_at`; later batches are expected then, and forecast again.
    """

    number: int
    groups: tuple[GroupForecast, ...]
    kind: BatchKind = BatchKind.ASKED
    starts_at: datetime | None = None  # None: now
    seconds: int = 0  # expected duration
    waits_for: str = ""  # what it waits for beside the batches before it, as a sentence

    @property
    def gpus(self) -> int:
        """GPUs out of service during the batch, without those of batches before it."""
        return sum(group.gpus for group in self.groups)

    @property
    def nodes(self) -> tuple[str, ...]:
        """All its nodes."""
        return tuple(node for group in self.groups for node in group.nodes)
