"""Whether a step of a closure would do nothing, as far as watches show: then nothing is read from the API server.

Most looks at what is under way find that it waits: for a pod, a person, a training job. What watches show may be old,
so nothing is done by it: the step reads everything anew before it acts, and at the latest after `looks.ANEW`.
"""

from collections.abc import Mapping

import msgspec

from upgrader.core import conversation, visit
from upgrader.core.phases import RequestPhase, ends
from upgrader.reconcile import spares, talks, visits
from upgrader.reconcile.closure_view import Closure, Seen, around, grown, read_nodes, unready, view_closure
from upgrader.reconcile.context import Context
from upgrader.reconcile.isolation import Faults
from upgrader.reconcile.talks import Talk


async def only_waits(context: Context, closure: Closure, found: Mapping[str, Talk], *, crowded: bool) -> bool:
    """Whether nothing is to be done or written for any gang or node of a closure.

    Args:
        context: ports.
        closure: that has its step.
        found: its conversations by name, read for this step.
        crowded: whether another gang is being placed on free nodes now.
    """
    now = context.clock.now()
    if context.watched is None or not context.looks.recent(closure.name, now):
        context.looks.keep(closure.name, now)
        return False
    if any(not ends(one.status.phase) and one.metadata.name not in found for one in closure.requests):
        return False  # one of them could not be read
    faults = Faults(kind="")
    seen = await read_nodes(context, closure, faults, context.watched)
    if seen.unread or not (
        _gangs_wait(context, closure, found, seen, crowded=crowded) and _nodes_wait(context, closure, found, seen)
    ):
        context.looks.keep(closure.name, now)
        return False
    return True


def _gangs_wait(context: Context, closure: Closure, found: Mapping[str, Talk], seen: Seen, *, crowded: bool) -> bool:
    refusals = unready(context, closure, found, seen)
    for name, talk in found.items():
        if ends(talk.view.phase):
            continue
        looked_for = talk.view.phase is RequestPhase.STOPPED and not crowded and not closure.undo
        if talk.unread or (looked_for and spares.due(context, closure.visits)):
            return False
        beside = msgspec.structs.replace(
            around(closure, seen),
            siblings=tuple(one.status.phase for one in closure.requests if one.metadata.name != name),
            forbidden=next((why for fellow, why in refusals.items() if fellow != name and why), ""),
            grown=grown(context, closure, talk),
        )
        decision = conversation.decide(talk.view, beside, context.clock.now())
        if not talks.stays(context, talk, decision, closure.ask_until):
            return False
    return True


def _nodes_wait(context: Context, closure: Closure, found: Mapping[str, Talk], seen: Seen) -> bool:
    facts, now = view_closure(closure, found, seen), context.clock.now()
    return all(
        ends(view.phase) or visits.stays(context, upgrade, view, visit.decide(view, facts, now))
        for upgrade, view in zip(closure.visits, seen.views, strict=True)
    )
