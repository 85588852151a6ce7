"""Law: what a look sees with all that the looks before have derived is what it sees without."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.facts import target
from tests.support.observed import GPUS, NOW, OWN, STACK, node, owned, pod, wire
from upgrader.api import kubernetes as k
from upgrader.api import names
from upgrader.core.remaining import FRESH
from upgrader.core.timing import show
from upgrader.reconcile import observe
from upgrader.reconcile.fact_cache import FactCache

NEXT = "6.1.0-50-amd64"
REBOOTS = target(kernel=NEXT)
NAMESPACES = ("ml", "web", OWN)
METHODS = st.sampled_from(["", "file", "api", "none"])
OWNERS = {"Job": "batch/v1", "StatefulSet": "apps/v1", "TrainJob": "trainer.kubeflow.org/v1alpha1"}


@dataclass
class World:
    """Objects by what they are; each write gives an object its next version, as an API server does."""

    nodes: dict[str, k.Node] = field(default_factory=dict)
    pods: dict[tuple[str, str], k.Pod] = field(default_factory=dict)
    works: dict[tuple[str, str], Any] = field(default_factory=dict)
    claims: dict[str, k.PersistentVolumeClaim] = field(default_factory=dict)
    namespaces: dict[str, k.Namespace] = field(default_factory=dict)
    method: str = ""
    seconds: int = 0
    version: int = 0

    def reading(self) -> observe.Reading:
        return observe.Reading(
            own_namespace=OWN,
            nodes=self.nodes,
            pods=[self.pods[key] for key in sorted(self.pods)],
            works=[self.works[key] for key in sorted(self.works)],
            claims=[self.claims[key] for key in sorted(self.claims)],
            namespaces=[self.namespaces[key] for key in sorted(self.namespaces)],
            method=self.method,
            api_server_version="v1.36.0",
        )

    def look(self, *, reboots: bool, former: tuple[str, ...], kept: FactCache | None) -> Any:
        gpus = msgspec.structs.replace(GPUS, former=former)
        now = NOW + timedelta(seconds=self.seconds)
        empties = REBOOTS if reboots else None
        return observe.snapshot_of(self.reading(), STACK.spec, gpus, now, stack="pool-a", empties=empties, kept=kept)

    def written(self, found: Any) -> Any:
        self.version += 1
        meta = msgspec.structs.replace(found.metadata, resource_version=str(self.version))
        return msgspec.structs.replace(found, metadata=meta)


def write_node(draw: Any, world: World) -> None:
    name = draw(st.sampled_from("ab"))
    labels = {"pool": draw(st.sampled_from(["a", "b"])), names.LABEL_REVISION: draw(st.sampled_from(["", "r1"]))}
    offers = {draw(st.sampled_from(["nvidia.com/gpu", "old.example/gpu"])): "8"}
    info = {"kernelVersion": draw(st.sampled_from(["6.1.0-47-amd64", NEXT]))}
    world.nodes[name] = world.written(node(name, labels, allocatable=offers, capacity=offers, nodeInfo=info))


def write_pod(draw: Any, world: World) -> None:
    namespace, name = draw(st.sampled_from(NAMESPACES)), draw(st.sampled_from(["x-0", "x-1", "y-0"]))
    found = pod(
        name,
        draw(st.sampled_from("ab")),
        owner=draw(st.sampled_from([None, *((kind, "x") for kind in OWNERS)])),
        gpus=draw(st.sampled_from([None, "8", "odd"])),
        namespace=namespace,
        uid=f"uid-{namespace}-{name}",
        annotations={names.ANNOTATION_METHOD: draw(METHODS)},
        labels=draw(st.sampled_from([{}, {names.LABEL_COMPONENT: "driver"}])),
    )
    phase = draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]))
    found = msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, phase=phase))
    world.pods[namespace, name] = world.written(found)


def write_owner(draw: Any, world: World) -> None:
    kind = draw(st.sampled_from(sorted(OWNERS)))
    spec = {"suspend": draw(st.booleans()), "parallelism": draw(st.integers(1, 3)), "replicas": 2}
    reported = {"lastUpdatedTime": show(NOW), "estimatedRemainingSeconds": draw(st.integers(60, 90))}
    world.works[kind, "x"] = owned(
        kind,
        "x",
        api_version=OWNERS[kind],
        annotations={names.ANNOTATION_METHOD: draw(METHODS)},
        spec=spec,
        status={"trainerStatus": reported},
    )


def write_claim(draw: Any, world: World) -> None:
    spec = {"storageClassName": draw(st.sampled_from(["fast", "slow"]))}
    world.claims["data"] = wire(
        {"metadata": {"name": "data", "namespace": "ml"}, "spec": spec}, k.PersistentVolumeClaim
    )


def write_namespace(draw: Any, world: World) -> None:
    meta = {"name": "ml", "annotations": {names.ANNOTATION_METHOD: draw(METHODS)}}
    world.namespaces["ml"] = wire({"metadata": meta}, k.Namespace)


def set_method(draw: Any, world: World) -> None:
    world.method = draw(METHODS)


def pass_time(draw: Any, world: World) -> None:
    world.seconds += draw(st.sampled_from([1, int(FRESH.total_seconds())]))


def remove(draw: Any, world: World) -> None:
    objects = draw(st.sampled_from([world.nodes, world.pods, world.works, world.claims, world.namespaces]))
    if objects:
        del objects[draw(st.sampled_from(sorted(objects)))]


CHANGES = (
    write_node,
    write_pod,
    write_pod,
    write_owner,
    write_claim,
    write_namespace,
    set_method,
    pass_time,
    remove,
)


@examples(300)
@given(st.data())
def test_a_look_with_what_was_kept_sees_what_one_without_sees(data: st.DataObject) -> None:
    world, kept = World(), FactCache()
    for _ in range(data.draw(st.integers(2, 8), "looks")):
        for change in data.draw(st.lists(st.sampled_from(CHANGES), max_size=5), "changes"):
            change(data.draw, world)
        reboots = data.draw(st.booleans(), "reboots")
        former = data.draw(st.sampled_from([(), ("old.example/gpu",)]), "former")
        with_kept = world.look(reboots=reboots, former=former, kept=kept)
        assert with_kept == world.look(reboots=reboots, former=former, kept=None)
