"""The context of every reconciler: ports, settings, and the functions to write a status and to create objects."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

import structlog

from upgrader.api.kubernetes import ObjectMeta
from upgrader.api.resources import ResourceKind
from upgrader.core.errors import ConflictError, UnreachableError
from upgrader.core.forecast.forecast import BatchForecast
from upgrader.core.model.phases import NodePhase, RequestPhase
from upgrader.reconcile.facts.event_memory import EventMemory
from upgrader.reconcile.facts.fact_cache import FactCaches
from upgrader.reconcile.facts.workloads import Workloads
from upgrader.reconcile.ports import (
    CheckpointMethod,
    Clock,
    Cluster,
    CrashPoints,
    ImageVerifier,
    Leadership,
    Nodes,
    Reads,
    Registry,
)
from upgrader.reconcile.runtime.looks import Looks
from upgrader.reconcile.runtime.pauses import Pauses
from upgrader.stack.settings import BuildSettings, StackSettings

T_co = TypeVar("T_co", covariant=True)
log = structlog.get_logger()

FIRST_PHASE = {"NodeUpgrade": NodePhase.PENDING.value, "CheckpointRequest": RequestPhase.REQUESTED.value}
"""Kinds whose creation is the intent of their first phase."""

REHEARSED_AGAIN = timedelta(seconds=15)
"""Pause between a failed dry run and the next."""
ANNOTATION_REMOVAL_RETRY = timedelta(seconds=60)
"""Pause after annotations of a pod could not be removed."""


@dataclass(frozen=True, kw_only=True)
class Gates:
    """Locks for resources that plans share: the holder reads, decides and writes before the next holder reads.

    Steps of several plans run concurrently, so two of them could read before either writes. Only one process leads, so
    locks in memory suffice; they hold no state, and decisions inside use fresh reads from the API server.
    """

    batches: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The budget: started batches in the statuses of all plans."""
    lanes: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Turns to write a checkpoint, in the statuses of all requests."""
    builds: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Builds of driver images, in the statuses of all DriverImages."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Ports and settings of one controller."""

    cluster: Cluster
    nodes: Nodes
    registry: Registry
    clock: Clock
    leadership: Leadership
    crash: CrashPoints
    methods: Mapping[str, CheckpointMethod]
    """Checkpoint methods by the name that jobs declare."""
    stack: StackSettings
    builds: BuildSettings = field(default_factory=BuildSettings)
    trust: ImageVerifier | None = None
    """Verifier of images; None if no key is set."""
    gates: Gates = field(default_factory=Gates)
    workloads: Workloads = field(default_factory=Workloads)
    """The shared reading of all pods, their owners and claims; see `with_fresh_pods`."""
    watched: Reads | None = None
    """Cached state of watches, for steps that only wait. None: there are no watches, every step reads again."""
    looks: Looks = field(default_factory=Looks)
    """Times of the last reads of groups."""
    facts: FactCaches = field(default_factory=FactCaches)
    """Facts derived from unchanged objects."""
    rehearsals: Pauses = field(default_factory=partial(Pauses, REHEARSED_AGAIN))
    """Recent dry runs that were refused or not answered."""
    annotation_removals: Pauses = field(default_factory=partial(Pauses, ANNOTATION_REMOVAL_RETRY))
    """Pods whose annotations could not be removed recently, by uid."""
    heard: EventMemory = field(default_factory=EventMemory)
    """Events of pods that do not start. A hint only."""
    active_seconds: float = 1.0
    """Pause between two steps of a plan with an open batch."""
    idle_seconds: float = 15.0
    """Pause between two steps of anything else."""
    steps_at_once: int = 8
    """Steps of a group in one step of its plan, while each changes a phase; no upgrade has more without a wait."""
    notice_seconds: float = 30.0
    """Time after which a waiting phase writes its reason into the status."""
    orders: dict[str, tuple[BatchForecast, ...]] = field(default_factory=dict)
    """Last forecast batches by plan: their order is kept if no other is better. A hint only."""


def with_fresh_pods(context: Context) -> Context:
    """The same ports, with freshly read pods and owners: for decisions."""
    return replace(context, workloads=context.workloads.unshared_reader())


def check_in_step(context: Context) -> None:
    """Check that nodes are in sync, right before a node upgrade, a request, a taint or a stop.

    Previous reads may take long, and the nodes may get out of sync in the meantime.

    Raises:
        UnreachableError: they are out of sync; the next step retries.
    """
    if context.nodes.snapshot() is None:
        raise UnreachableError(
            "the node cache is not in sync with the API server",
            details="its watch ended, or the nodes could not be listed",
            resolution="No upgrade begins until they are listed; see upgrader_informer_synced and the controller's "
            "log.",
        )


async def record_status(
    context: Context,
    kind: ResourceKind[T_co],
    meta: ObjectMeta,
    status: Mapping[str, Any],
    *,
    left: StrEnum | None = None,
    entered: StrEnum | None = None,
) -> T_co:
    """Write a status with the resourceVersion of `meta`; `left` and `entered` are the phases for the crash points.

    Raises:
        ConflictError: the object changed since it was read; the step is repeated.
    """
    context.leadership.check()
    written = await context.cluster.merge(kind, meta, {"status": dict(status)}, "status")
    if left is not None and entered is not None and left is not entered:
        # The record of one phase's end is the intent of the next: one write, so one crash point.
        context.crash.reached((kind.kind, left.value, "after-record"), (kind.kind, entered.value, "after-intent"))
    return written


async def create_once(context: Context, kind: ResourceKind[Any], body: dict[str, Any]) -> bool:
    """Create an object whose name follows from its purpose; False if it exists.

    Raises:
        UnreachableError: the nodes are out of sync, so nothing begins.
    """
    context.leadership.check()
    check_in_step(context)
    try:
        await context.cluster.create(kind, body)
    except ConflictError:
        log.info("already created", kind=kind.kind, name=body["metadata"]["name"])
        return False
    phase = FIRST_PHASE.get(kind.kind)
    if phase is not None:
        context.crash.reached((kind.kind, phase, "after-intent"))
    return True
