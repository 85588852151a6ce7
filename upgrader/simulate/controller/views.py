"""The input of decisions, made from simulated state as reconcile makes it from objects."""

from collections.abc import Sequence

from upgrader.core.checkpoint_request.request_machine import OVER, SWAPPING
from upgrader.core.checkpoint_request.request_state import OwnerFacts, RequestView
from upgrader.core.constraints.blockers import IndexedSnapshot as Indexed
from upgrader.core.constraints.gang_blockers import gang_blockers
from upgrader.core.gpu_stack.drift import find_drift
from upgrader.core.model.fleet import Gang, Snapshot, Target
from upgrader.core.model.phases import NodePhase, RequestPhase, UpgradeReason
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.node_upgrade.upgrade_machine import BEFORE_OFF
from upgrader.core.node_upgrade.upgrade_state import NodeView, OperandFacts, OtherPod, RequestFacts, is_left_on_node
from upgrader.core.workloads import placement
from upgrader.simulate import stack
from upgrader.simulate.controller.objects import Request, SimGroup, Upgrade
from upgrader.simulate.job import HAS_PODS, NAMESPACE, JobState, SimulatedJob
from upgrader.simulate.world import SimulatedCluster

ACKNOWLEDGED = frozenset({RequestPhase.PARKED, RequestPhase.STOPPING, RequestPhase.STOPPED})
_READ = frozenset({RequestPhase.REQUESTED, RequestPhase.STOPPING})
"""Phases in which answers are read; in other phases the recorded answers count."""


def node_view(world: SimulatedCluster, upgrade: Upgrade, members: frozenset[str]) -> NodeView:
    """A node upgrade with its surroundings; `members`: pods that acknowledged or are being stopped."""
    node = world.nodes.get(upgrade.node)
    if node is not None and node.uid != upgrade.node_uid:
        node = None
    off = upgrade.phase is NodePhase.UNLOADING
    replaced = upgrade.operands // 2 if off else 1
    return NodeView(
        name=upgrade.uid,
        uid=upgrade.uid,
        reason=UpgradeReason.ROLLOUT,
        phase=upgrade.phase,
        phase_since=upgrade.since,
        deadline=upgrade.deadline,
        reverting=upgrade.reverting,
        failure=upgrade.failure,
        node=node.node_facts() if node is not None else None,
        source_key=upgrade.source[0],
        driver_key=upgrade.goal[0],
        plugin_key=stack.PLUGIN_KEY,
        revision=upgrade.goal[1],
        expected_gpus=upgrade.gpus,
        prepare=upgrade.prepare,
        upgrade=upgrade.upgrading,
        validate=upgrade.validate,
        driver=OperandFacts(pods=replaced, ready=int(upgrade.driver_ready)),
        plugin=OperandFacts(pods=replaced, ready=int(upgrade.plugin_ready)),
        others=tuple(_other_pods(world, upgrade.node, members)) if node is not None else (),
    )


def _other_pods(world: SimulatedCluster, node: str, members: frozenset[str]) -> list[OtherPod]:
    jobs = [world.jobs[name] for name in world.nodes[node].used]
    return [
        OtherPod(
            name=f"{job.spec.name}-{index}",
            namespace=NAMESPACE,
            uid=job.pod_uid(index),
            member=job.pod_uid(index) in members,
        )
        for job in jobs
        for index, place in enumerate(job.places)
        if place == node
    ]


def acknowledged_pods(requests: Sequence[Request]) -> frozenset[str]:
    """Uids of pods that acknowledged or are being stopped."""
    return frozenset(uid for request in requests if request.phase in ACKNOWLEDGED for uid in request.members)


def request_view(world: SimulatedCluster, request: Request) -> RequestView:
    """A request with its Job and pods."""
    job = world.jobs[request.job]
    present = job.gang_facts(world.queue.begin, world.skew).members if job.state in HAS_PODS else ()
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
        answers=(job.member_answers() or request.acks) if request.phase in _READ else request.acks,
        owner=job.owner_facts() if job.state is not JobState.OVER else OwnerFacts(finished=True, stopped_by=job.record),
        acknowledged_step=request.step,
        progress=_progress_steps(world, job, request),
        forbidden=f"PodDisruptionBudget {job.pdb} does not allow to disrupt it" if job.pdb else "",
    )


def _progress_steps(world: SimulatedCluster, job: SimulatedJob, request: Request) -> tuple[int | None, ...]:
    if request.phase is not RequestPhase.RESTARTING:
        return ()
    if job.state is not JobState.TRAINING:
        return (None,) * len(job.places)
    return (job.step_at(world.now),) * len(job.places)


def request_facts(world: SimulatedCluster, request: Request, view: RequestView) -> RequestFacts:
    """A request as its nodes read it."""
    job = world.jobs[request.job]
    placed = job.state in HAS_PODS and job.state is not JobState.ENDING
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
    world: SimulatedCluster,
    target: Target,
    strategy: StrategyFacts,
    stopped: frozenset[str],
    gangs: Sequence[Gang],
    group: SimGroup,
) -> str:
    """A blocker that appeared after the start of the batch and prevents the request to a gang."""
    names = {*group.nodes, *(node for gang in gangs for node in gang.nodes)}
    snapshot = Snapshot(
        cluster="simulated",
        taken_at=world.queue.time,
        nodes=tuple(world.nodes[name].node_facts() for name in sorted(names) if name in world.nodes),
        gangs=tuple(gangs),
        images=world.images,
        pdb_blocked={job.name: job.pdb for job in world.jobs.values() if job.pdb},
    )
    indexed = Indexed.of(
        snapshot, target, strategy, drift=find_drift(snapshot, target), already=frozenset(), stopped_gangs=stopped
    )
    return next((message for gang in gangs for _, message in gang_blockers(indexed, gang)), "")


def fits_idle_nodes(world: SimulatedCluster, request: Request, group: SimGroup) -> bool:
    """Whether the gang fits on idle nodes of the target revision, one for each of its nodes."""
    own = [upgrade for upgrade in group.upgrades if upgrade.phase in SWAPPING and not upgrade.reverting]
    targets = {upgrade.target[1] for upgrade in group.upgrades}
    if len(own) < len(group.upgrades) or len(targets) != 1 or world.waiting:
        return False
    size, (target,) = max(upgrade.gpus for upgrade in own), targets
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
    world: SimulatedCluster,
    group: SimGroup,
    views: Sequence[NodeView],
    replaced: frozenset[str],
    request: Request,
) -> placement.Placement:
    """The nodes on which a gang may restart: of the replaced revisions or of the new one, never both."""
    if request.restarted_early:
        return placement.Placement(left_behind=tuple(sorted(replaced)), settled=True)
    existing = [view for view in views if view.phase is not NodePhase.NODE_DELETED]
    targets = sorted({upgrade.target[1] for upgrade in group.upgrades})
    if any(view.phase not in OVER and view.phase not in BEFORE_OFF for view in existing):
        revisions = (*targets, *sorted(replaced))
        chosen = placement.refuge_revision([node.node_facts() for node in world.nodes.values()], revisions)
        chosen = chosen or (sorted(replaced)[:1] if existing[0].reverting else targets or [""])[0]
        return placement.Placement(
            left_behind=tuple(revision for revision in revisions if revision != chosen), settled=True
        )
    forward = all(view.phase in {NodePhase.RELEASING, NodePhase.SUCCEEDED} and not view.failure for view in existing)
    here = "" if any(is_left_on_node(view) for view in existing) else group.name
    return placement.Placement(left_behind=tuple(sorted(replaced)) if forward else tuple(targets), group=here)
