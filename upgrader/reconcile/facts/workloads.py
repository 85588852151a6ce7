"""Pods with their owners and claims: the largest part of a reading, shared by all loops that step within seconds.

Every stack and every plan reads all pods; separate reads would list, decode and store all pods every few seconds. A
decision from a shared reading only causes a fresh read: before a batch is written, an upgrade is created or a gang is
requested, everything is read again, and before a stop or an eviction the pods concerned are listed anyway.
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
"""Time for which a reading is shared: idle loops step every 15 s, others every second."""


class WorkloadObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one reading."""

    pods: Sequence[Pod] = ()
    works: Sequence[Work] = ()  # owners of pods, and their owners
    claims: Sequence[PersistentVolumeClaim] = ()
    claimed: Claimed = msgspec.field(default_factory=dict)  # GPUs of ResourceClaims


async def read_workload(cluster: Cluster, kept: ObjectCache[Work], watched: Reads | None = None) -> WorkloadObjects:
    """Read everything from the API server, pods from `watched` if given; `kept`: values of owners read before.

    Raises:
        ClusterError: the API server refused, or could not be reached.
    """
    pods, works = await asyncio.gather((watched or cluster).list(PODS), read_works(cluster, kept))
    return WorkloadObjects(
        pods=pods,
        works=works,
        claims=await cluster.list(CLAIMS) if any(map(keeps_on_claims, pods)) else (),
        claimed=await read_claimed(cluster, pods),
    )


class Workloads:
    """The reading that loops share for `seconds` from its begin; 0: each call reads again."""

    def __init__(
        self,
        *,
        seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        kept: ObjectCache[Work] | None = None,
        watched: Reads | None = None,
    ) -> None:
        """`watched`: cached pods of watches in place of a list; None: pods are listed."""
        self._seconds = seconds
        self._clock = clock
        self._kept: ObjectCache[Work] = kept or ObjectCache()
        self._watched = watched
        self._reading = asyncio.Lock()
        self._found: WorkloadObjects | None = None
        self._began = 0.0

    async def read(self, cluster: Cluster) -> WorkloadObjects:
        """A reading that is less than `seconds` old, else a new one; concurrent callers wait for the same reading.

        Raises:
            ClusterError: the API server refused, or could not be reached; the next caller reads again.
        """
        if not self._seconds:
            return await read_workload(cluster, self._kept, self._watched)
        async with self._reading:
            began = self._clock()
            if self._found is None or began - self._began >= self._seconds:
                self._found = None  # freed before the next read: the largest clusters fit into memory once, not twice
                self._found, self._began = await read_workload(cluster, self._kept, self._watched), began
            return self._found

    def unshared_reader(self) -> "Workloads":
        """A reader without sharing, which reads from the API server each time."""
        return Workloads(kept=self._kept)
