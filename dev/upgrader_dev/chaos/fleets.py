"""Random fleets: nodes, their gangs and other pods, and the plan for them."""

from datetime import timedelta
from typing import Any

from msgspec import Struct

from upgrader.api import names
from upgrader.api.resources import DRIVER_IMAGES
from upgrader.core.model.phases import is_final
from upgrader_dev.chaos.draws import Draws
from upgrader_dev.chaos.gangs import (
    GangSpec,
    add_time_slices,
    are_steerable,
    assign_pools,
    put_gang,
    vary_owner_kinds,
)
from upgrader_dev.chaos.rollouts import HOME, OTHER_POOL, PART, ApplySchedule, NextRevision, Rollouts, draw_rollouts
from upgrader_dev.simulated.cluster.controllers import REPLICASETS
from upgrader_dev.simulated.cluster.devices import RENAMED
from upgrader_dev.simulated.cluster.placing import RESOURCE
from upgrader_dev.simulated.cluster.rig import Rig

GPUS = 8
MONTH = 30 * 86400
KERNELS = ("6.1.0-47-amd64", "6.1.0-50-amd64")
REBOOT = {"reboot": {"kernel": KERNELS[1], "select": ["/sbin/choose"], "restart": ["/sbin/reboot"]}}


class ChaosFleetSpec(Struct, frozen=True, kw_only=True):
    """A fleet and the plan for it. `replicas` and `bare`: GPUs of pods by pod name."""

    nodes: int
    kernels: tuple[str, ...]
    gangs: tuple[GangSpec, ...]
    replicas: dict[str, int]
    bare: dict[str, int]
    expendable: tuple[str, ...]
    plan: dict[str, Any]
    stack: dict[str, Any] = {}
    """Additional fields of the stack: the reboot."""
    declaring: bool = False
    """Whether the owners of the replicas declare a checkpoint method, so that the replicas are not evicted."""
    resource: str = RESOURCE
    """The resource name under which the second revision offers GPUs."""
    rollouts: Rollouts = Rollouts()
    clocks: dict[str, int] = {}
    """Seconds by which the clocks of nodes are ahead of the API server's, by node name; empty in most runs."""

    def target_spec(self, rig: Rig) -> dict[str, Any]:
        """The spec of the stack that the plan upgrades to."""
        spec = rig.make_spec("2.0", plugin="2", kubelet="1.35.4") | self.stack
        spec["devicePlugin"] = spec["devicePlugin"] | {"resourceName": self.resource}
        return spec

    def __str__(self) -> str:
        """A summary in one line."""
        gangs = ", ".join(
            f"{gang.name} {gang.kind} {gang.members}x{gang.gpus} {gang.method or '-'}" for gang in self.gangs
        )
        others = [*self.replicas, *self.bare]
        pods = f"gangs: {gangs or 'none'}; other pods: {others or 'none'}"
        stack = f"{', '.join(self.stack) or 'no reboot'}; {self.resource}{self.rollouts}"
        clocks = "".join(f"; {name} is {seconds} s ahead" for name, seconds in self.clocks.items())
        return f"{self.nodes} nodes; {pods}; {stack}{clocks}; plan: {self.plan}"


def draw_fleet(draws: Draws, nodes: int = 0) -> ChaosFleetSpec:
    """A random fleet. `nodes`: the number of nodes; 0: a random number."""
    count = nodes or draws.draw_choice([1, 2, 2, 3, 4, 5, 6, 8])
    gangs: list[GangSpec] = []
    free = count * GPUS
    while free > 0 and len(gangs) < max(1, count - 1) and draws.is_hit(0.85):
        gang = _draw_gang(draws, f"g{len(gangs)}", count)
        if gang.members * gang.gpus <= free:
            gangs.append(gang)
            free -= gang.members * gang.gpus
    replicas = {"web-a": draws.draw_choice([1, 2])} if free >= 2 and draws.is_hit(0.3) else {}
    bare = {"solo-a": draws.draw_choice([1, 2])} if free >= 4 and draws.is_hit(0.2) else {}
    expendable = tuple(f"default/Pod/{name}" for name in bare if draws.is_hit(0.7))
    rollouts = draw_rollouts(draws.stream_for("rollouts"), count)
    varied = vary_owner_kinds(gangs, draws.stream_for("other kinds"))
    if rollouts.second_pool is not None:
        varied = assign_pools(varied, (HOME, OTHER_POOL), draws.stream_for("pools"))
    clocks = _draw_clocks(draws.stream_for("clocks of nodes"), count)
    if clocks:  # the clock of the node determines since when a pod runs
        varied = add_time_slices(varied, draws.stream_for("time slices"))
    return ChaosFleetSpec(
        nodes=count,
        kernels=KERNELS if draws.is_hit(0.3) else KERNELS[:1],
        gangs=varied,
        replicas=replicas,
        bare=bare,
        expendable=expendable,
        plan=_plan_spec(
            draws, expendable, unguaranteed=not are_steerable(varied) and draws.stream_for("unguaranteed").is_hit(0.8)
        ),
        stack=REBOOT if draws.is_hit(0.25) else {},
        declaring=draws.stream_for("declaring").is_hit(0.3),
        resource=RENAMED if draws.stream_for("resource").is_hit(0.06) else RESOURCE,
        rollouts=rollouts,
        clocks=clocks,
    )


def _draw_clocks(draws: Draws, nodes: int) -> dict[str, int]:
    """In a few runs the clock of each node is wrong, by minutes to a month."""
    if not draws.is_hit(PART):
        return {}
    return {f"gpu-{number}": draws.draw_choice([0, -600, 600, -MONTH, MONTH]) for number in range(nodes)}


def _draw_gang(draws: Draws, name: str, nodes: int) -> GangSpec:
    return GangSpec(
        name=name,
        kind=draws.draw_choice(["Job", "Job", "Job", "StatefulSet"]),
        members=draws.draw_choice([1, 1, 2, 2, 3, min(4, nodes)]),
        gpus=draws.draw_choice([GPUS, GPUS, 4, 2]),
        method=draws.draw_choice(["file", "file", "file", "exec", "http", "signal", ""]),
        answers=draws.is_hit(0.9),
        parks=draws.is_hit(0.95),
    )


def _plan_spec(draws: Draws, expendable: tuple[str, ...], *, unguaranteed: bool) -> dict[str, Any]:
    strategy = {
        "maxUnavailable": draws.draw_choice(["100%", "100%", "50%", "25%", 8, 16, 24]),
        "canary": {"enabled": draws.is_hit(0.2), "soakSeconds": 30},
        "waitForCompletionSeconds": draws.draw_choice([0, 0, 0, 120]),
    }
    limits: dict[str, Any] = {"maxInterruptions": 100, "expendable": list(expendable)}
    if unguaranteed:
        limits["placementUnguaranteed"] = True
    return {
        "strategy": strategy,
        "approval": {"by": "chaos", "at": "2026-11-21T09:00:00Z", "limits": limits},
        "toleratedFailures": draws.draw_choice([0, 0, 2, 100]),
        "checkpoint": {
            "timeoutSeconds": draws.draw_choice([60, 300, 1800]),
            "retrySeconds": draws.draw_choice([60, 600]),
            "lanes": {"maxConcurrent": draws.draw_choice([0, 0, 1])},
        },
    }


async def install_fleet(rig: Rig, fleet: ChaosFleetSpec, schedule: ApplySchedule) -> None:
    """Create the nodes and install the first driver on them; there are no jobs yet."""
    for number in range(fleet.nodes):
        name = f"gpu-{number}"
        rig.fleet.add_node(name, kernel=fleet.kernels[number % len(fleet.kernels)], pool=fleet.rollouts.pool_of(name))
        rig.fleet.clocks[name] = timedelta(seconds=fleet.clocks.get(name, 0))
    put_images(rig, fleet)
    schedule.apply_first_stacks()
    await rig.run_until(lambda: _is_installed(rig), 120 + fleet.nodes)


def _is_installed(rig: Rig) -> bool:
    nodes = rig.nodes()
    given = sum(names.LABEL_REVISION in node["metadata"]["labels"] for node in nodes)
    return given == len(nodes) and all(is_final(upgrade.status.phase) for upgrade in rig.upgrades())


def put_images(rig: Rig, fleet: ChaosFleetSpec) -> None:
    """Create the driver images that do not exist: at the beginning, all."""
    existing = {stored.value["spec"]["image"] for stored in rig.cluster.store.list_stored(DRIVER_IMAGES)}
    newest = fleet.rollouts.next_plan
    versions = ("1.0", "2.0", "3.0") if newest is not None and newest[1] is NextRevision.NEWER else ("1.0", "2.0")
    for kernel in KERNELS if fleet.stack else fleet.kernels:
        for version in versions:
            if f"registry/sim-driver:{version}-{kernel}" not in existing:
                rig.put_image(version, kernel)


def populate_fleet(rig: Rig, fleet: ChaosFleetSpec) -> None:
    """Create the gangs and the other pods."""
    for gang in fleet.gangs:
        put_gang(rig, gang)
    for number, (name, gpus) in enumerate(fleet.replicas.items()):
        rig.fleet.add_replica(name, node=f"gpu-{number % fleet.nodes}", gpus=gpus)
        if fleet.declaring:
            annotations = {names.ANNOTATION_METHOD: "file"}
            meta = {"name": name, "namespace": "default", "uid": f"rs-{name}", "annotations": annotations}
            rig.cluster.installed["apps", "replicasets"] = ("v1",)
            rig.cluster.store.put(REPLICASETS, {"metadata": meta, "spec": {}, "status": {}})
    for number, (name, gpus) in enumerate(fleet.bare.items()):
        rig.fleet.add_bare_pod(name, node=f"gpu-{number % fleet.nodes}", gpus=gpus)
