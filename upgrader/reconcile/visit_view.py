"""Reading what the next step of a visit depends on: the Node, the pods on it, the visit Job."""

from collections.abc import Mapping, Sequence

import msgspec

from upgrader.api import kubernetes as k
from upgrader.api import names
from upgrader.api.resources import JOBS, NODES, PODS
from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core import timing
from upgrader.core.declarations import Declared, nearest
from upgrader.core.phases import NodePhase, VisitReason
from upgrader.core.visit_facts import NodeView, OperandFacts, OtherPod
from upgrader.reconcile import forced, observe
from upgrader.reconcile.context import Context
from upgrader.reconcile.works import declared_above
from upgrader.stack import errands, manifests

OPERAND_PHASES = frozenset({"Pending", "Running", "Unknown"})


class MayGo(msgspec.Struct, frozen=True, kw_only=True):
    """Uids of pods that may go although no gang of theirs is stopped, and of those that stay."""

    forced: frozenset[str] = frozenset()  # a person ordered them away
    expended: frozenset[str] = frozenset()  # nothing makes them again, and the approval names their gang
    waited_for: frozenset[str] | None = frozenset()  # the plan waits for them; None: not known, so every pod may be one


NOBODY = MayGo()


def effective(upgrade: NodeUpgrade) -> NodeState:
    """What the node should run at the end of the walk: the source while it goes back."""
    return upgrade.spec.source if upgrade.status.reverting else upgrade.spec.target


async def read_visit(
    context: Context,
    upgrade: NodeUpgrade,
    members: frozenset[str],
    spaces: Mapping[str, Declared],
    may_go: MayGo = NOBODY,
) -> NodeView:
    """One NodeUpgrade with its surroundings, all read from the API server now.

    `members`: uids of pods that acknowledged or are being stopped; `spaces`: what namespaces declare.
    """
    node = await context.cluster.get(NODES, upgrade.spec.node.name)
    if node is not None and node.metadata.uid != upgrade.spec.node.uid:
        node = None
    pods = await context.cluster.list(PODS, fields=f"spec.nodeName={upgrade.spec.node.name}") if node else []
    job = None
    if upgrade.status.phase is NodePhase.VISITING:
        name = manifests.visit_name(upgrade, reverting=upgrade.status.reverting)
        job = await context.cluster.get(JOBS, name, context.stack.namespace)
    around = {
        pod.metadata.uid: await _around(context, pod, spaces)
        for pod in pods
        if pod.metadata.uid not in members and observe.gpus_of(pod, upgrade.spec.target.resource_name)
    }
    view = build_view(upgrade, node, pods, job, members, around)
    leaving = {pod.metadata.uid for pod in pods if pod.metadata.deletion_timestamp is not None}
    others = tuple(_released(pod, may_go, leaving=pod.uid in leaving) for pod in view.others)
    return msgspec.structs.replace(view, others=others, forced=forced.orders(upgrade))


def _released(pod: OtherPod, may_go: MayGo, *, leaving: bool) -> OtherPod:
    expended = pod.uid in may_go.expended
    stays = may_go.waited_for is None or pod.uid in may_go.waited_for
    return msgspec.structs.replace(
        pod,
        forced=pod.uid in may_go.forced,
        expended=expended,
        evictable=(pod.evictable and not stays) or (expended and not leaving),
    )


async def _around(context: Context, pod: k.Pod, spaces: Mapping[str, Declared]) -> Declared:
    """What is declared around a pod. Its owners are read only where it would be evicted if they said nothing."""
    space = spaces.get(pod.metadata.namespace, Declared())
    if not observe.replicated(pod, space):
        return space
    return nearest([await declared_above(context.cluster, pod), space])


def build_view(
    upgrade: NodeUpgrade,
    node: k.Node | None,
    pods: Sequence[k.Pod],
    job: k.Job | None,
    members: frozenset[str],
    around: Mapping[str, Declared],
) -> NodeView:
    """The values that `core.visit.decide` works on; pure."""
    status, goal = upgrade.status, effective(upgrade)
    resource = upgrade.spec.target.resource_name
    mine = [pod for pod in pods if manifests.upgrade_of(pod.metadata) == upgrade.metadata.name]
    # A NodeUpgrade that was deleted and ordered again has the same name: the answers of the first are not its own.
    own = [pod for pod in mine if any(one.uid == upgrade.metadata.uid for one in pod.metadata.owner_references)]
    return NodeView(
        name=upgrade.metadata.name,
        uid=upgrade.metadata.uid,
        reason=upgrade.spec.reason,
        phase=status.phase,
        phase_since=timing.parse(status.steps[-1].started_at if status.steps else upgrade.metadata.creation_timestamp),
        deadline=timing.parse(status.deadline) if status.deadline else None,
        reverting=status.reverting,
        failure=status.reason,
        node=observe.node_facts(node, resource) if node is not None else None,
        driver_key=goal.driver_key,
        plugin_key=goal.plugin_key,
        revision=goal.revision,
        expected_gpus=status.found.gpus,
        prepare=errands.prepare_errand(own),
        visit=errands.visit_errand(job, mine),
        validate=errands.validate_errand(own, reverting=status.reverting),
        driver=_operand(pods, names.LABEL_IMAGE_KEY, goal.driver_key, status.phase, "driver"),
        plugin=_operand(pods, names.LABEL_IMAGE_KEY, goal.plugin_key, status.phase, "device-plugin"),
        others=tuple(_others(upgrade, pods, members, around)),
        not_evicted=status.eviction.message if status.eviction is not None else "",
        evict_after=timing.parse(status.eviction.not_before) if status.eviction is not None else None,
    )


def _operand(pods: Sequence[k.Pod], label: str, key: str, phase: NodePhase, component: str) -> OperandFacts:
    """Pods of an operand: while switching off, all of the component; afterwards only those of the wanted image."""
    found = [
        pod
        for pod in pods
        if pod.metadata.labels.get(names.LABEL_COMPONENT) == component
        and pod.status.phase in OPERAND_PHASES
        and (phase is NodePhase.OFF or pod.metadata.labels.get(label) == key)
    ]
    ready = [pod for pod in found if pod.metadata.deletion_timestamp is None and _ready(pod)]
    return OperandFacts(pods=len(found), ready=len(ready))


def _ready(pod: k.Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def _others(
    upgrade: NodeUpgrade, pods: Sequence[k.Pod], members: frozenset[str], around: Mapping[str, Declared]
) -> list[OtherPod]:
    resource = upgrade.spec.target.resource_name
    found = []
    for pod in pods:
        ours = names.LABEL_COMPONENT in pod.metadata.labels
        if ours or pod.status.phase in {"Succeeded", "Failed"} or not observe.gpus_of(pod, resource):
            continue
        found.append(
            OtherPod(
                name=pod.metadata.name,
                namespace=pod.metadata.namespace,
                uid=pod.metadata.uid,
                member=pod.metadata.uid in members,
                evictable=observe.replicated(pod, around.get(pod.metadata.uid))
                and pod.metadata.deletion_timestamp is None,
                before_boot=upgrade.spec.reason is VisitReason.BRING_BACK and _rejected(pod),
            )
        )
    return found


def _rejected(pod: k.Pod) -> bool:
    """The kubelet says that everything of this pod has ended; a container that waits may still start."""
    states = [*pod.status.init_container_statuses, *pod.status.container_statuses]
    return bool(states) and all(one.state.terminated is not None for one in states)
