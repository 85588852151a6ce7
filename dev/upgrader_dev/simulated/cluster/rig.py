"""The whole controller on the fake cluster with the simulated fleet, in virtual time.

Engine, rendering and rules are the real code.
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
from upgrader.reconcile.facts.event_memory import EventMemory
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
from upgrader_dev.simulated.apiserver.cluster import FakeCluster
from upgrader_dev.simulated.apiserver.node_cache import FakeNodes
from upgrader_dev.simulated.cluster.fleet import SimulatedFleet
from upgrader_dev.simulated.cluster.placing import RESOURCE
from upgrader_dev.simulated.cluster.pod_programs import PodPrograms
from upgrader_dev.simulated.cluster.ports import FakeCrashPoints, FakeLeadership, FakeRegistry, FakeTrust, SkewedClock

T = TypeVar("T")
Step = Callable[[Context, str], Awaitable[float | None]]

STACK = "pool-a"

ACTIVE_SECONDS = 5.0
"""Longer than the controller's default: steps without an event only cost time."""
IDLE_SECONDS = 15.0


class _LastStep(NamedTuple):
    """The last step of an object: the store's version when it began, and when the next step is due without changes."""

    version: int
    due: datetime


class Rig:
    """One controller and its cluster; `restart()` discards the controller's memory."""

    def __init__(self, cluster: FakeCluster | None = None) -> None:
        self.cluster = cluster or FakeCluster()
        self.fleet = SimulatedFleet(cluster=self.cluster)
        self.node_cache: Nodes | None = None
        """A cache of nodes to use instead of one that is always in sync."""
        self.watched: Reads | None = None
        """The state of watches, if there are any."""
        self.pod_programs = PodPrograms(self.cluster, self.fleet.mailbox)
        self.registry = FakeRegistry()
        self.leadership = FakeLeadership()
        self.crash = FakeCrashPoints()
        self.sightings = Sightings()
        self.stackless = stackless.StacklessPass()
        self.gates = Gates()
        self.heard = EventMemory()
        self.facts = FactCaches()
        self.looks = Looks()
        self.rehearsals = Pauses(REHEARSED_AGAIN)
        self.annotation_removals = Pauses(ANNOTATION_REMOVAL_RETRY)
        self.side_by_side = False
        """Whether plans run their steps at the same time, as their loops do."""
        self.workloads = Workloads()
        """Each loop reads pods separately; see `share_pod_lists`."""
        self.steps_at_once = 8
        """1: each reconciliation is one step, so that tests see every phase."""
        self.tolerant = False
        """Whether a step that fails is tried again at the next second, as in the controller's loops."""
        self.seconds = 0
        self.others: list[Callable[[], None]] = []
        """Functions of other simulated controllers, called every second."""
        self.skew = timedelta()
        """The offset of the controller's clock from the cluster's."""
        self.node_image = "registry/upgrader@sha256:" + "0" * 64
        self.builds = BuildSettings()
        self.trust: FakeTrust | None = None
        self._steps: dict[tuple[str, str], _LastStep] = {}

    def restart(self, node_image: str | None = None) -> None:
        """Discard the memory of the controller, as a new process does."""
        self.sightings, self.gates, self.heard, self._steps = Sightings(), Gates(), EventMemory(), {}
        self.facts, self.looks, self.rehearsals = FactCaches(), Looks(), Pauses(REHEARSED_AGAIN)
        self.stackless, self.annotation_removals = stackless.StacklessPass(), Pauses(ANNOTATION_REMOVAL_RETRY)
        self.node_image = node_image or self.node_image

    def share_pod_lists(self, seconds: float) -> None:
        """Let loops share the list of all pods, as in a real controller."""
        self.workloads = Workloads(seconds=seconds, clock=lambda: self.cluster.clock.now().timestamp())

    @property
    def context(self) -> Context:
        return Context(
            cluster=self.cluster,
            nodes=self.node_cache or FakeNodes(self.cluster),
            registry=self.registry,
            clock=SkewedClock(self.cluster.clock, self.skew),
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

    def put_image(self, version: str, kernel: str = "6.1.0-47-amd64") -> None:
        reference = f"registry/sim-driver:{version}-{kernel}"
        self.registry.push(reference, f"{version.replace('.', '')}{kernel.encode().hex()[:8]}")
        self.cluster.store.put(
            DRIVER_IMAGES,
            {
                "metadata": {"name": f"sim-{version}-{kernel}"},
                "spec": {"vendor": "sim", "version": version, "kernel": kernel, "image": reference},
            },
        )

    def make_spec(self, version: str, *, plugin: str = "1", kubelet: str = "1.34.4") -> dict[str, Any]:
        plugin_image, artifact = f"registry/plugin:{plugin}", f"registry/kubelet:{kubelet}"
        self.registry.push(plugin_image, f"aa{plugin}")
        self.registry.push(artifact, f"bb{kubelet.replace('.', '')}")
        return {
            "nodeSelector": {"pool": "a"},
            "driver": {"vendor": "sim", "version": version, "unverified": "Allow"},
            "devicePlugin": {"image": plugin_image, "resourceName": RESOURCE},
            "kubelet": {"manage": True, "version": kubelet, "artifact": artifact, "binary": "/usr/bin/kubelet"},
        }

    def apply_stack(self, spec: dict[str, Any], name: str = STACK) -> str:
        """Apply the stack; returns the revision of its spec."""
        existing = self.cluster.store.find_stored(GPU_STACKS, name)
        preserved = {"status": existing.value["status"]} if existing is not None and "status" in existing.value else {}
        self.cluster.store.put(GPU_STACKS, {"metadata": {"name": name}, "spec": spec, **preserved})
        return revision_of(target_of(msgspec.convert(spec, GpuStackSpec), name))

    def apply_plan(self, name: str, revision: str, *, interruptions: int = 100, **spec: Any) -> None:  # noqa: ANN401 - JSON
        approval = {"by": "test", "at": "2026-11-21T09:00:00Z", "limits": {"maxInterruptions": interruptions}}
        body: dict[str, Any] = {
            "stack": STACK,
            "targetRevision": revision,
            "approval": approval,
            "strategy": {},
        }
        # canaries only if a test requests them: most tests need one batch
        quick = {"maxUnavailable": "100%", "canary": {"enabled": False}, "waitForCompletionSeconds": 0}
        body = body | spec
        body["strategy"] = quick | body["strategy"]
        self.cluster.store.put(UPGRADE_PLANS, {"metadata": {"name": name}, "spec": body})

    # ---- running

    async def run_second(self) -> None:
        """Run the steps that are due, then a second of the simulation."""
        for image in self.list_objects(DRIVER_IMAGES, DriverImage):
            await self._loop("DriverImage", image.metadata.name, image_reconciler.reconcile_image)
        upgrades = self.list_objects(NODE_UPGRADES, NodeUpgrade)
        # as events do: a node upgrade wakes its plan or stack, even if that is deleted
        stacks = [stack_object.metadata.name for stack_object in self.list_objects(GPU_STACKS, GpuStack)]
        for stack in dict.fromkeys([*stacks, *(upgrade.spec.stack for upgrade in upgrades)]):
            await self._loop("GpuStack", stack, partial(stack_reconciler.reconcile_stack, sightings=self.sightings))
        await self._loop(stackless.KIND, stackless.NAME, self.stackless.run_pass)
        plans = [plan_object.metadata.name for plan_object in self.list_objects(UPGRADE_PLANS, UpgradePlan)]
        plans += [upgrade.spec.plan for upgrade in upgrades if upgrade.spec.plan]
        ordered = dict.fromkeys([*plans, *(request.spec.plan for request in self.requests() if request.spec.plan)])
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
        """Run the next step of an object if it is due: the store changed since the last one, or its time is up."""
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
            self._steps[kind, name] = _LastStep(
                version, now + timedelta(seconds=IDLE_SECONDS if delay is None else delay)
            )

    async def run_until(self, done: Callable[[], bool], seconds: int = 600, *, stride: int = 1) -> None:
        """Run until a condition holds; fails with the state of all objects after `seconds` of virtual time.

        `stride`: virtual seconds between two checks, for long waits.
        """
        for _ in range(0, seconds, stride):
            if done():
                return
            await self.run_second()
            self.cluster.clock.advance(stride - 1)
        raise AssertionError(f"not within {seconds} virtual seconds:\n{self.describe_state()}")

    async def settle(self, seconds: int = 60) -> None:
        """Run until the stack is installed on all nodes."""
        await self.run_until(self._settled, seconds)

    def _settled(self) -> bool:
        revision = self.stack_now().status.update_revision or "?"
        return self.nodes_on(revision) == len(self.nodes()) and all(
            is_final(upgrade.status.phase) for upgrade in self.upgrades()
        )

    # ---- looking

    def list_objects(self, kind: ResourceKind[Any], type_: type[T]) -> list[T]:
        return [stored.decoded(type_) for stored in self.cluster.store.list_stored(kind)]

    def stack_now(self) -> GpuStack:
        return self.list_objects(GPU_STACKS, GpuStack)[0]

    def plan_now(self, name: str) -> UpgradePlan:
        return next(
            plan_object
            for plan_object in self.list_objects(UPGRADE_PLANS, UpgradePlan)
            if plan_object.metadata.name == name
        )

    def upgrades(self, plan: str | None = None) -> list[NodeUpgrade]:
        """NodeUpgrades of a plan, or without a plan, the oldest first."""
        upgrades = [upgrade for upgrade in self.list_objects(NODE_UPGRADES, NodeUpgrade) if upgrade.spec.plan == plan]
        return sorted(upgrades, key=lambda upgrade: upgrade.metadata.creation_timestamp or "")

    def requests(self) -> list[CheckpointRequest]:
        return self.list_objects(CHECKPOINT_REQUESTS, CheckpointRequest)

    def nodes(self) -> list[dict[str, Any]]:
        return self.cluster.store.list_values(NODES)

    def nodes_on(self, revision: str) -> int:
        return sum(node["metadata"]["labels"].get("gpu-upgrader.io/revision") == revision for node in self.nodes())

    def is_over(self, plan: str) -> bool:
        return is_final(self.plan_now(plan).status.phase)

    def assert_nothing_left(self) -> None:
        """Law 9: no owner is stopped, and no object is marked, by the controller."""
        left = self.leftovers()
        if left:
            raise AssertionError("\n".join([*left, self.describe_state()]))

    def leftovers(self) -> list[str]:
        """Owners that the controller stopped and objects that it marked, as sentences."""
        upgrade_taints = (names.TAINT_MAINTENANCE, names.TAINT_RESERVED)
        left = [
            f"{row.kind} {_name_with_namespace(owner)} is stopped by the controller"
            for row in OWNERS
            for owner in self.cluster.store.list_values(resource_of(row, row.version))
            if names.ANNOTATION_STOPPED in owner["metadata"].get("annotations", {})
        ]
        left += [
            f"pod {_name_with_namespace(pod)} has annotation {mark}"
            for pod in self.cluster.store.list_values(PODS)
            for mark in (names.ANNOTATION_REQUEST, names.ANNOTATION_PARK_SECONDS)
            if mark in pod["metadata"].get("annotations", {})
        ]
        for node in self.nodes():
            name = node["metadata"]["name"]
            if names.ANNOTATION_CLAIMED_BY in node["metadata"].get("annotations", {}):
                left.append(f"node {name} is claimed by a node upgrade")
            left += [
                f"node {name} has taint {taint['key']}"
                for taint in node["spec"].get("taints", [])
                if taint["key"] in upgrade_taints
            ]
        return left

    def describe_state(self) -> str:
        """The state of all objects, for the message of a failed test."""
        lines = [
            f"plan {plan.metadata.name}: {plan.status.phase} {plan.status.message}"
            for plan in self.list_objects(UPGRADE_PLANS, UpgradePlan)
        ]
        lines += [
            f"node {upgrade.spec.node.name} {upgrade.spec.reason}: {status.phase} {status.reason} {status.message}"
            for upgrade in self.list_objects(NODE_UPGRADES, NodeUpgrade)
            for status in (upgrade.status,)
        ]
        lines += [
            f"gang {request.spec.gang}: {request.status.phase} {request.status.reason} {request.status.message}"
            for request in self.requests()
        ]
        lines += [
            f"blocked {blocker.subject}: {blocker.reason} {blocker.message}"
            for plan in self.list_objects(UPGRADE_PLANS, UpgradePlan)
            for blocker in plan.status.blockers
        ]
        lines += [f"stack: {stack.status}" for stack in self.list_objects(GPU_STACKS, GpuStack)]
        return "\n".join(lines)


def _name_with_namespace(value: dict[str, Any]) -> str:
    return f"{value['metadata']['namespace']}/{value['metadata']['name']}"


async def start_training(rig: Rig, *, nodes: int = 2, members: int = 2, gpus: int = 8) -> str:
    """A pool with driver 1.0 and a gang that trains; returns the revision of the next driver, plugin and kubelet."""
    for number in range(nodes):
        rig.fleet.add_node(f"gpu-{number}")
    rig.put_image("1.0")
    rig.put_image("2.0")
    rig.apply_stack(rig.make_spec("1.0"))
    await rig.settle()
    rig.fleet.add_job("gang", members=members, gpus=gpus)
    await rig.run_until(lambda: rig.fleet.trainers["gang"].step > 10)
    return rig.apply_stack(rig.make_spec("2.0", plugin="2", kubelet="1.35.4"))
