"""One step of everything that is under way: reads the visits and conversations of each closure, decides, acts, records.

Reads are made anew for each closure in each step, right before its decisions; what a conflict shows as outdated is left
to the next step.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.resources import NAMESPACES
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core import conversation, steering, timing, visit
from upgrader.core.conversation import LEAP_FROGGED, OVER
from upgrader.core.conversation_facts import GangClosure, GangDecision
from upgrader.core.errors import REFUSED, ConflictError, NotFoundError, ThrottledError, UpgraderError
from upgrader.core.phases import NodePhase, RequestPhase, ends
from upgrader.core.visit_facts import ClosureView, NodeView, RequestFacts, kept, pods_left
from upgrader.reconcile import forced, observe, spares
from upgrader.reconcile.context import Context
from upgrader.reconcile.isolation import Faults
from upgrader.reconcile.pod_facts import declared
from upgrader.reconcile.talks import Talk, advance, read_talk
from upgrader.reconcile.talks import say as say_of_talk
from upgrader.reconcile.visit_view import MayGo, blind_view, read_visit
from upgrader.reconcile.visits import perform
from upgrader.reconcile.visits import say as say_of_visit

log = structlog.get_logger()

ACKNOWLEDGED = frozenset({RequestPhase.PARKED, RequestPhase.STOPPING, RequestPhase.STOPPED})


@dataclass(kw_only=True)
class Crowd:
    """What the closures of one step share: one gang at a time is placed on free nodes."""

    taken: bool
    """Whether a gang of the plan is being placed already: another must not count on the same free nodes."""
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Closures have their steps side by side: one looks for free nodes, and records that, before another looks."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The nodes of a closure in this step."""

    views: tuple[NodeView, ...]
    """In the order of the visits. One that could not be read has its phase and nothing of its node."""
    unread: Mapping[str, str]
    """Why, by the name of the visit."""


@dataclass(frozen=True, kw_only=True)
class Closure:
    """A closure under way, as its plan (or, without one, its stack) knows it."""

    name: str
    resource: str
    """Extended resource whose devices are its GPUs."""
    visits: Sequence[NodeUpgrade]
    requests: Sequence[CheckpointRequest] = ()
    gangs: int = 0
    undo: bool = False
    ask_until: str | None = None
    revisions_left: Sequence[str] = ()
    refused: str = ""
    """Why its gangs cannot be asked now; then it is let go."""
    expendable: frozenset[str] = frozenset()
    """Gangs that the approval lets us stop without an acknowledgement."""
    expended: frozenset[str] = frozenset()
    """Uids of pods that nothing makes again, which are evicted as the approval allows."""
    waited_for: frozenset[str] | None = frozenset()
    """Uids of pods that the plan waits for although their owner replaces them; None: not known, so none is evicted."""
    turns: frozenset[str] | None = None
    """Requests that may write a checkpoint now; None: there are no lanes."""
    lane_width: int = 0
    shares: Mapping[str, int] = field(default_factory=dict)
    """GPUs of each gang as its batch has counted them; a gang that is not named may have any."""

    @property
    def open(self) -> bool:
        """Whether anything of it has not ended."""
        return not (
            all(ends(one.status.phase) for one in self.visits) and all(ends(one.status.phase) for one in self.requests)
        )


async def step(context: Context, closure: Closure, faults: Faults, crowd: Crowd) -> None:
    """One step of one closure: its gangs first, so that nodes see what became of them at the next look.

    What goes wrong with one gang or node is noted in `faults`; the others have their step.
    """
    talks = await _read(context, closure, faults)
    seen = await _views(context, closure, faults)
    unready = _unready(context, closure, talks, seen)
    for name, talk in talks.items():
        if not ends(talk.view.phase):
            # All or none: where a fellow cannot be stopped there is no visit, and no gang is stopped in vain.
            forbidden = next((why for fellow, why in unready.items() if fellow != name and why), "")
            decision = None
            waits = talk.view.phase is RequestPhase.STOPPED and not closure.undo
            with faults.contained(talk.view.gang):
                async with crowd.gate if waits else nullcontext():
                    decision = await _converse(context, closure, talk, seen, crowd, forbidden=forbidden)
            if decision is None:
                unready[name] = f"{talk.view.gang} is looked at again"
    facts = ClosureView(
        nodes=seen.views,
        requests=tuple(_facts(one, talks.get(one.metadata.name)) for one in closure.requests),
        gangs=closure.gangs,
        undo=closure.undo,
        refused=closure.refused,
    )
    for upgrade, view in zip(closure.visits, seen.views, strict=True):
        if not ends(view.phase) and view.name not in seen.unread:
            with faults.contained(f"node {upgrade.spec.node.name}"):
                await _walk(context, closure, upgrade, view, facts)


async def _read(context: Context, closure: Closure, faults: Faults) -> dict[str, Talk]:
    """Conversations by name; one whose owner cannot be read is left as it is, and keeps nobody else."""
    talks: dict[str, Talk] = {}
    for request in closure.requests:
        name = request.metadata.name
        with faults.contained(request.spec.gang):
            try:
                talks[name] = await read_talk(context, request, closure.resource)
            except REFUSED as error:
                if not error.refused:
                    raise
                await _refused(error, name, partial(say_of_talk, context, request, error))
    return talks


async def _views(context: Context, closure: Closure, faults: Faults) -> Seen:
    """The nodes; of one that cannot be read only the phase is known: it stays where it is, its gangs go on."""
    members = frozenset(
        member.uid for one in closure.requests if one.status.phase in ACKNOWLEDGED for member in one.spec.members
    )
    spaces = {one.metadata.name: declared(one.metadata) for one in await context.cluster.list(NAMESPACES)}
    free = await forced.undeclared(context, closure.visits)
    may_go = MayGo(forced=free, expended=closure.expended, waited_for=closure.waited_for)
    views: list[NodeView] = []
    unread: dict[str, str] = {}
    for upgrade in closure.visits:
        view: NodeView | None = None
        name = upgrade.spec.node.name
        with faults.contained(f"node {name}"):
            view = await read_visit(context, upgrade, members, spaces, may_go)
        if view is None:
            unread[upgrade.metadata.name] = f"node {name} cannot be read"
        views.append(view if view is not None else blind_view(upgrade))
    return Seen(views=tuple(views), unread=unread)


def _facts(request: CheckpointRequest, talk: Talk | None) -> RequestFacts:
    bound = talk is not None and talk.bound
    return RequestFacts(
        name=request.metadata.name,
        gang=request.spec.gang,
        phase=request.status.phase,
        bound=bound or request.status.leap_frogged,  # it does not come back to these nodes
        message=request.status.message,
        nodes=frozenset(one.node for one in request.spec.members),
    )


def _around(closure: Closure, seen: Seen) -> GangClosure:
    """The closure as all of its gangs see it."""
    return GangClosure(
        nodes=tuple(view.phase for view in seen.views),
        undo=closure.undo and all(view.phase in visit.BEFORE_OFF or ends(view.phase) for view in seen.views),
        ask_until=timing.parse(closure.ask_until) if closure.ask_until else None,
        pods_left=next(iter(seen.unread.values()), "") or pods_left(seen.views),
        expendable=closure.expendable,
        turns=closure.turns,
    )


def _unready(context: Context, closure: Closure, talks: Mapping[str, Talk], seen: Seen) -> dict[str, str]:
    """Why each gang could not be stopped now, by the name of its request; empty where it could be, or need not be."""
    now = context.clock.now()
    found = {}
    for request in closure.requests:
        talk = talks.get(request.metadata.name)
        cannot = "" if ends(request.status.phase) else f"{request.spec.gang} cannot be read"
        if talk is not None:
            around = msgspec.structs.replace(_around(closure, seen), grown=_grown(context, closure, talk))
            cannot = conversation.unready(talk.view, around, now)
        found[request.metadata.name] = cannot
    return found


def _grown(context: Context, closure: Closure, talk: Talk) -> str:
    """That members listed for this very step are more than the batch has counted, or on nodes that it does not take.

    A gang may also run on nodes that need no visit: those have the closure's target revision.
    """
    if talk.view.phase is not RequestPhase.STOPPING:
        return ""
    members = [one for one in talk.view.present if one.gpus and one.phase not in {"Succeeded", "Failed"}]
    gpus, counted = sum(one.gpus for one in members), closure.shares.get(talk.view.gang)
    if counted is not None and gpus > counted:
        return f"it has {gpus} GPUs now, {counted} when the batch was started"
    taken = {one.spec.node.name for one in closure.visits}
    targets = {"", *(one.spec.target.revision for one in closure.visits)}
    nodes = context.nodes.snapshot() or {}
    for name in sorted({one.node for one in members if one.node in nodes} - taken):
        if nodes[name].metadata.labels.get(names.LABEL_REVISION, "") not in targets:
            return f"it also runs on node {name}, which its closure does not take"
    return ""


async def _converse(
    context: Context,
    closure: Closure,
    talk: Talk,
    seen: Seen,
    crowd: Crowd,
    *,
    forbidden: str,
) -> GangDecision | None:
    """One step with one gang; None where it was refused, or something changed meanwhile."""
    waits = talk.view.phase is RequestPhase.STOPPED and not crowd.taken and not closure.undo
    around = msgspec.structs.replace(
        _around(closure, seen),
        siblings=tuple(one.status.phase for one in closure.requests if one.metadata.name != talk.view.name),
        forbidden=forbidden,
        grown=_grown(context, closure, talk),
        spares=waits and await spares.enough(context, talk.request, talk.owner, closure.visits, closure.resource),
    )
    placing = partial(where, context, closure, seen.views, ahead=talk.request.status.leap_frogged)
    try:
        decision = await advance(
            context, talk, around, where=placing, ask_until=closure.ask_until, lane_width=closure.lane_width
        )
    except (ConflictError, NotFoundError) as error:
        log.info("looks again", request=talk.view.name, because=error.brief)
        return None
    except REFUSED as error:
        await _refused(error, talk.view.name, partial(say_of_talk, context, talk.request, error))
        return None
    if decision.phase is not talk.view.phase:
        log.info("conversation", gang=talk.view.gang, phase=decision.phase.value, message=decision.message)
    crowd.taken |= decision.reason == LEAP_FROGGED
    return decision


def where(context: Context, closure: Closure, views: Sequence[NodeView], *, ahead: bool = False) -> steering.Placement:
    """Where a gang of this closure may be restarted: on the old revisions or on the new one, never on both.

    After the visits: on its own nodes, whose taint it tolerates, and on others of their revision; NotIn also matches a
    node whose label comes when it is given back. Before they are over, or where a node is kept: on nodes in service;
    `ahead`: on those of the target revision only.
    """
    if ahead:
        return steering.Placement(left_behind=tuple(closure.revisions_left), settled=True)
    there = [view for view in views if view.phase is not NodePhase.GONE]
    left = tuple(closure.revisions_left)
    targets = {one.spec.target.revision for one in closure.visits}
    if any(view.phase not in OVER and view.phase not in visit.BEFORE_OFF for view in there):
        known = (*sorted(targets), *left)
        nodes = [observe.node_facts(one, closure.resource) for one in (context.nodes.snapshot() or {}).values()]
        # Where nothing is free, it is what its own nodes are on their way to.
        chosen = steering.refuge(nodes, known) or ((left[:1] if there[0].reverting else sorted(targets)) or ("",))[0]
        return steering.Placement(left_behind=tuple(one for one in known if one != chosen), settled=True)
    forward = all(view.phase in {NodePhase.RELEASING, NodePhase.SUCCEEDED} and not view.failure for view in there)
    here = "" if any(kept(view) for view in there) else closure.name
    return steering.Placement(left_behind=left if forward else tuple(sorted(targets)), closure=here)


async def _refused(error: UpgraderError, name: str, say: Callable[[], Awaitable[None]]) -> None:
    """One object's refusal stops nobody else's step; a whole API server that is away or busy does."""
    if isinstance(error, ThrottledError):
        raise error
    log.warning("refused", of=name, because=error.brief, details=error.details)
    try:
        await say()
    except (ConflictError, NotFoundError) as missed:
        log.info("looks again", of=name, because=missed.brief)


async def _walk(context: Context, closure: Closure, upgrade: NodeUpgrade, view: NodeView, facts: ClosureView) -> None:
    decision = visit.decide(view, facts, context.clock.now())
    try:
        await perform(context, upgrade, view, decision, closure.ask_until)
    except (ConflictError, NotFoundError) as error:
        log.info("looks again", visit=view.name, because=error.brief)
        return
    except REFUSED as error:
        await _refused(error, view.name, partial(say_of_visit, context, upgrade, error))
        return
    if decision.phase is not view.phase:
        log.info(
            "visit",
            node=upgrade.spec.node.name,
            phase=decision.phase.value,
            message=decision.message,
            failure=decision.failure,
        )
