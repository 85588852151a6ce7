"""What every reconciler is given: its ports and a few settings, and the one way to write a status."""

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
from upgrader.reconcile.facts.event_memory import Heard
from upgrader.reconcile.facts.fact_cache import FactCaches
from upgrader.reconcile.facts.workloads import Workloads
from upgrader.reconcile.ports import (
    CheckpointMethod,
    Clock,
    Cluster,
    CrashPoints,
    Leadership,
    Nodes,
    Reads,
    Registry,
    Trust,
)
from upgrader.reconcile.runtime.looks import Looks
from upgrader.reconcile.runtime.pauses import Pauses
from upgrader.stack.settings import BuildSettings, StackSettings

T_co = TypeVar("T_co", covariant=True)
log = structlog.get_logger()

FIRST_PHASE = {"NodeUpgrade": NodePhase.PENDING.value, "CheckpointRequest": RequestPhase.REQUESTED.value}
"""For these, being made is the intent."""

REHEARSED_AGAIN = timedelta(seconds=15)
"""From the end of a dry run that failed until the next one."""
UNMARKED_AGAIN = timedelta(seconds=60)
"""From when marks could not be taken from a pod until that is tried again."""


@dataclass(frozen=True, kw_only=True)
class Gates:
    """One at a time through what plans share: whoever holds a gate reads, decides and writes before the next one reads.

    Steps of several plans run beside each other, so two of them could read before either wrote. One process leads, so a
    lock in memory orders them; it keeps no truth, and what is decided inside goes by what the API server says then.
    """

    batches: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The budget: started batches of all plans count, as their plans' statuses have them."""
    lanes: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Turns to write a checkpoint, as the statuses of all requests have them."""
    builds: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Builds of driver images, as the statuses of all of them have them."""


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
    """Checkpoint methods by the name that jobs declare: file, api."""
    stack: StackSettings
    builds: BuildSettings = field(default_factory=BuildSettings)
    trust: Trust | None = None
    """Who verifies images; None where no key is set."""
    gates: Gates = field(default_factory=Gates)
    workloads: Workloads = field(default_factory=Workloads)
    """All pods, their owners and claims, as old as a look may have them; see `anew`."""
    watched: Reads | None = None
    """What watches have shown, a moment old: for what only waits. None: there are no watches, all is read anew."""
    looks: Looks = field(default_factory=Looks)
    """When groups were read anew."""
    facts: FactCaches = field(default_factory=FactCaches)
    """What looks have derived from what has not changed since."""
    rehearsals: Pauses = field(default_factory=partial(Pauses, REHEARSED_AGAIN))
    """Dry runs that were refused, or not answered, a moment ago."""
    unmarking: Pauses = field(default_factory=partial(Pauses, UNMARKED_AGAIN))
    """Pods whose marks we were refused to take away a moment ago, by uid."""
    heard: Heard = field(default_factory=Heard)
    """What Events said of pods that do not start. A hint, no truth."""
    active_seconds: float = 1.0
    """Pause between two steps of a plan that has a batch under way."""
    idle_seconds: float = 15.0
    """Pause between two steps of anything else."""
    steps_at_once: int = 8
    """Steps of a group in one look, while each leads to another phase; no walk has more that need not wait."""
    notice_seconds: float = 30.0
    """A phase that waits longer than this says in its status for what."""
    orders: dict[str, tuple[BatchForecast, ...]] = field(default_factory=dict)
    """Batches as last forecast, by plan: their order is gone on with where no other is better. A hint, no truth."""


def anew(context: Context) -> Context:
    """The same ports, with pods and their owners as the API server has them now: for what decides."""
    return replace(context, workloads=context.workloads.anew())


def check_in_step(context: Context) -> None:
    """Right before something begins (a node upgrade, a request, the taint, a stop): nodes are still known.

    What is read first may take long, and the nodes get out of step meanwhile.

    Raises:
        UnreachableError: they are out of step; the next step looks again.
    """
    if context.nodes.snapshot() is None:
        raise UnreachableError(
            "the nodes are not in step with the API server",
            details="their watch broke off, or they could not be listed",
            resolution="Nothing begins until they are listed; see upgrader_informer_synced and the controller's log.",
        )


async def record(
    context: Context,
    kind: ResourceKind[T_co],
    meta: ObjectMeta,
    status: Mapping[str, Any],
    *,
    left: StrEnum | None = None,
    entered: StrEnum | None = None,
) -> T_co:
    """Write a status, fitting what was read; `left` and `entered` name the phases for the crash points.

    Raises:
        ConflictError: the object changed since it was read; the step is made again from a new look.
    """
    context.leadership.check()
    written = await context.cluster.merge(kind, meta, {"status": dict(status)}, "status")
    if left is not None and entered is not None and left is not entered:
        # What records the end of one phase is the intent of the next: one write, so one place.
        context.crash.reached((kind.kind, left.value, "after-record"), (kind.kind, entered.value, "after-intent"))
    return written


async def create_once(context: Context, kind: ResourceKind[Any], body: dict[str, Any]) -> bool:
    """Create an object whose name says what it is for; False where it is there already.

    Raises:
        UnreachableError: the nodes are out of step, so nothing begins.
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
