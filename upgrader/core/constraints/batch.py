"""A batch as the forecast shows it: groups that are upgraded at the same time. Times are aware (UTC)."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class GroupForecast(Struct, frozen=True, kw_only=True, gc=False):
    """Nodes upgraded together; `gpus` are those of the nodes and of the stopped gangs wherever they run."""

    name: str
    nodes: tuple[str, ...]
    gangs: tuple[str, ...] = ()  # asked, stopped and restarted together
    evicted: tuple[str, ...] = ()  # replicated owners whose pods on these nodes are evicted
    gpus: int = 0
    added: int = 0  # those of the GPUs that are in service now
    rebooted: tuple[str, ...] = ()  # those of its nodes that are rebooted, which ends every pod on them
    reconfigured: tuple[str, ...] = ()  # those whose kubelets are set anew and not rebooted, which ends every pod, too
    other_pods: int = 0  # pods without GPUs that both of these end; those of DaemonSets and static ones are not counted


class BatchKind(StrEnum):
    """Why a batch comes where it comes."""

    CANARY = "Canary"  # one idle node of each class (its smallest group where none is idle), then soak
    IDLE = "Idle"  # nobody is stopped
    ASKED = "Asked"  # gangs are asked and stopped


class BatchForecast(Struct, frozen=True, kw_only=True):
    """Upgrade groups upgraded at the same time, counted from 1.

    The first batch must not be started before `starts_at`; those after it are expected then, and forecast again.
    """

    number: int
    groups: tuple[GroupForecast, ...]
    kind: BatchKind = BatchKind.ASKED
    starts_at: datetime | None = None  # None: now
    seconds: int = 0  # how long it is expected to last
    waits_for: str = ""  # what it waits for beyond the batches before it, as a sentence

    @property
    def gpus(self) -> int:
        """GPUs out of service while it lasts, those before it not counted."""
        return sum(group.gpus for group in self.groups)

    @property
    def nodes(self) -> tuple[str, ...]:
        """All its nodes."""
        return tuple(node for group in self.groups for node in group.nodes)
