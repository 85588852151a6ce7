"""The check, from watches only, that a step of a group would do nothing: then no request is sent to the API server.

Most steps of an open group find that it waits: for a pod, a user, a training job. Watches may be stale, so they
cause no act: the step reads everything again before it acts, and at the latest after `looks.ANEW`.
"""

from collections.abc import Mapping

import msgspec

from upgrader.core.checkpoint_request import request_machine
from upgrader.core.model.phases import RequestPhase, is_final
from upgrader.core.node_upgrade import upgrade_machine
from upgrader.reconcile.checkpoint_request import request_reconciler
from upgrader.reconcile.checkpoint_request.request_reading import LiveRequest
from upgrader.reconcile.node_upgrade import upgrade_actions
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults
from upgrader.reconcile.upgrade_group import early_restart
from upgrader.reconcile.upgrade_group.group_view import (
    GroupNodes,
    OpenGroup,
    gang_growth,
    group_of_gang,
    read_nodes,
    unready_gangs,
    view_group,
)


async def only_waits(
    context: Context, group: OpenGroup, live_requests: Mapping[str, LiveRequest], *, crowded: bool
) -> bool:
    """Whether a step would neither act nor write for any gang or node of a group.

    Args:
        context: ports.
        group: group of the step.
        live_requests: its requests by name, read for this step.
        crowded: whether another gang is being placed on idle nodes now.
    """
    now = context.clock.now()
    if context.watched is None or not context.looks.recent(group.name, now):
        context.looks.keep(group.name, now)
        return False
    if any(
        not is_final(request.status.phase) and request.metadata.name not in live_requests for request in group.requests
    ):
        return False  # a request could not be read
    faults = Faults(kind="")
    seen = await read_nodes(context, group, faults, context.watched)
    if seen.unread or not (
        _gangs_wait(context, group, live_requests, seen, crowded=crowded)
        and _nodes_wait(context, group, live_requests, seen)
    ):
        context.looks.keep(group.name, now)
        return False
    return True


def _gangs_wait(
    context: Context, group: OpenGroup, live_requests: Mapping[str, LiveRequest], seen: GroupNodes, *, crowded: bool
) -> bool:
    refusals = unready_gangs(context, group, live_requests, seen)
    for name, live in live_requests.items():
        if is_final(live.view.phase):
            continue
        looked_for = live.view.phase is RequestPhase.STOPPED and not crowded and not group.undo
        if live.unread or (looked_for and early_restart.is_look_due(context, group.upgrades)):
            return False
        beside = msgspec.structs.replace(
            group_of_gang(group, seen),
            siblings=tuple(request.status.phase for request in group.requests if request.metadata.name != name),
            forbidden=next((why for fellow, why in refusals.items() if fellow != name and why), ""),
            grown=gang_growth(context, group, live),
        )
        decision = request_machine.decide(live.view, beside, context.clock.now())
        if not request_reconciler.changes_nothing(context, live, beside, decision, group.ask_until):
            return False
    return True


def _nodes_wait(context: Context, group: OpenGroup, live_requests: Mapping[str, LiveRequest], seen: GroupNodes) -> bool:
    facts, now = view_group(group, live_requests, seen), context.clock.now()
    return all(
        is_final(view.phase)
        or upgrade_actions.changes_nothing(context, upgrade, view, upgrade_machine.decide(view, facts, now))
        for upgrade, view in zip(group.upgrades, seen.views, strict=True)
    )
