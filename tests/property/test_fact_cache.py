"""Law: what a look sees with all that the looks before have derived is what it sees without."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.facts import target
from tests.support.observed import GPUS, NOW, OWN, STACK, node, owned, pod, wire
from upgrader.api import kubernetes as k
from upgrader.api import names
from upgrader.core.timing import format_time
from upgrader.core.workloads.completion_estimate import FRESH
from upgrader.reconcile.facts.fact_cache import FactCache
from upgrader.reconcile.facts.reading import ClusterReading
from upgrader.reconcile.observe import cluster_snapshot

NEXT = "6.1.0-50-amd64"
REBOOTS = target(kernel=NEXT)
NAMESPACES = ("ml", "ml", "web", OWN)
METHODS = st.sampled_from(["file", "api", "", "none"])
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
    reboots: bool = False
    former: tuple[str, ...] = ()
    seconds: int = 0
    version: int = 0

    def reading(self) -> ClusterReading:
        return ClusterReading(
            own_namespace=OWN,
            nodes=self.nodes,
            pods=[self.pods[key] for key in sorted(self.pods)],
            works=[self.works[key] for key in sorted(self.works)],
            claims=[self.claims[key] for key in sorted(self.claims)],
            namespaces=[self.namespaces[key] for key in sorted(self.namespaces)],
            method=self.method,
            api_server_version="v1.36.0",
        )

    def look(self, kept: FactCache | None) -> Any:
        gpus = msgspec.structs.replace(GPUS, former=self.former)
        now = NOW + timedelta(seconds=self.seconds)
        empties = REBOOTS if self.reboots else None
        return cluster_snapshot.snapshot_of(
            self.reading(), STACK.spec, gpus, now, stack="pool-a", empties=empties, kept=kept
        )

    def written(self, found: Any) -> Any:
        self.version += 1
        meta = msgspec.structs.replace(found.metadata, resource_version=str(self.version))
        return msgspec.structs.replace(found, metadata=meta)


def write_node(draw: Any, world: World) -> None:
    name = draw(st.sampled_from("ab"))
    labels = {"pool": draw(st.sampled_from(["a", "a", "b"])), names.LABEL_REVISION: draw(st.sampled_from(["", "r1"]))}
    offers = {draw(st.sampled_from(["nvidia.com/gpu", "old.example/gpu"])): "8"}
    info = {"kernelVersion": draw(st.sampled_from(["6.1.0-47-amd64", NEXT]))}
    world.nodes[name] = world.written(node(name, labels, allocatable=offers, capacity=offers, nodeInfo=info))


def write_pod(draw: Any, world: World) -> None:
    namespace, name = draw(st.sampled_from(NAMESPACES)), draw(st.sampled_from(["x-0", "x-1"]))
    found = pod(
        name,
        draw(st.sampled_from("ab")),
        owner=draw(st.sampled_from([None, *((kind, "x") for kind in OWNERS)])),
        gpus=draw(st.sampled_from(["8", None, "8", "odd"])),
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
    reported = {"lastUpdatedTime": format_time(NOW), "estimatedRemainingSeconds": draw(st.integers(60, 90))}
    world.works[kind, "x"] = owned(
        kind,
        "x",
        api_version=OWNERS[kind],
        annotations={names.ANNOTATION_METHOD: draw(METHODS)},
        spec=spec,
        status={"trainerStatus": reported},
    )


def claim(storage_class: str) -> Any:
    meta = {"name": "data", "namespace": "ml"}
    return wire({"metadata": meta, "spec": {"storageClassName": storage_class}}, k.PersistentVolumeClaim)


def namespace_declaring(method: str) -> Any:
    return wire({"metadata": {"name": "ml", "annotations": {names.ANNOTATION_METHOD: method}}}, k.Namespace)


def train_job(**declared: str) -> Any:
    reported = {"lastUpdatedTime": format_time(NOW), "estimatedRemainingSeconds": 60}
    return owned(
        "TrainJob",
        "x",
        api_version=OWNERS["TrainJob"],
        annotations=declared,
        spec={"suspend": False},
        status={"trainerStatus": reported},
    )


def write_claim(draw: Any, world: World) -> None:
    world.claims["data"] = claim(draw(st.sampled_from(["fast", "slow"])))


def write_namespace(draw: Any, world: World) -> None:
    world.namespaces["ml"] = namespace_declaring(draw(METHODS))


def set_method(draw: Any, world: World) -> None:
    world.method = draw(METHODS)


def set_reboots(draw: Any, world: World) -> None:
    world.reboots = draw(st.booleans())


def set_former(draw: Any, world: World) -> None:
    world.former = draw(st.sampled_from([(), ("old.example/gpu",)]))


def pass_time(draw: Any, world: World) -> None:
    world.seconds += draw(st.sampled_from([1, int(FRESH.total_seconds())]))


def remove(draw: Any, world: World) -> None:
    objects = draw(st.sampled_from([world.nodes, world.pods, world.works, world.claims, world.namespaces]))
    if objects:
        del objects[draw(st.sampled_from(sorted(objects)))]


CHANGES = (
    write_node,
    write_pod,
    write_owner,
    write_claim,
    write_namespace,
    set_method,
    set_reboots,
    set_former,
    pass_time,
    remove,
)


@examples(900)
@given(st.data())
def test_a_look_with_what_was_kept_sees_what_one_without_sees(data: st.DataObject) -> None:
    world, kept = World(), FactCache()
    for change in (write_node, write_node, write_claim, write_owner, write_pod, write_pod, write_pod):
        change(data.draw, world)
    for _ in range(data.draw(st.integers(4, 8), "looks")):
        assert world.look(kept) == world.look(None)
        data.draw(st.sampled_from(CHANGES), "change")(data.draw, world)


FORMER = "old.example/gpu"


def small() -> World:
    """A node with a gang under a TrainJob, one member of which has no GPUs, and a pod without GPUs."""
    world = World()
    info, offers = {"kernelVersion": "6.1.0-47-amd64"}, {FORMER: "8"}
    world.nodes["a"] = world.written(node("a", {"pool": "a"}, nodeInfo=info, allocatable=offers, capacity=offers))
    member = pod("x-0", owner=("TrainJob", "x"))
    more = msgspec.structs.replace(member.spec.containers[1], resources=k.Resources(limits={FORMER: "1"}))
    spec = msgspec.structs.replace(member.spec, containers=[member.spec.containers[0], more])
    world.pods["ml", "x-0"] = world.written(msgspec.structs.replace(member, spec=spec))
    world.pods["ml", "x-1"] = world.written(pod("x-1", owner=("TrainJob", "x"), gpus=None))
    world.pods["ml", "y-0"] = world.written(pod("y-0", owner=None, gpus=None))
    world.works["TrainJob", "x"] = train_job()
    world.claims["data"] = claim("slow")
    return world


def end_with_a_reboot(world: World) -> None:
    """The member with GPUs ends; the other one, which is as it was, now counts for the reboot of its node."""
    member = world.pods["ml", "x-0"]
    ended = msgspec.structs.replace(member, status=msgspec.structs.replace(member.status, phase="Succeeded"))
    world.pods["ml", "x-0"], world.reboots = world.written(ended), True


AROUND = {
    "an owner's estimate is old": lambda world: setattr(world, "seconds", int(FRESH.total_seconds()) + 1),
    "nodes are to be rebooted": lambda world: setattr(world, "reboots", True),
    "GPUs had another name": lambda world: setattr(world, "former", (FORMER,)),
    "the plan names a method": lambda world: setattr(world, "method", "file"),
    "the namespace declares": lambda world: world.namespaces.update(ml=namespace_declaring("file")),
    "its fellow ends, and nodes are to be rebooted": end_with_a_reboot,
    "the owner names a container": lambda world: world.works.update(
        {("TrainJob", "x"): train_job(**{names.ANNOTATION_CONTAINER: "sidecar"})}
    ),
    "a claim has another class": lambda world: world.claims.update(data=claim("fast")),
}
"""What changes around pods and nodes that are as they were."""


@pytest.mark.parametrize("change", AROUND.values(), ids=AROUND)
def test_a_change_around_what_is_as_it_was_is_seen(change: Callable[[World], None]) -> None:
    world, kept = small(), FactCache()
    before = world.look(kept)
    assert world.look(kept) == before
    change(world)
    after = world.look(None)
    assert msgspec.structs.replace(after, taken_at=before.taken_at) != before
    assert world.look(kept) == after
