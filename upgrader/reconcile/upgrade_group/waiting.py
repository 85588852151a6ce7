"""Whether a step of a group would do nothing, as far as watches show: then nothing is read from the API server.

Most looks at what is under way find that it waits: for a pod, a person, a training job. What watches show may be old,
so nothing is done by it: the step reads everything anew before it acts, and at the latest after `looks.ANEW`.
"""

from collections.abc import Mapping

import msgspec

from upgrader.core.checkpoint_request import request_machine
from upgrader.core.model.phases import RequestPhase, ends
from upgrader.core.node_upgrade import upgrade_machine
from upgrader.reconcile.checkpoint_request import request_reconciler
from upgrader.reconcile.checkpoint_request.request_reading import LiveRequest
from upgrader.reconcile.node_upgrade import upgrade_actions
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_group import early_restart
from upgrader.reconcile.upgrade_group.group_view import (
    Seen,
    UpgradeGroup,
    around,
    grown,
    read_nodes,
    unready,
    view_group,
)


async def only_waits(context: Context, group: UpgradeGroup, found: Mapping[str, LiveRequest], *, crowded: bool) -> bool:
    """Whether nothing is to be done or written for any gang or node of a group.

    Args:
        context: ports.
        group: that has its step.
        found: its requests by name, read for this step.
        crowded: whether another gang is being placed on free nodes now.
    """
    now = context.clock.now()
    if context.watched is None or not context.looks.recent(group.name, now):
        context.looks.keep(group.name, now)
        return False
    if any(not ends(one.status.phase) and one.metadata.name not in found for one in group.requests):
        return False  # one of them could not be read
    faults = Faults(kind="")
    seen = await read_nodes(context, group, faults, context.watched)
    if seen.unread or not (
        _gangs_wait(context, group, found, seen, crowded=crowded) and _nodes_wait(context, group, found, seen)
    ):
        context.looks.keep(group.name, now)
        return False
    return True


def _gangs_wait(
    context: Context, group: UpgradeGroup, found: Mapping[str, LiveRequest], seen: Seen, *, crowded: bool
) -> bool:
    refusals = unready(context, group, found, seen)
    for name, live in found.items():
        if ends(live.view.phase):
            continue
        looked_for = live.view.phase is RequestPhase.STOPPED and not crowded and not group.undo
        if live.unread or (looked_for and early_restart.due(context, group.upgrades)):
            return False
        beside = msgspec.structs.replace(
            around(group, seen),
            siblings=tuple(one.status.phase for one in group.requests if one.metadata.name != name),
            forbidden=next((why for fellow, why in refusals.items() if fellow != name and why), ""),
            grown=grown(context, group, live),
        )
        decision = request_machine.decide(live.view, beside, context.clock.now())
        if not request_reconciler.stays(context, live, decision, group.ask_until):
            return False
    return True


def _nodes_wait(context: Context, group: UpgradeGroup, found: Mapping[str, LiveRequest], seen: Seen) -> bool:
    facts, now = view_group(group, found, seen), context.clock.now()
    return all(
        ends(view.phase) or upgrade_actions.stays(context, upgrade, view, upgrade_machine.decide(view, facts, now))
        for upgrade, view in zip(group.upgrades, seen.views, strict=True)
    )
