"""The forecast of large fleets, without any API server: prints milliseconds, asserts nothing about them.

Run: python -m tests.bench.forecast
"""

import random
import statistics
import time
from collections.abc import Callable

import msgspec

from tests.bench.report import Report
from tests.support.facts import OLD, gang, image, node, snapshot, target
from upgrader.api import kubernetes as k
from upgrader.api.v1alpha1 import DevicePluginSpec, DriverSpec, GpuStackSpec
from upgrader.core.forecast.forecast import Forecast, forecast_rollout
from upgrader.core.model.fleet import Gang, Owner, Snapshot
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads.owner_objects import Work
from upgrader.reconcile.facts.reading import ClusterReading
from upgrader.reconcile.observe.cluster_snapshot import snapshot_of
from upgrader_dev.simulated.cluster.ports import START

RESOURCE = "nvidia.com/gpu"
GPUS = PoolGpus(resource=RESOURCE)
SPEC = GpuStackSpec(
    node_selector={"pool": "a"},
    driver=DriverSpec(vendor="sim", version="570.10"),
    device_plugin=DevicePluginSpec(image="registry.example/plugin:1.0"),
)
SIZES = (500, 100), (2000, 500), (8000, 2000)
"""Nodes and gangs; the last two are compared."""

SHARES = (1, 1, 1, 2, 2, 4, 8, 16)
"""Nodes of a gang: most are small, a few are large."""

ROUNDS = 9
SEED = 7


def fleet(nodes: int, gangs: int, seed: int = SEED) -> Snapshot:
    """A fleet in use: gangs on nodes of their own as long as there are some, then beside others."""
    chance = random.Random(seed)  # noqa: S311 - the same fleet every time, no secret
    names = [f"node-{number:05}" for number in range(nodes)]
    free = names[:]
    made: list[Gang] = []
    for number in range(gangs):
        share = chance.choice(SHARES)
        at = [free.pop() for _ in range(min(share, len(free)))] or chance.sample(names, share)
        method = "" if number % 20 == 0 else "file"
        made.append(gang(f"job-{number:04}", at, gpus=8 if share > 1 else 4, method=method))
    every = [node(name, unschedulable=at % 97 == 0, ready=at % 89 != 0) for at, name in enumerate(names)]
    return snapshot(every, made, images=(image(OLD), image()))


def reading(seen: Snapshot) -> ClusterReading:
    """The same fleet as the API server would send it, decoded."""
    nodes = {one.name: _node(one.name, one.driver_key) for one in seen.nodes}
    return ClusterReading(
        own_namespace="gpu-upgrader-system",
        nodes=nodes,
        pods=[
            _pod(one.owner.name if one.owner else "", each.pod, each.node) for one in seen.gangs for each in one.members
        ],
        works=[_job(one) for one in seen.gangs],
        api_server_version="v1.36.0",
    )


def _node(name: str, key: str) -> k.Node:
    labels = {"pool": "a", "gpu-upgrader.io/driver": key, "gpu-upgrader.io/operands": "on"}
    count = {RESOURCE: "8"}
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
            "status": {
                "capacity": count,
                "allocatable": count,
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kernelVersion": "6.1.0-40-amd64", "kubeletVersion": "v1.35.4"},
            },
        },
        k.Node,
    )


def _pod(owner: str, name: str, at: str) -> k.Pod:
    reference = {"kind": "Job", "apiVersion": "batch/v1", "name": owner, "uid": f"uid-job-{owner}", "controller": True}
    method = {"gpu-upgrader.io/checkpoint-method": "api"}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "ml",
                "uid": f"uid-{name}",
                "ownerReferences": [reference],
                "annotations": method,
            },
            "spec": {"nodeName": at, "containers": [{"name": "trainer", "resources": {"limits": {RESOURCE: "8"}}}]},
            "status": {"phase": "Running"},
        },
        k.Pod,
    )


def _job(one: Gang) -> Work:
    name = one.owner.name if one.owner else ""
    owner = Owner(kind="Job", name=name, uid=f"uid-job-{name}")
    return Work(owner=owner, namespace="ml", spec={"parallelism": one.wanted})


def milliseconds(work: Callable[[], object]) -> float:
    """The median of several rounds."""
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken)


def main(report: Report) -> None:
    """Print a line for each size."""
    seconds = []
    for nodes, gangs in SIZES:
        world, strategy = fleet(nodes, gangs), StrategyFacts(max_unavailable="10%")

        def foresee(world: Snapshot = world, strategy: StrategyFacts = strategy) -> Forecast:
            return forecast_rollout(world, target(), strategy, now=START)

        made = foresee()
        taken = milliseconds(foresee)
        report.add(
            f"forecast, {nodes} nodes, {gangs} gangs", taken / 1000, "s", goal="at most 0.5 at 2,000 nodes", seed=SEED
        )
        seconds.append(taken / 1000)
        wire = reading(world)  # not before: what is kept in memory is looked at by the garbage collector
        observed = milliseconds(lambda wire=wire: snapshot_of(wire, SPEC, GPUS, START))
        del wire
        print(  # noqa: T201 - a bench prints
            f"{nodes} nodes, {gangs} gangs of {sum(len(one.members) for one in world.gangs)} members: "
            f"observe {observed:.0f} ms, forecast {taken:.0f} ms "
            f"({made.summary.batches} batches, {made.summary.interruptions} stops, {made.summary.blocked} blocked), "
            f"{len(msgspec.json.encode(made)) // 1024} KiB as JSON"
        )
    ratio = seconds[-1] / seconds[-2]
    report.add("forecast, 8,000 nodes over 2,000 nodes", ratio, "ratio", goal="at most 4.8", seed=SEED)


if __name__ == "__main__":
    main(Report())
