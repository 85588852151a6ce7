"""The world as the rules see it: wire objects into values, and the one reading of it all.

Everything but `read_snapshot` is a total function without I/O: what is missing or odd on the wire becomes the value
that lets us do less (not ready, no GPUs, undeclared).
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime

import msgspec

from upgrader.api import names
from upgrader.api.kubernetes import Namespace, Node, PodDisruptionBudget
from upgrader.api.resources import (
    DRIVER_IMAGES,
    GPU_STACKS,
    NAMESPACES,
    PDBS,
    POLICY_BINDINGS,
    UPGRADE_PLANS,
)
from upgrader.api.v1alpha1 import DriverImage, GpuStack, GpuStackSpec
from upgrader.core import timing
from upgrader.core.driver_build.driver_builds import CheckName
from upgrader.core.model import sharing
from upgrader.core.model.fleet import ImageBuild, ImageFacts, NodeFacts, Snapshot, Target
from upgrader.core.model.phases import DriverImagePhase
from upgrader.core.model.revisions import with_revision
from upgrader.core.model.vendors import choose
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads import placement
from upgrader.core.workloads.owner_kinds import owner_kind
from upgrader.core.workloads.owner_objects import stopped_owners
from upgrader.core.workloads.pod_disruption_budgets import DisruptionBudget, Requirement, Selector, blocked
from upgrader.reconcile.facts.device_claims import holders_by_node
from upgrader.reconcile.facts.fact_cache import FactCache
from upgrader.reconcile.facts.operand_pods import operand_pod
from upgrader.reconcile.facts.reading import Reading
from upgrader.reconcile.facts.workloads import Workloads
from upgrader.reconcile.observe.other_plans import taken_back, taken_elsewhere
from upgrader.reconcile.ports import Cluster
from upgrader.reconcile.runtime.context import Context

CLUSTER_NAMESPACE = "kube-system"
"""Its uid stands for the cluster: it is there from the beginning and is never made again."""


def target_of(spec: GpuStackSpec, stack: str) -> Target:
    """What a stack asks of its nodes, named by its revision; digests are not known here.

    Raises:
        ConfigurationError: vendor, recipe and flavour of its driver do not go together, or ways of sharing its GPUs.
    """
    kubelet, shared = spec.kubelet, spec.device_plugin.sharing
    driver = choose(spec.driver.vendor, spec.driver.recipe or "", spec.driver.flavour or "")
    managed = kubelet.manage and kubelet.version is not None
    target = Target(
        stack=stack,
        revision="",
        driver_vendor=driver.vendor,
        driver_version=spec.driver.version,
        vendor="" if spec.driver.vendor == driver.vendor else spec.driver.vendor,
        driver_recipe=driver.recipe,
        driver_flavour=driver.flavour,
        plugin_image=(spec.device_plugin.image or "") if spec.device_plugin.management == "Managed" else "",
        time_slices=shared.time_slices or 0,
        mps_replicas=shared.mps.replicas if shared.mps is not None else 0,
        mps_runtime=(shared.mps.runtime_class or "") if shared.mps is not None else "",
        mig_strategy=shared.mig_strategy or "",
        runtime_image=(spec.runtime.image or "") if spec.runtime.management == "Managed" else "",
        resource_name=spec.device_plugin.resource_name,
        kubelet_version=(kubelet.version or "") if managed else "",
        kubelet_artifact=(kubelet.artifact or "") if managed else "",
        kubelet_binary=kubelet.binary if managed or kubelet.settings.values else "",
        kubelet_settings=kubelet.settings.values,
        workload_image=spec.validation.workload_image or "",
        workload_runtime=spec.validation.runtime_class or "",
        kernel=spec.reboot.kernel if spec.reboot is not None else "",
        reboot_select=tuple(spec.reboot.select) if spec.reboot is not None else (),
        reboot_restart=tuple(spec.reboot.restart) if spec.reboot is not None else (),
    )
    sharing.check(target)
    return with_revision(target)


def in_pool(node: Node, spec: GpuStackSpec) -> bool:
    """Whether a stack selects a node."""
    return all(node.metadata.labels.get(key) == value for key, value in spec.node_selector.items())


def _selecting(node: Node, stacks: Iterable[GpuStack]) -> tuple[str, ...]:
    return tuple(sorted(one.metadata.name for one in stacks if in_pool(node, one.spec)))


def image_facts(image: DriverImage, *, allowed: bool = True) -> ImageFacts | None:
    """A driver image; None while it is not Ready. `allowed`: also where nobody vouches for it."""
    spec, status = image.spec, image.status
    if status.phase is not DriverImagePhase.READY or not status.key or not status.digest:
        return None
    return ImageFacts(
        key=status.key,
        vendor=spec.vendor,
        version=spec.version,
        kernel=spec.kernel,
        digest=status.digest,
        recipe=spec.recipe or "",
        flavour=spec.flavour or "",
        unverified=not (allowed or _vouched(image)),
    )


def _vouched(image: DriverImage) -> bool:
    """Whether it was verified with the controller's key."""
    return any(check.check is CheckName.IMAGE_SIGNATURE and check.passed for check in image.status.checks)


def image_build(image: DriverImage, *, allowed: bool = True) -> ImageBuild:
    """A driver image in whatever phase it is."""
    spec, status = image.spec, image.status
    return ImageBuild(
        name=image.metadata.name,
        vendor=spec.vendor,
        version=spec.version,
        kernel=spec.kernel,
        phase=status.phase,
        made_at=timing.parse(image.metadata.creation_timestamp) if image.metadata.creation_timestamp else None,
        recipe=spec.recipe or "",
        flavour=spec.flavour or "",
        os=spec.os or "",
        arch=spec.arch,
        message=status.message,
        unverified=status.phase is DriverImagePhase.READY and not (allowed or _vouched(image)),
    )


def _images(images: Iterable[DriverImage], *, allowed: bool) -> tuple[ImageFacts, ...]:
    found = (image_facts(image, allowed=allowed) for image in images)
    return tuple(sorted((facts for facts in found if facts is not None), key=lambda facts: facts.key))


def disruption_budget(budget: PodDisruptionBudget) -> DisruptionBudget:
    """A PodDisruptionBudget; one that was changed since its controller counted allows nothing, as in an eviction."""
    counted = budget.status.observed_generation
    stale = counted is not None and counted < budget.metadata.generation
    return DisruptionBudget(
        name=budget.metadata.name,
        namespace=budget.metadata.namespace,
        selector=_selector(budget),
        allowed=0 if stale else budget.status.disruptions_allowed,
    )


def snapshot_of(
    seen: Reading,
    spec: GpuStackSpec,
    gpus: PoolGpus,
    now: datetime,
    *,
    stack: str = "",
    empties: Target | None = None,
    kept: FactCache | None = None,
) -> Snapshot:
    """What was read, for one stack: its nodes, and the gangs that have a member on one of them.

    `gpus`: by what its pods hold GPUs, and its nodes offer them.
    `empties`: what upgrades lead to; what one would end without GPUs, by a reboot or by other settings of the kubelet,
    counts as a gang too. None: nothing of that is done.
    `kept`: what the last look of the same loop has derived.
    """
    kept = kept or FactCache()
    allowed = spec.driver.unverified == "Allow"
    gpus = msgspec.structs.replace(gpus, claimed=seen.claimed)
    nodes = kept.read_nodes(seen.nodes.values(), gpus.resource, gpus.former)
    holders = holders_by_node(seen.pods, seen.claimed)
    rivals = [one for one in seen.stacks if one.metadata.name != stack]
    pool = {
        name: _in_its_pool(nodes[name], _selecting(node, rivals), holders.get(name, ()))
        for name, node in seen.nodes.items()
        if in_pool(node, spec)
    }
    others = [facts for name, facts in nodes.items() if name not in pool]
    emptied = frozenset(name for name, node in pool.items() if empties is not None and empties.empties(node))
    gangs = [gang for gang in kept.gangs.read(seen, gpus, spec, now, emptied) if gang.nodes & pool.keys()]
    return Snapshot(
        cluster=next((one.metadata.uid for one in seen.namespaces if one.metadata.name == CLUSTER_NAMESPACE), ""),
        taken_at=now,
        nodes=tuple(pool[name] for name in sorted(pool)),
        gangs=tuple(gangs),
        images=_images(seen.images, allowed=allowed),
        builds=tuple(sorted((image_build(one, allowed=allowed) for one in seen.images), key=lambda build: build.name)),
        pdb_blocked=blocked(gangs, (disruption_budget(one) for one in seen.budgets)),
        steering=_steering(seen.api_server_version),
        shaped=tuple(sorted(one.metadata.name for one in seen.namespaces if seen.shaping and _opted_in(one))),
        foreign_unavailable_gpus=taken_elsewhere(seen.plans, others, stack),
        api_server_version=seen.api_server_version,
        taken_back=taken_back(seen.stacks, seen.plans, stack),
        stopped=stopped_owners(seen.works),
        operands=tuple(
            one for pod in seen.pods if (one := operand_pod(pod, seen.own_namespace)) is not None and one.node in pool
        ),
    )


def _in_its_pool(node: NodeFacts, claimants: tuple[str, ...], holders: tuple[str, ...]) -> NodeFacts:
    if not claimants and not holders:
        return node
    return msgspec.structs.replace(node, claimants=claimants, held_by_claim=holders)


def _opted_in(namespace: Namespace) -> bool:
    return namespace.metadata.labels.get(names.LABEL_ADMISSION) == "true"


def _steering(api_server_version: str) -> bool:
    """Whether the template of a suspended Job can be changed; some other owners' can on any version."""
    row = owner_kind("Job", "batch/v1")
    return row is not None and placement.possible(row, api_server_version)


async def read_snapshot(
    context: Context,
    stack: GpuStack,
    target: Target,
    *,
    former: tuple[str, ...] = (),
    method: str = "",
    reboots: bool = False,
    kept: FactCache | None = None,
) -> Snapshot | None:
    """Read the world once; None while the nodes are not in step with the API server (then nothing is decided).

    `former`: extended resources that other revisions of the stack offer, see `revisions.former_resources`.
    `method` is how jobs are asked that do not say; without it they are waited for.
    `reboots`: whether nodes would be emptied, to reboot them or to set their kubelets anew, where the target asks for
    that; only plans do it.
    `kept`: what the last look of the same loop has derived.

    Raises:
        ClusterError: the API server refused, or could not be reached.
        ConfigurationError: a rule of the stack about who belongs together cannot be used.
    """
    cluster, now = context.cluster, context.clock.now()
    if context.nodes.snapshot() is None:
        return None
    version, seen = await cluster.version(), await read_around(cluster, context.stack.namespace, context.workloads)
    known = context.nodes.snapshot()
    if known is None:  # they got out of step while the rest was read
        return None
    seen = msgspec.structs.replace(seen, nodes=known, api_server_version=version, method=method)
    empties = target if reboots else None
    gpus = PoolGpus(resource=target.resource_name, former=former)
    return snapshot_of(seen, stack.spec, gpus, now, stack=stack.metadata.name, empties=empties, kept=kept)


async def read_around(cluster: Cluster, own_namespace: str, workloads: Workloads) -> Reading:
    """All but the nodes themselves; `own_namespace`: in which our own pods are.

    `workloads`: how old pods and their owners may be.

    Raises:
        ClusterError: the API server refused, or could not be reached.
    """
    # Side by side: the API server answers one while another is decoded.
    (work, budgets), (images, namespaces, plans, binding, stacks) = await asyncio.gather(
        asyncio.gather(workloads.read(cluster), cluster.list(PDBS)),
        asyncio.gather(
            cluster.list(DRIVER_IMAGES),
            cluster.list(NAMESPACES),
            cluster.list(UPGRADE_PLANS),
            cluster.get(POLICY_BINDINGS, names.STEERING_POLICY),
            cluster.list(GPU_STACKS),
        ),
    )
    return Reading(
        own_namespace=own_namespace,
        pods=work.pods,
        claims=work.claims,
        claimed=work.claimed,
        works=work.works,
        budgets=budgets,
        images=images,
        namespaces=namespaces,
        plans=plans,
        stacks=stacks,
        shaping=binding is not None,
    )


def _selector(budget: PodDisruptionBudget) -> Selector | None:
    selector = budget.spec.selector
    if selector is None:
        return None
    return Selector(
        labels=selector.match_labels,
        requirements=tuple(
            Requirement(
                key=str(one.get("key", "")),
                operator=str(one.get("operator", "")),
                values=tuple(str(value) for value in one.get("values") or ()),
            )
            for one in selector.match_expressions
        ),
    )
