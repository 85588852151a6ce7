"""The whole controller on the fake cluster with the fleet beside it, in virtual time.

Engine, rendering and rules are the real ones.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from upgrader.api import names
from upgrader.api.resources import (
    CHECKPOINT_REQUESTS,
    DRIVER_IMAGES,
    GPU_STACKS,
    NODE_UPGRADES,
    NODES,
    PODS,
    UPGRADE_PLANS,
    ResourceKind,
)
from upgrader.api.v1alpha1 import CheckpointRequest, DriverImage, GpuStack, GpuStackSpec, NodeUpgrade, UpgradePlan
from upgrader.checkpoint.methods import checkpoint_methods
from upgrader.core.errors import LostLeadershipError
from upgrader.core.model.phases import is_final
from upgrader.core.model.revisions import revision_of
from upgrader.core.workloads.owner_kinds import OWNERS
from upgrader.reconcile.checkpoint_request.live_owners import resource_of
from upgrader.reconcile.driver_image import image_reconciler
from upgrader.reconcile.facts.event_memory import Heard
from upgrader.reconcile.facts.fact_cache import FactCaches
from upgrader.reconcile.facts.workloads import Workloads
from upgrader.reconcile.gpu_stack import stack_reconciler, stackless
from upgrader.reconcile.gpu_stack.debounce_cache import Sightings
from upgrader.reconcile.observe.cluster_snapshot import target_of
from upgrader.reconcile.ports import Nodes, Reads
from upgrader.reconcile.runtime.context import ANNOTATION_REMOVAL_RETRY, REHEARSED_AGAIN, Context, Gates
from upgrader.reconcile.runtime.looks import Looks
from upgrader.reconcile.runtime.pauses import Pauses
from upgrader.reconcile.upgrade_plan import plan_reconciler
from upgrader.stack.settings import BuildSettings, StackSettings
from upgrader_dev.simulated.apiserver.cluster import FakeCluster, FakeNodes
from upgrader_dev.simulated.cluster.fleet import Fleet
from upgrader_dev.simulated.cluster.placing import RESOURCE
from upgrader_dev.simulated.cluster.ports import FakeCrashPoints, FakeLeadership, FakeRegistry, FakeTrust, Skewed
from upgrader_dev.simulated.cluster.speaking import Speaking

T = TypeVar("T")
Step = Callable[[Context, str], Awaitable[float | None]]

STACK = "pool-a"

ACTIVE_SECONDS = 5.0
"""Longer than a controller's default: steps that nothing wakes would only cost time."""
IDLE_SECONDS = 15.0


class _Taken(NamedTuple):
    """The last step of an object: the world as it began, and when the next one is due if nothing changes."""

    version: int
    due: datetime


class Rig:
    """One controller and its world; `restart()` forgets what the controller had in memory."""

    def __init__(self, cluster: FakeCluster | None = None) -> None:
        self.cluster = cluster or FakeCluster()
        self.fleet = Fleet(cluster=self.cluster)
        self.node_cache: Nodes | None = None
        """Another cache of nodes than one that is always in step."""
        self.watched: Reads | None = None
        """What watches have shown, where there are some."""
        self.speaking = Speaking(self.cluster, self.fleet.mailbox)
        self.registry = FakeRegistry()
        self.leadership = FakeLeadership()
        self.crash = FakeCrashPoints()
        self.sightings = Sightings()
        self.stackless = stackless.Stackless()
        self.gates = Gates()
        self.heard = Heard()
        self.facts = FactCaches()
        self.looks = Looks()
        self.rehearsals = Pauses(REHEARSED_AGAIN)
        self.annotation_removals = Pauses(ANNOTATION_REMOVAL_RETRY)
        self.side_by_side = False
        """Whether plans take their steps at the same time, as their loops do."""
        self.workloads = Workloads()
        """Each loop reads pods for itself; see `share`."""
        self.steps_at_once = 8
        """1: each look is one step, so that the world is seen in every phase."""
        self.tolerant = False
        """Whether a step that fails is made again at the next second, as the loops of a controller do."""
        self.seconds = 0
        self.others: list[Callable[[], None]] = []
        """What others do each second, beside the fleet."""
        self.skew = timedelta()
        """How far the controller's clock is ahead of the world's."""
        self.node_image = "registry/upgrader@sha256:" + "0" * 64
        self.builds = BuildSettings()
        self.trust: FakeTrust | None = None
        self._steps: dict[tuple[str, str], _Taken] = {}

    def restart(self, node_image: str | None = None) -> None:
        """What a new process of the controller remembers: nothing."""
        self.sightings, self.gates, self.heard, self._steps = Sightings(), Gates(), Heard(), {}
        self.facts, self.looks, self.rehearsals = FactCaches(), Looks(), Pauses(REHEARSED_AGAIN)
        self.stackless, self.annotation_removals = stackless.Stackless(), Pauses(ANNOTATION_REMOVAL_RETRY)
        self.node_image = node_image or self.node_image

    def share(self, seconds: float) -> None:
        """Loops share readings of all pods, as in a real controller."""
        self.workloads = Workloads(seconds=seconds, clock=lambda: self.cluster.clock.now().timestamp())

    @property
    def context(self) -> Context:
        return Context(
            cluster=self.cluster,
            nodes=self.node_cache or FakeNodes(self.cluster),
            registry=self.registry,
            clock=Skewed(self.cluster.clock, self.skew),
            leadership=self.leadership,
            crash=self.crash,
            methods=checkpoint_methods(self.cluster),
            stack=StackSettings(node_image=self.node_image),
            builds=self.builds,
            trust=self.trust,
            gates=self.gates,
            heard=self.heard,
            facts=self.facts,
            rehearsals=self.rehearsals,
            annotation_removals=self.annotation_removals,
            workloads=self.workloads,
            watched=self.watched,
            looks=self.looks,
            steps_at_once=self.steps_at_once,
            active_seconds=ACTIVE_SECONDS,
            idle_seconds=IDLE_SECONDS,
        )

    # ---- setting up

    def image(self, version: str, kernel: str = "6.1.0-47-amd64") -> None:
        reference = f"registry/sim-driver:{version}-{kernel}"
        self.registry.push(reference, f"{version.replace('.', '')}{kernel.encode().hex()[:8]}")
        self.cluster.store.put(
            DRIVER_IMAGES,
            {
                "metadata": {"name": f"sim-{version}-{kernel}"},
                "spec": {"vendor": "sim", "version": version, "kernel": kernel, "image": reference},
            },
        )

    def spec(self, version: str, *, plugin: str = "1", kubelet: str = "1.34.4") -> dict[str, Any]:
        plugin_image, artifact = f"registry/plugin:{plugin}", f"registry/kubelet:{kubelet}"
        self.registry.push(plugin_image, f"aa{plugin}")
        self.registry.push(artifact, f"bb{kubelet.replace('.', '')}")
        return {
            "nodeSelector": {"pool": "a"},
            "driver": {"vendor": "sim", "version": version, "unverified": "Allow"},
            "devicePlugin": {"image": plugin_image, "resourceName": RESOURCE},
            "kubelet": {"manage": True, "version": kubelet, "artifact": artifact, "binary": "/usr/bin/kubelet"},
        }

    def stack(self, spec: dict[str, Any], name: str = STACK) -> str:
        """Apply the stack; the revision of its spec."""
        there = self.cluster.store.stored(GPU_STACKS, name)
        kept = {"status": there.value["status"]} if there is not None and "status" in there.value else {}
        self.cluster.store.put(GPU_STACKS, {"metadata": {"name": name}, "spec": spec, **kept})
        return revision_of(target_of(msgspec.convert(spec, GpuStackSpec), name))

    def plan(self, name: str, revision: str, *, interruptions: int = 100, **spec: Any) -> None:  # noqa: ANN401 - JSON
        approval = {"by": "test", "at": "2026-11-21T09:00:00Z", "limits": {"maxInterruptions": interruptions}}
        body: dict[str, Any] = {
            "stack": STACK,
            "targetRevision": revision,
            "approval": approval,
            "strategy": {},
        }
        # Canaries only where a test asks for them: most say all that they have to say in one batch.
        quick = {"maxUnavailable": "100%", "canary": {"enabled": False}, "waitForCompletionSeconds": 0}
        body = body | spec
        body["strategy"] = quick | body["strategy"]
        self.cluster.store.put(UPGRADE_PLANS, {"metadata": {"name": name}, "spec": body})

    # ---- running

    async def second(self) -> None:
        """The steps that are due, then a second of the world."""
        for image in self.all(DRIVER_IMAGES, DriverImage):
            await self._loop("DriverImage", image.metadata.name, image_reconciler.reconcile_image)
        upgrades = self.all(NODE_UPGRADES, NodeUpgrade)
        # As events do: a node upgrade wakes who ordered it, whether that is still there or not.
        wanted = [one.metadata.name for one in self.all(GPU_STACKS, GpuStack)]
        for stack in dict.fromkeys([*wanted, *(one.spec.stack for one in upgrades)]):
            await self._loop("GpuStack", stack, partial(stack_reconciler.reconcile_stack, sightings=self.sightings))
        await self._loop(stackless.KIND, stackless.NAME, self.stackless.run_pass)
        wanted = [one.metadata.name for one in self.all(UPGRADE_PLANS, UpgradePlan)]
        wanted += [one.spec.plan for one in upgrades if one.spec.plan]
        ordered = dict.fromkeys([*wanted, *(one.spec.plan for one in self.requests() if one.spec.plan)])
        if self.side_by_side:
            await asyncio.gather(*(self._loop("UpgradePlan", plan, plan_reconciler.reconcile_plan) for plan in ordered))
        else:
            for plan in ordered:
                await self._loop("UpgradePlan", plan, plan_reconciler.reconcile_plan)
        self.fleet.tick()
        for tick in self.others:
            tick()
        self.seconds += 1

    async def _loop(self, kind: str, name: str, step: Step) -> None:
        """The next step of an object where it is due: anything has changed since the last one began, or time is up."""
        now, version = self.cluster.clock.now(), self.cluster.store.version
        last = self._steps.pop((kind, name), None)
        if last is not None and last.version == version and now < last.due:
            self._steps[kind, name] = last
            return
        try:
            delay = await step(self.context, name)
        except LostLeadershipError:
            raise
        except Exception:
            if not self.tolerant:
                raise
        else:
            self._steps[kind, name] = _Taken(version, now + timedelta(seconds=IDLE_SECONDS if delay is None else delay))

    async def until(self, done: Callable[[], bool], seconds: int = 600, *, stride: int = 1) -> None:
        """Run until something holds; fails, with where everything stood, when it does not within virtual seconds.

        `stride`: seconds that pass from one look to the next, where only waiting is to be seen.
        """
        for _ in range(0, seconds, stride):
            if done():
                return
            await self.second()
            self.cluster.clock.advance(stride - 1)
        raise AssertionError(f"not within {seconds} virtual seconds:\n{self.where()}")

    async def settle(self, seconds: int = 60) -> None:
        """Until the pool is installed and drifts nowhere."""
        await self.until(self._settled, seconds)

    def _settled(self) -> bool:
        revision = self.stack_now().status.update_revision or "?"
        return self.nodes_on(revision) == len(self.nodes()) and all(
            is_final(one.status.phase) for one in self.upgrades()
        )

    # ---- looking

    def all(self, kind: ResourceKind[Any], type_: type[T]) -> list[T]:
        return [found.decoded(type_) for found in self.cluster.store.all_stored(kind)]

    def stack_now(self) -> GpuStack:
        return self.all(GPU_STACKS, GpuStack)[0]

    def plan_now(self, name: str) -> UpgradePlan:
        return next(one for one in self.all(UPGRADE_PLANS, UpgradePlan) if one.metadata.name == name)

    def upgrades(self, plan: str | None = None) -> list[NodeUpgrade]:
        """NodeUpgrades of a plan, or of none, the oldest first."""
        upgrades = [upgrade for upgrade in self.all(NODE_UPGRADES, NodeUpgrade) if upgrade.spec.plan == plan]
        return sorted(upgrades, key=lambda upgrade: upgrade.metadata.creation_timestamp or "")

    def requests(self) -> list[CheckpointRequest]:
        return self.all(CHECKPOINT_REQUESTS, CheckpointRequest)

    def nodes(self) -> list[dict[str, Any]]:
        return self.cluster.store.seen(NODES)

    def nodes_on(self, revision: str) -> int:
        return sum(node["metadata"]["labels"].get("gpu-upgrader.io/revision") == revision for node in self.nodes())

    def over(self, plan: str) -> bool:
        return is_final(self.plan_now(plan).status.phase)

    def assert_nothing_left(self) -> None:
        """Law 9: nothing is stopped or marked by us any more."""
        left = self.leftovers()
        if left:
            raise AssertionError("\n".join([*left, self.where()]))

    def leftovers(self) -> list[str]:
        """What is stopped or marked by us, in words."""
        ours = (names.TAINT_MAINTENANCE, names.TAINT_RESERVED)
        left = [
            f"{row.kind} {_place_of(owner)} is stopped by us"
            for row in OWNERS
            for owner in self.cluster.store.seen(resource_of(row, row.version))
            if names.ANNOTATION_STOPPED in owner["metadata"].get("annotations", {})
        ]
        left += [
            f"pod {_place_of(pod)} has annotation {mark}"
            for pod in self.cluster.store.seen(PODS)
            for mark in (names.ANNOTATION_REQUEST, names.ANNOTATION_PARK_SECONDS)
            if mark in pod["metadata"].get("annotations", {})
        ]
        for node in self.nodes():
            name = node["metadata"]["name"]
            if names.ANNOTATION_CLAIMED_BY in node["metadata"].get("annotations", {}):
                left.append(f"node {name} is claimed by a node upgrade")
            left += [
                f"node {name} has taint {one['key']}" for one in node["spec"].get("taints", []) if one["key"] in ours
            ]
        return left

    def where(self) -> str:
        """Where everything stands, for a failing test."""
        lines = [
            f"plan {one.metadata.name}: {one.status.phase} {one.status.message}"
            for one in self.all(UPGRADE_PLANS, UpgradePlan)
        ]
        lines += [
            f"node {one.spec.node.name} {one.spec.reason}: {one.status.phase} {one.status.reason} {one.status.message}"
            for one in self.all(NODE_UPGRADES, NodeUpgrade)
        ]
        lines += [
            f"gang {one.spec.gang}: {one.status.phase} {one.status.reason} {one.status.message}"
            for one in self.requests()
        ]
        lines += [
            f"blocked {blocker.subject}: {blocker.reason} {blocker.message}"
            for plan in self.all(UPGRADE_PLANS, UpgradePlan)
            for blocker in plan.status.blockers
        ]
        lines += [f"stack: {one.status}" for one in self.all(GPU_STACKS, GpuStack)]
        return "\n".join(lines)


def _place_of(value: dict[str, Any]) -> str:
    return f"{value['metadata']['namespace']}/{value['metadata']['name']}"


async def start_training(rig: Rig, *, nodes: int = 2, members: int = 2, gpus: int = 8) -> str:
    """A pool on driver 1.0 with a gang that trains; gives the revision of the next driver, plugin and kubelet."""
    for number in range(nodes):
        rig.fleet.node(f"gpu-{number}")
    rig.image("1.0")
    rig.image("2.0")
    rig.stack(rig.spec("1.0"))
    await rig.settle()
    rig.fleet.job("gang", members=members, gpus=gpus)
    await rig.until(lambda: rig.fleet.trainers["gang"].step > 10)
    return rig.stack(rig.spec("2.0", plugin="2", kubelet="1.35.4"))
