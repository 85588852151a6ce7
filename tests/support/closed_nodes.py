"""Nodes that upgrades closed, after all objects of the operator were removed."""

from typing import Any

import msgspec

from tests.support.pools import claimed, in_phase
from tests.support.torn import strip_plan, strip_request, strip_stack
from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import GPU_STACKS, NODE_UPGRADES, NODES, ResourceKind
from upgrader.core.model.phases import NodePhase
from upgrader.reconcile.gpu_stack.stackless import KIND, NAME, StacklessPass
from upgrader.reconcile.observe.listed_nodes import ListedNodes
from upgrader.telemetry import metrics
from upgrader_dev.simulated.apiserver.objects import Object
from upgrader_dev.simulated.cluster.rig import STACK, Rig, start_training

FOREIGN = {"key": "example.com/mine", "value": "yes", "effect": "NoSchedule"}
RESERVED = {"key": names.TAINT_RESERVED, "value": "gone", "effect": "PreferNoSchedule"}


def strip_all(rig: Rig) -> None:
    """All objects of the operator are deleted, with finalizers or without."""
    if rig.requests():
        strip_request(rig)
    strip_plan(rig)
    for upgrade in rig.list_objects(NODE_UPGRADES, Any):
        rig.cluster.store.remove(NODE_UPGRADES, upgrade["metadata"]["name"])
    strip_stack(rig)


def delete_stack(rig: Rig) -> None:
    """Somebody's finalizer keeps it there: the look of its step is over all the same."""
    strip_all(rig)
    rig.apply_stack(rig.make_spec("1.0"))
    rig.cluster.store.change(GPU_STACKS, STACK, {"metadata": {"finalizers": ["example.com/kept"]}})
    rig.cluster.store.mark_deleted(GPU_STACKS, STACK)


def shown(rig: Rig, name: str = "gpu-0") -> Object:
    """What people and schedulers see of a node, beside what its kubelet tells and who released it last."""
    node = rig.cluster.store.find(NODES, name)
    meta, spec = node["metadata"], node["spec"]
    return {
        "labels": meta["labels"],
        "annotations": {
            key: value for key, value in meta.get("annotations", {}).items() if key != names.ANNOTATION_RELEASED_BY
        },
        "taints": spec.get("taints", []),
        "unschedulable": spec.get("unschedulable", False),
    }


def faults() -> float:
    return metrics.REGISTRY.get_sample_value("upgrader_step_faults", {"kind": KIND, "object": NAME}) or 0.0


async def upgraded(rig: Rig, phase: NodePhase) -> Object:
    """A node with a taint and a cordon of people is upgraded up to this phase; what it was before."""
    revision = await start_training(rig, nodes=1, members=1)
    rig.cluster.store.change(NODES, "gpu-0", {"spec": {"taints": [FOREIGN], "unschedulable": True}})
    before = shown(rig)
    rig.apply_plan("up", revision)
    await rig.run_until(lambda: in_phase(rig, phase, "up") and claimed(rig), 1800)
    return before


async def closed(rig: Rig, phase: NodePhase = NodePhase.TAINTING) -> Object:
    """The same, and then all objects of the operator are removed by force; what the node was before."""
    before = await upgraded(rig, phase)
    strip_all(rig)
    return before


def refuse(rig: Rig, kind: ResourceKind[Any], error: Exception) -> None:
    """Nothing of this kind can be listed."""
    before = rig.cluster.list

    async def failing(wanted: ResourceKind[Any], namespace: str = "", **selectors: Any) -> Any:
        if wanted == kind:
            raise error
        return await before(wanted, namespace, **selectors)

    rig.cluster.list = failing  # type: ignore[method-assign]


def keep_cache(rig: Rig) -> None:
    """The cache of nodes is behind from now on, and does not know it."""
    rig.node_cache = ListedNodes(
        nodes={one["metadata"]["name"]: msgspec.convert(one, Node) for one in rig.cluster.store.list_values(NODES)}
    )


async def look(rig: Rig, times: int) -> list[tuple[float, bool]]:
    """Looks of one loop: the pause after each, and whether the node is claimed then."""
    loop = StacklessPass()
    return [(await loop.run_pass(rig.context), claimed(rig)) for _ in range(times)]
