"""The inputs of one step of a group: its upgrades with their nodes, its requests with their gangs.

Each step that acts reads them again for its group, right before its decisions.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import structlog

from upgrader.api import names
from upgrader.api.resources import NAMESPACES
from upgrader.api.v1alpha1 import CheckpointRequest, NodeUpgrade
from upgrader.core import timing
from upgrader.core.checkpoint_request import request_machine
from upgrader.core.checkpoint_request.request_state import GroupOfGang
from upgrader.core.errors import REFUSED, ConflictError, NotFoundError, ThrottledError, UpgraderError
from upgrader.core.model.phases import RequestPhase, is_final
from upgrader.core.model.upgrade_limits import gang_stop_seconds
from upgrader.core.node_upgrade import upgrade_machine
from upgrader.core.node_upgrade.upgrade_state import GroupView, NodeView, RequestFacts, pods_left
from upgrader.reconcile.checkpoint_request.request_reading import LiveRequest, read_request
from upgrader.reconcile.checkpoint_request.request_status import record_refusal
from upgrader.reconcile.facts.pod_facts import read_declared
from upgrader.reconcile.node_upgrade import force_requests
from upgrader.reconcile.node_upgrade.upgrade_reading import MayGo, blind_view, read_upgrade
from upgrader.reconcile.ports import Reads
from upgrader.reconcile.runtime import side_by_side
from upgrader.reconcile.runtime.context import Context
from upgrader.reconcile.runtime.isolation import Faults

log = structlog.get_logger()

NODES_AT_ONCE = 16
"""Nodes of a group that are read or stepped concurrently."""

ACKNOWLEDGED = frozenset({RequestPhase.PARKED, RequestPhase.STOPPING, RequestPhase.STOPPED})


@dataclass(frozen=True, kw_only=True)
class GroupNodes:
    """The nodes of a group in this step."""

    views: tuple[NodeView, ...]
    """In the order of the upgrades. An upgrade whose node could not be read has only its phase."""
    unread: Mapping[str, str]
    """Reasons of failed reads, by the name of the upgrade."""


@dataclass(frozen=True, kw_only=True)
class OpenGroup:
    """An open group, with the settings of its plan (or, without a plan, its stack)."""

    name: str
    resource: str
    """Extended resource whose devices are its GPUs."""
    upgrades: Sequence[NodeUpgrade]
    requests: Sequence[CheckpointRequest] = ()
    gangs: int = 0
    undo: bool = False
    ask_until: str | None = None
    revisions_left: Sequence[str] = ()
    refused: str = ""
    """Why its gangs cannot be requested now; then the group is released."""
    expendable: frozenset[str] = frozenset()
    """Gangs that the approval allows to stop without an acknowledgement."""
    expendable_pods: frozenset[str] = frozenset()
    """Uids of pods without a controller that are evicted as the approval allows."""
    waited_for: frozenset[str] | None = frozenset()
    """Uids of pods that the plan waits for although their owner replaces them; None: unknown, so none is evicted."""
    turns: frozenset[str] | None = None
    """Requests that may write a checkpoint now; None: there are no lanes."""
    lane_width: int = 0
    shares: Mapping[str, int] = field(default_factory=dict)
    """GPUs of each gang as counted by its batch; a gang without an entry may have any number."""

    @property
    def open(self) -> bool:
        """Whether any upgrade or request has not ended."""
        return not (
            all(is_final(upgrade.status.phase) for upgrade in self.upgrades)
            and all(is_final(request.status.phase) for request in self.requests)
        )


async def read_requests(context: Context, group: OpenGroup, faults: Faults) -> dict[str, LiveRequest]:
    """Requests by name; a request whose owner cannot be read is skipped, and does not delay the others."""
    live_requests: dict[str, LiveRequest] = {}
    for request in group.requests:
        name = request.metadata.name
        with faults.contained(request.spec.gang):
            try:
                live_requests[name] = await read_request(context, request, group.resource)
            except REFUSED as error:
                if not error.refused:
                    raise
                await note_refusal(error, name, partial(record_refusal, context, request, error))
    return live_requests


async def read_nodes(context: Context, group: OpenGroup, faults: Faults, reads: Reads) -> GroupNodes:
    """The nodes; an upgrade whose node cannot be read stays in its phase, and its gangs continue."""
    members = frozenset(
        member.uid
        for request in group.requests
        if request.status.phase in ACKNOWLEDGED
        for member in request.spec.members
    )
    spaces = {namespace.metadata.name: read_declared(namespace.metadata) for namespace in await reads.list(NAMESPACES)}
    free = await force_requests.undeclared_pods(context, group.upgrades)
    may_go = MayGo(forced=free, expendable=group.expendable_pods, waited_for=group.waited_for)
    views: dict[str, NodeView] = {}

    async def read(upgrade: NodeUpgrade) -> None:
        with faults.contained(f"node {upgrade.spec.node.name}"):
            views[upgrade.metadata.name] = await read_upgrade(context, upgrade, members, spaces, may_go, reads)

    await side_by_side.for_each(group.upgrades, read, NODES_AT_ONCE)
    return GroupNodes(
        views=tuple(views.get(upgrade.metadata.name) or blind_view(upgrade) for upgrade in group.upgrades),
        unread={
            upgrade.metadata.name: f"node {upgrade.spec.node.name} cannot be read"
            for upgrade in group.upgrades
            if upgrade.metadata.name not in views
        },
    )


def view_group(group: OpenGroup, live_requests: Mapping[str, LiveRequest], seen: GroupNodes) -> GroupView:
    """The group as input for decisions about its nodes."""
    return GroupView(
        nodes=seen.views,
        requests=tuple(_request_facts(request, live_requests.get(request.metadata.name)) for request in group.requests),
        gangs=group.gangs,
        undo=group.undo,
        refused=group.refused,
    )


def _request_facts(request: CheckpointRequest, live: LiveRequest | None) -> RequestFacts:
    bound = live is not None and live.is_bound
    return RequestFacts(
        name=request.metadata.name,
        gang=request.spec.gang,
        phase=request.status.phase,
        bound=bound or request.status.restarted_early,  # it does not return to these nodes
        message=request.status.message,
        deadline=timing.parse_time(request.status.deadline) if request.status.deadline else None,
        nodes=frozenset(member.node for member in request.spec.members),
    )


def group_of_gang(group: OpenGroup, seen: GroupNodes) -> GroupOfGang:
    """The group as input for decisions about its gangs."""
    return GroupOfGang(
        nodes=tuple(view.phase for view in seen.views),
        undo=group.undo
        and all(view.phase in upgrade_machine.BEFORE_OFF or is_final(view.phase) for view in seen.views),
        ask_until=timing.parse_time(group.ask_until) if group.ask_until else None,
        pods_left=next(iter(seen.unread.values()), "") or pods_left(seen.views),
        expendable=group.expendable,
        turns=group.turns,
        stop_seconds=gang_stop_seconds(upgrade.spec.limits for upgrade in group.upgrades),
    )


def unready_gangs(
    context: Context, group: OpenGroup, gangs: Mapping[str, LiveRequest], seen: GroupNodes
) -> dict[str, str]:
    """Why each gang cannot be stopped now, by the name of its request; empty if it can be or need not be."""
    now = context.clock.now()
    reasons = {}
    for request in group.requests:
        live = gangs.get(request.metadata.name)
        cannot = "" if is_final(request.status.phase) else f"{request.spec.gang} cannot be read"
        if live is not None:
            beside = msgspec.structs.replace(group_of_gang(group, seen), grown=gang_growth(context, group, live))
            cannot = request_machine.explain_unready(live.view, beside, now)
        reasons[request.metadata.name] = cannot
    return reasons


def gang_growth(context: Context, group: OpenGroup, live: LiveRequest) -> str:
    """Growth of a gang since its batch was started: more GPUs than counted, or members on other drifted nodes.

    A gang may also run on nodes that need no upgrade, which have the group's target revision.
    """
    if live.view.phase is not RequestPhase.STOPPING:
        return ""
    members = [member for member in live.view.present if member.gpus and member.phase not in {"Succeeded", "Failed"}]
    gpus, counted = sum(member.gpus for member in members), group.shares.get(live.view.gang)
    if counted is not None and gpus > counted:
        return f"it has {gpus} GPUs now, and had {counted} when the batch started"
    taken = {upgrade.spec.node.name for upgrade in group.upgrades}
    targets = {"", *(upgrade.spec.target.revision for upgrade in group.upgrades)}
    nodes = context.nodes.snapshot() or {}
    for name in sorted({member.node for member in members if member.node in nodes} - taken):
        if nodes[name].metadata.labels.get(names.LABEL_REVISION, "") not in targets:
            return f"it also runs on node {name}, which is not in its upgrade group"
    return ""


async def note_refusal(error: UpgraderError, name: str, say: Callable[[], Awaitable[None]]) -> None:
    """Record the refusal of one object without an effect on others; throttling of the API server is raised."""
    if isinstance(error, ThrottledError):
        raise error
    log.warning("object not reconciled, retried in the next step", of=name, because=error.brief, details=error.details)
    try:
        await say()
    except (ConflictError, NotFoundError) as missed:
        log.info("conflict, requeued", of=name, because=missed.brief)
