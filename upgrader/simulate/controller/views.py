"""The values that the decisions work on, made from simulated state as reconcile makes them from what it reads."""

from collections.abc import Sequence

from upgrader.core.checkpoint_request.request_machine import OVER, SWAPPING
from upgrader.core.checkpoint_request.request_state import OwnerFacts, RequestView
from upgrader.core.constraints.blockers import World as Indexed
from upgrader.core.constraints.gang_blockers import gang_blockers
from upgrader.core.gpu_stack.drift import find_drift
from upgrader.core.model.fleet import Gang, Snapshot, Target
from upgrader.core.model.phases import NodePhase, RequestPhase, UpgradeReason
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.node_upgrade.upgrade_machine import BEFORE_OFF
from upgrader.core.node_upgrade.upgrade_state import NodeView, OperandFacts, OtherPod, RequestFacts, is_left_on_node
from upgrader.core.workloads import placement
from upgrader.simulate import stack
from upgrader.simulate.controller.objects import Request, Upgrade, UpgradeGroup
from upgrader.simulate.job import HAS_PODS, NAMESPACE, Job, Life
from upgrader.simulate.world import World

ACKNOWLEDGED = frozenset({RequestPhase.PARKED, RequestPhase.STOPPING, RequestPhase.STOPPED})
_READ = frozenset({RequestPhase.REQUESTED, RequestPhase.STOPPING})
"""Phases in which answers are read; otherwise those that were recorded count."""


def node_view(world: World, upgrade: Upgrade, members: frozenset[str]) -> NodeView:
    """A node upgrade with its surroundings; `members`: pods that acknowledged or are being stopped."""
    node = world.nodes.get(upgrade.node)
    if node is not None and node.uid != upgrade.node_uid:
        node = None
    off = upgrade.phase is NodePhase.UNLOADING
    left = upgrade.operands // 2 if off else 1
    return NodeView(
        name=upgrade.uid,
        uid=upgrade.uid,
        reason=UpgradeReason.ROLLOUT,
        phase=upgrade.phase,
        phase_since=upgrade.since,
        deadline=upgrade.deadline,
        reverting=upgrade.reverting,
        failure=upgrade.failure,
        node=node.facts() if node is not None else None,
        source_key=upgrade.source[0],
        driver_key=upgrade.goal[0],
        plugin_key=stack.PLUGIN_KEY,
        revision=upgrade.goal[1],
        expected_gpus=upgrade.gpus,
        prepare=upgrade.prepare,
        upgrade=upgrade.upgrading,
        validate=upgrade.validate,
        driver=OperandFacts(pods=left, ready=int(upgrade.driver_ready)),
        plugin=OperandFacts(pods=left, ready=int(upgrade.plugin_ready)),
        others=tuple(_other_pods(world, upgrade.node, members)) if node is not None else (),
    )


def _other_pods(world: World, node: str, members: frozenset[str]) -> list[OtherPod]:
    jobs = [world.jobs[name] for name in world.nodes[node].used]
    return [
        OtherPod(name=f"{job.spec.name}-{at}", namespace=NAMESPACE, uid=job.uid(at), member=job.uid(at) in members)
        for job in jobs
        for at, place in enumerate(job.places)
        if place == node
    ]


def acknowledged_pods(requests: Sequence[Request]) -> frozenset[str]:
    """Uids of pods that acknowledged or are being stopped."""
    return frozenset(uid for request in requests if request.phase in ACKNOWLEDGED for uid in request.members)


def request_view(world: World, request: Request) -> RequestView:
    """A request with its Job and pods."""
    job = world.jobs[request.job]
    present = job.gang(world.agenda.begin, world.skew).members if job.life in HAS_PODS else ()
    return RequestView(
        name=request.name,
        gang=request.gang,
        lane=request.lane,
        timeout_seconds=request.timeout_seconds,
        admitted_at=request.admitted_at,
        phase=request.phase,
        deadline=request.deadline,
        request_id=request.request_id,
        asked_at=request.asked_at,
        stop_before=request.stop_before,
        restart_by=request.restart_by,
        members=request.members,
        present=present,
        answers=(job.answers() or request.acks) if request.phase in _READ else request.acks,
        owner=job.owner() if job.life is not Life.OVER else OwnerFacts(finished=True, stopped_by=job.record),
        acknowledged_step=request.step,
        progress=_progress_steps(world, job, request),
        forbidden=f"PodDisruptionBudget {job.pdb} does not allow to disrupt it" if job.pdb else "",
    )


def _progress_steps(world: World, job: Job, request: Request) -> tuple[int | None, ...]:
    if request.phase is not RequestPhase.RESTARTING:
        return ()
    if job.life is not Life.TRAINING:
        return (None,) * len(job.places)
    return (job.step(world.now),) * len(job.places)


def request_facts(world: World, request: Request, view: RequestView) -> RequestFacts:
    """A request as its nodes see it."""
    job = world.jobs[request.job]
    placed = job.life in HAS_PODS and job.life is not Life.ENDING
    bound = request.restarted_early or (placed and not job.suspended and len(job.places) >= view.owner.wanted)
    return RequestFacts(
        name=request.name,
        gang=request.gang,
        phase=view.phase,
        bound=bound,
        message=request.message,
        deadline=request.deadline,
    )


def late_blocker(
    world: World,
    target: Target,
    strategy: StrategyFacts,
    stopped: frozenset[str],
    gangs: Sequence[Gang],
    group: UpgradeGroup,
) -> str:
    """What came between the start of the batch and now, and keeps one of the gangs from being asked."""
    names = {*group.nodes, *(node for gang in gangs for node in gang.nodes)}
    seen = Snapshot(
        cluster="simulated",
        taken_at=world.agenda.time,
        nodes=tuple(world.nodes[name].facts() for name in sorted(names) if name in world.nodes),
        gangs=tuple(gangs),
        images=world.images,
        pdb_blocked={job.name: job.pdb for job in world.jobs.values() if job.pdb},
    )
    indexed = Indexed.of(
        seen, target, strategy, drift=find_drift(seen, target), already=frozenset(), stopped_gangs=stopped
    )
    return next((message for gang in gangs for _, message in gang_blockers(indexed, gang)), "")


def fits_idle_nodes(world: World, request: Request, group: UpgradeGroup) -> bool:
    """Whether the gang fits on idle nodes of the target revision, one for each node that it was on."""
    own = [one for one in group.upgrades if one.phase in SWAPPING and not one.reverting]
    targets = {one.target[1] for one in group.upgrades}
    if len(own) < len(group.upgrades) or len(targets) != 1 or world.waiting:
        return False
    size, (target,) = max(one.gpus for one in own), targets
    free = [
        node
        for node in world.nodes.values()
        if node.revision == target
        and not node.used
        and node.in_service
        and not node.claimed_by
        and node.spec.gpus >= size
    ]
    return len(free) >= len(set(world.jobs[request.job].homes))


def restart_placement(
    world: World, group: UpgradeGroup, views: Sequence[NodeView], left: frozenset[str], request: Request
) -> placement.Placement:
    """Where a gang may be restarted: on old revisions or on the new one, never on both; as reconcile's groups do."""
    if request.restarted_early:
        return placement.Placement(left_behind=tuple(sorted(left)), settled=True)
    there = [view for view in views if view.phase is not NodePhase.NODE_DELETED]
    targets = sorted({upgrade.target[1] for upgrade in group.upgrades})
    if any(view.phase not in OVER and view.phase not in BEFORE_OFF for view in there):
        known = (*targets, *sorted(left))
        chosen = placement.refuge_revision([node.facts() for node in world.nodes.values()], known)
        chosen = chosen or (sorted(left)[:1] if there[0].reverting else targets or [""])[0]
        return placement.Placement(left_behind=tuple(one for one in known if one != chosen), settled=True)
    forward = all(view.phase in {NodePhase.RELEASING, NodePhase.SUCCEEDED} and not view.failure for view in there)
    here = "" if any(is_left_on_node(view) for view in there) else group.name
    return placement.Placement(left_behind=tuple(sorted(left)) if forward else tuple(targets), group=here)
