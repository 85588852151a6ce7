"""Pods with their owners and claims: most of what there is to read, read once for all loops that look within seconds.

Every stack and every plan looks at all pods; each for itself, that is a list of all of them every few seconds, decoded
and kept as often. What is decided from a shared reading is only to look again: before a batch is written, an upgrade is
ordered or a gang is asked, all is read anew, and before a stop or an eviction the pods concerned are listed anyway.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from upgrader.api.kubernetes import PersistentVolumeClaim, Pod
from upgrader.api.resources import CLAIMS, PODS
from upgrader.core.node_protocol.gpu_resources import Claimed
from upgrader.core.workloads.owner_objects import Work
from upgrader.reconcile.facts.device_claims import read_claimed
from upgrader.reconcile.facts.object_cache import ObjectCache
from upgrader.reconcile.facts.owner_reading import read_works
from upgrader.reconcile.facts.storage import keeps_on_claims
from upgrader.reconcile.ports import Cluster, Reads

SHARED_SECONDS = 5.0
"""How long a controller's reading serves its other loops: idle ones look every 15 s, others every second."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What one reading found."""

    pods: Sequence[Pod] = ()
    works: Sequence[Work] = ()  # owners of pods, and what owns those
    claims: Sequence[PersistentVolumeClaim] = ()
    claimed: Claimed = msgspec.field(default_factory=dict)  # GPUs of ResourceClaims


async def read_workload(cluster: Cluster, kept: ObjectCache[Work], watched: Reads | None = None) -> Workload:
    """All of it as the API server has it now, pods as `watched` has them; `kept`: owners as they were read before.

    Raises:
        ClusterError: the API server refused, or could not be reached.
    """
    pods, works = await asyncio.gather((watched or cluster).list(PODS), read_works(cluster, kept))
    return Workload(
        pods=pods,
        works=works,
        claims=await cluster.list(CLAIMS) if any(map(keeps_on_claims, pods)) else (),
        claimed=await read_claimed(cluster, pods),
    )


class Workloads:
    """The reading that loops share: it serves for `seconds` from when it began; 0: each reads for itself."""

    def __init__(
        self,
        *,
        seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        kept: ObjectCache[Work] | None = None,
        watched: Reads | None = None,
    ) -> None:
        """`watched`: pods as watches have shown them, instead of a list of all; None: they are listed."""
        self._seconds = seconds
        self._clock = clock
        self._kept: ObjectCache[Work] = kept or ObjectCache()
        self._watched = watched
        self._reading = asyncio.Lock()
        self._found: Workload | None = None
        self._began = 0.0

    async def read(self, cluster: Cluster) -> Workload:
        """What was read less than `seconds` ago, else all anew; whoever comes meanwhile waits for that reading.

        Raises:
            ClusterError: the API server refused, or could not be reached; the next caller reads again.
        """
        if not self._seconds:
            return await read_workload(cluster, self._kept, self._watched)
        async with self._reading:
            began = self._clock()
            if self._found is None or began - self._began >= self._seconds:
                self._found = None  # before the next is read: the largest clusters fit into memory once, not twice
                self._found, self._began = await read_workload(cluster, self._kept, self._watched), began
            return self._found

    def anew(self) -> "Workloads":
        """Reads for each look itself, from the API server as it is then."""
        return Workloads(kept=self._kept)
