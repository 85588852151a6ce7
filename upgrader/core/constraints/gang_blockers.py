"""Blockers of a gang: why it is not stopped now. Each check covers one reason."""

from collections.abc import Callable

from upgrader.core.constraints.blockers import BlockedReason, Found, IndexedSnapshot
from upgrader.core.model.fleet import Gang
from upgrader.core.naming import list_names
from upgrader.core.workloads import placement
from upgrader.core.workloads.owner_kinds import OwnerKind, owner_kind

_GUIDE = "docs/guides/job-authors/checkpointing.md"


def gang_blockers(world: IndexedSnapshot, gang: Gang) -> list[Found]:
    """Every reason why a gang is not requested to checkpoint and stopped now, so that none of its nodes is upgraded."""
    undeclared = _not_declared(world, gang)
    if undeclared is not None:
        blockers = [undeclared]  # it gets no request and no stop: the plan waits for its end
    else:
        blockers = [blocker for check in _CHECKS if (blocker := check(world, gang)) is not None]
    return _with_reboot(world, gang, blockers)


def eviction_blockers(world: IndexedSnapshot, gang: Gang) -> list[Found]:
    """Every reason why pods are not evicted now, for owners that replace their pods one by one."""
    blockers = (check(world, gang) for check in (_waited_for, _resource_not_offered, _has_veto, _pdb_forbids))
    return _with_reboot(world, gang, [blocker for blocker in blockers if blocker is not None])


def _with_reboot(world: IndexedSnapshot, gang: Gang, blockers: list[Found]) -> list[Found]:
    """The same reasons; for a gang without GPUs their sentences state why its nodes cannot be upgraded around it."""
    if gang.gpus or not blockers:
        return blockers
    ended = [member for member in gang.members if member.node in world.emptied]
    pods, nodes = (list_names(sorted(names)) for names in ({pod.pod for pod in ended}, {pod.node for pod in ended}))
    what = _describe_end({member.node for member in ended}, world)
    why = f"It has no GPUs, but {what} of {nodes} would end {pods}"
    freed = gang.replicated or gang.name in world.strategy.expendable
    way = "." if freed else "; move these pods, or name it expendable in the approval."
    return [(reason, f"{message} {why}{way}") for reason, message in blockers]


def _describe_end(nodes: set[str], world: IndexedSnapshot) -> str:
    """What ends all pods on some nodes."""
    if nodes <= world.rebooted:
        return "the reboot"
    if nodes <= world.perhaps_rebooted:
        return "a reboot, in case the driver cannot be unloaded,"
    return "a change of the kubelet's settings"


def _not_declared(world: IndexedSnapshot, gang: Gang) -> Found | None:
    if gang.name in world.strategy.expendable:
        return None  # the approval names it: it is stopped with or without a checkpoint method
    if gang.method == "none":
        return (
            BlockedReason.GANG_CANNOT_CHECKPOINT,
            f"{gang.name} declares that it cannot checkpoint; the plan waits until it ends.",
        )
    if gang.method:
        return None
    why = gang.undeclared_because or "It declares no checkpoint method."
    return (
        BlockedReason.GANG_UNDECLARED,
        f"The plan waits until {gang.name} ends. {why} See {_GUIDE}.",
    )


def _waited_for(world: IndexedSnapshot, gang: Gang) -> Found | None:
    return waited_for(gang) if gang.name in world.strategy.wait_for else None


def waited_for(gang: Gang) -> Found:
    """That the plan waits for the pods of a replicated owner instead of evicting them."""
    return (
        BlockedReason.WAITED_FOR,
        (
            f"The plan waits until no pod of {gang.name} runs on these nodes (spec.checkpoint.waitFor); move its pods, "
            "or remove it from that list to have its pods evicted."
        ),
    )


def _already_stopped(world: IndexedSnapshot, gang: Gang) -> Found | None:
    if gang.name in world.stopped_gangs:
        return (
            BlockedReason.GANG_ALREADY_STOPPED,
            (
                f"{gang.name} was already stopped by this plan and runs on nodes that are not upgraded. The plan "
                "waits until it ends; to continue earlier, restart it on upgraded nodes."
            ),
        )
    if gang.stopped_by:
        return (
            BlockedReason.GANG_ALREADY_STOPPED,
            f"{gang.name} is being stopped by plan {gang.stopped_by}; this plan waits until it is restarted.",
        )
    return None


def _cannot_restart(world: IndexedSnapshot, gang: Gang) -> Found | None:
    if gang.owner is not None and not gang.cannot_stop:
        return None
    if gang.bare and gang.name in world.strategy.expendable:
        return None  # its pods end and stay deleted; pods created again might run on the other driver
    why = gang.cannot_stop or "Its pods have no controller that would create them again."
    way = (
        "The plan waits until it ends. To continue earlier, name it expendable in the approval."
        if gang.bare
        else "The plan waits until it ends."
    )
    return BlockedReason.CANNOT_RESTART, f"{gang.name} cannot be stopped and restarted: {why} {way}"


def _resource_not_offered(world: IndexedSnapshot, gang: Gang) -> Found | None:
    asked = next((member.not_offered for member in gang.members if member.not_offered), "")
    if not asked or gang.bare:
        return None
    return (
        BlockedReason.RESOURCE_NOT_OFFERED,
        (
            f"{gang.name} requests {asked}, but nodes of revision {world.target.revision} offer "
            f"{world.target.resource_name}: its pods could not be scheduled there. The plan waits until it ends. "
            "To continue earlier, restart it with the new resource name."
        ),
    )


def _has_veto(_: IndexedSnapshot, gang: Gang) -> Found | None:
    if not gang.veto:
        return None
    return (
        BlockedReason.VETOED,
        (
            f"{gang.name} forbids any disruption by annotation {gang.veto}; the plan waits until it ends, or until the "
            "annotation is removed."
        ),
    )


def _has_refused(world: IndexedSnapshot, gang: Gang) -> Found | None:
    refusals = gang.refusals
    if refusals.left_out:
        return (
            BlockedReason.NODES_LEFT_OUT,
            (
                f"{gang.name} did not acknowledge in time and declares on-deadline: skip-node; the plan skips its "
                "nodes while it runs."
            ),
        )
    if refusals.until is None or world.snapshot.taken_at >= refusals.until:
        return None
    times = "once" if refusals.count == 1 else f"{refusals.count} times"
    return (
        BlockedReason.GANG_REFUSES,
        (
            f"{gang.name} has refused {times}; the last reason: {refusals.last}. The request is repeated after "
            f"{refusals.until:%Y-%m-%d %H:%M:%S} UTC."
        ),
    )


def _does_not_answer(world: IndexedSnapshot, gang: Gang) -> Found | None:
    refusals = gang.refusals
    if refusals.unanswered_until is None or world.snapshot.taken_at >= refusals.unanswered_until:
        return None
    times = "once" if refusals.unanswered == 1 else f"{refusals.unanswered} times"
    return (
        BlockedReason.GANG_DOES_NOT_ANSWER,
        (
            f"{gang.name} got a request {times} and did not acknowledge; the last reason: {refusals.unanswered_last}. "
            f"The request is repeated after {refusals.unanswered_until:%Y-%m-%d %H:%M:%S} UTC, with "
            "growing pauses. Check why its members do not acknowledge."
        ),
    )


def _not_complete(_: IndexedSnapshot, gang: Gang) -> Found | None:
    if gang.complete:
        return None
    running = sum(member.running for member in gang.members)
    return (
        BlockedReason.GANG_NOT_COMPLETE,
        (
            f"{running} of {max(gang.wanted, len(gang.members))} members of {gang.name} run; only complete gangs get "
            "a request. Check why the others do not run."
        ),
    )


def _leaves_pool(world: IndexedSnapshot, gang: Gang) -> Found | None:
    used = {member.node for member in gang.members if member.gpus and member.node}
    outside = sorted(name for name in used if name not in world.nodes)
    if not outside:
        return None
    return (
        BlockedReason.GANG_LEAVES_POOL,
        (
            f"{gang.name} also uses GPUs on {', '.join(outside)}, which stack {world.target.stack} does not select; "
            "put its nodes into one pool, or wait until it ends."
        ),
    )


def _on_other_revision(world: IndexedSnapshot, gang: Gang) -> Found | None:
    for name in sorted(name for name in gang.nodes if name in world.nodes):
        node, drift = world.nodes[name], world.drift.get(name)
        if node.taken and not (drift and drift.drifted and name not in world.already):
            return (
                BlockedReason.GANG_ON_OTHER_REVISION,
                f"{gang.name} also runs on node {name}, which is in a node upgrade; it waits until that upgrade ends.",
            )
        if name in world.already and drift is not None and drift.drifted:
            return (
                BlockedReason.GANG_ON_OTHER_REVISION,
                (
                    f"{gang.name} also runs on node {name}, whose upgrade by this plan did not bring it to revision "
                    f"{world.target.revision}; it would run on mixed drivers. See that node's NodeUpgrade."
                ),
            )
    return None


def _pdb_forbids(world: IndexedSnapshot, gang: Gang) -> Found | None:
    name = world.snapshot.pdb_blocked.get(gang.name)
    if name is None:
        return None
    return (
        BlockedReason.PDB_BLOCKS,
        (
            f"PodDisruptionBudget {name} does not allow a disruption of {gang.name} now; the plan waits until it does. "
            "To continue earlier, change that PodDisruptionBudget."
        ),
    )


def _not_steerable(world: IndexedSnapshot, gang: Gang) -> Found | None:
    if gang.bare:
        return None  # it is never restarted
    row = owner_kind(gang.owner.kind, gang.owner.api_version) if gang.owner is not None else None
    fixed = row is not None and not row.templates
    # The snapshot's `steering` holds for Jobs; other owners have rules of their own.
    known = world.snapshot.steering if row is None or row.kind == "Job" else _can_steer(world, row)
    if world.strategy.placement_unguaranteed or (known and not fixed) or gang.namespace in world.snapshot.shaped:
        return None
    what = (
        f"{gang.name} cannot be steered to upgraded nodes: the templates of its {row.kind} cannot be changed"
        if row is not None and fixed
        else "This version of Kubernetes cannot steer a restarted gang to upgraded nodes (1.36 can)"
    )
    return (
        BlockedReason.PLACEMENT_NOT_GUARANTEED,
        (
            f"{what}. deploy/admission-steering.yaml steers them in namespaces that opt in; placementUnguaranteed in "
            "the approval allows a restart without it."
        ),
    )


def _can_steer(world: IndexedSnapshot, row: OwnerKind) -> bool:
    return placement.is_steerable(row, world.snapshot.api_server_version)


_CHECKS: tuple[Callable[[IndexedSnapshot, Gang], Found | None], ...] = (
    _already_stopped,
    _cannot_restart,
    _resource_not_offered,
    _has_veto,
    _has_refused,
    _does_not_answer,
    _not_complete,
    _leaves_pool,
    _on_other_revision,
    _pdb_forbids,
    _not_steerable,
)
