"""The snapshot of the cluster for the rules: conversion of wire objects into values, and one joint read.

Everything but `read_snapshot` is a total function without I/O: missing or invalid input becomes the value that permits
less (not ready, no GPUs, undeclared).
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
from upgrader.core.constraints.emptied_nodes import emptied_nodes
from upgrader.core.driver_build.driver_builds import CheckName
from upgrader.core.model import sharing
from upgrader.core.model.fleet import ImageBuild, ImageFacts, NodeFacts, Snapshot, Target
from upgrader.core.model.phases import DriverImagePhase
from upgrader.core.model.revisions import with_revision
from upgrader.core.model.vendors import choose_driver
from upgrader.core.node_protocol.gpu_resources import PoolGpus
from upgrader.core.workloads import placement
from upgrader.core.workloads.owner_kinds import owner_kind
from upgrader.core.workloads.owner_objects import stopped_owners
from upgrader.core.workloads.pod_disruption_budgets import DisruptionBudget, Requirement, Selector, blocked_gangs
from upgrader.reconcile.facts.device_claims import holders_by_node
from upgrader.reconcile.facts.fact_cache import FactCache
from upgrader.reconcile.facts.operand_pods import operand_pod
from upgrader.reconcile.facts.reading import ClusterReading
from upgrader.reconcile.facts.workloads import Workloads
from upgrader.reconcile.observe.other_plans import taken_back, taken_elsewhere
from upgrader.reconcile.ports import Cluster
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.vendors import find_vendor

CLUSTER_NAMESPACE = "kube-system"
"""Its uid identifies the cluster: it exists from the beginning and is never recreated."""


def target_of(spec: GpuStackSpec, stack: str) -> Target:
    """The target of a stack's nodes, named by its revision, without digests.

    Raises:
        ConfigurationError: its vendor is not installed, or does not support its driver or settings of GPUs.
    """
    kubelet, shared = spec.kubelet, spec.device_plugin.sharing
    facts = find_vendor(spec.driver.vendor).facts
    driver = choose_driver(facts, spec.driver.recipe or "", spec.driver.flavour or "")
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
        module_parameters=tuple(sorted(spec.driver.parameters.items())),
        workload_image=spec.validation.workload_image or "",
        workload_runtime=spec.validation.runtime_class or "",
        all_reduce=spec.validation.all_reduce,
        diagnostics=spec.validation.diagnostics,
        kernel=spec.reboot.kernel if spec.reboot is not None else "",
        reboot_select=tuple(spec.reboot.select) if spec.reboot is not None else (),
        reboot_restart=tuple(spec.reboot.restart) if spec.reboot is not None else (),
    )
    sharing.check_gpu_settings(target, facts)
    return with_revision(target)


def in_pool(node: Node, spec: GpuStackSpec) -> bool:
    """Whether a stack selects a node."""
    return all(node.metadata.labels.get(key) == value for key, value in spec.node_selector.items())


def _selecting_stacks(node: Node, stacks: Iterable[GpuStack]) -> tuple[str, ...]:
    return tuple(sorted(stack.metadata.name for stack in stacks if in_pool(node, stack.spec)))


def image_facts(image: DriverImage, *, allowed: bool = True) -> ImageFacts | None:
    """A driver image; None while it is not Ready. `allowed`: unverified images are accepted."""
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
        services=tuple(status.services),
        unverified=not (allowed or _is_verified(image)),
    )


def _is_verified(image: DriverImage) -> bool:
    """Whether an image was verified with the controller's key."""
    return any(check.check is CheckName.IMAGE_SIGNATURE and check.passed for check in image.status.checks)


def image_build(image: DriverImage, *, allowed: bool = True) -> ImageBuild:
    """A driver image in any phase."""
    spec, status = image.spec, image.status
    return ImageBuild(
        name=image.metadata.name,
        vendor=spec.vendor,
        version=spec.version,
        kernel=spec.kernel,
        phase=status.phase,
        made_at=timing.parse_time(image.metadata.creation_timestamp) if image.metadata.creation_timestamp else None,
        recipe=spec.recipe or "",
        flavour=spec.flavour or "",
        os=spec.os or "",
        arch=spec.arch,
        message=status.message,
        unverified=status.phase is DriverImagePhase.READY and not (allowed or _is_verified(image)),
    )


def _ready_images(images: Iterable[DriverImage], *, allowed: bool) -> tuple[ImageFacts, ...]:
    ready = (image_facts(image, allowed=allowed) for image in images)
    return tuple(sorted((facts for facts in ready if facts is not None), key=lambda facts: facts.key))


def disruption_budget(budget: PodDisruptionBudget) -> DisruptionBudget:
    """A PodDisruptionBudget; with a stale status it allows no disruption, as in an eviction."""
    counted = budget.status.observed_generation
    stale = counted is not None and counted < budget.metadata.generation
    return DisruptionBudget(
        name=budget.metadata.name,
        namespace=budget.metadata.namespace,
        selector=_budget_selector(budget),
        allowed=0 if stale else budget.status.disruptions_allowed,
    )


def snapshot_of(
    seen: ClusterReading,
    spec: GpuStackSpec,
    gpus: PoolGpus,
    now: datetime,
    *,
    stack: str = "",
    empties: Target | None = None,
    kept: FactCache | None = None,
) -> Snapshot:
    """The snapshot of one stack: its nodes, and the gangs that have a member on one of them.

    `gpus`: resources by which its pods hold GPUs and its nodes offer them.
    `empties`: the target of upgrades; pods without GPUs that an upgrade would end, by a reboot or by other settings of
    the kubelet, count as gangs too. None: no upgrade does that.
    `kept`: facts that the same loop derived before.
    """
    kept = kept or FactCache()
    allowed = spec.driver.unverified == "Allow"
    gpus = msgspec.structs.replace(gpus, claimed=seen.claimed)
    nodes = kept.read_nodes(seen.nodes.values(), gpus.resource, gpus.former)
    holders = holders_by_node(seen.pods, seen.claimed)
    rivals = [other for other in seen.stacks if other.metadata.name != stack]
    pool = {
        name: _in_its_pool(nodes[name], _selecting_stacks(node, rivals), holders.get(name, ()))
        for name, node in seen.nodes.items()
        if in_pool(node, spec)
    }
    others = [facts for name, facts in nodes.items() if name not in pool]
    images, perhaps = _ready_images(seen.images, allowed=allowed), spec.reboots_after_failed_unload
    emptied = frozenset[str]()
    if empties is not None:
        emptied = emptied_nodes(tuple(pool.values()), empties, images, reboots_after_failed_unload=perhaps)
    gangs = [gang for gang in kept.gangs.read(seen, gpus, spec, now, emptied) if gang.nodes & pool.keys()]
    return Snapshot(
        cluster=next(
            (namespace.metadata.uid for namespace in seen.namespaces if namespace.metadata.name == CLUSTER_NAMESPACE),
            "",
        ),
        taken_at=now,
        nodes=tuple(pool[name] for name in sorted(pool)),
        gangs=tuple(gangs),
        images=images,
        builds=tuple(
            sorted((image_build(image, allowed=allowed) for image in seen.images), key=lambda build: build.name)
        ),
        pdb_blocked=blocked_gangs(gangs, (disruption_budget(budget) for budget in seen.budgets)),
        steering=_can_steer_jobs(seen.api_server_version),
        shaped=tuple(
            sorted(namespace.metadata.name for namespace in seen.namespaces if seen.shaping and _opted_in(namespace))
        ),
        foreign_unavailable_gpus=taken_elsewhere(seen.plans, others, stack),
        api_server_version=seen.api_server_version,
        taken_back=taken_back(seen.stacks, seen.plans, stack),
        stopped=stopped_owners(seen.works),
        reboots_after_failed_unload=perhaps,
        operands=tuple(
            operand
            for pod in seen.pods
            if (operand := operand_pod(pod, seen.own_namespace)) is not None and operand.node in pool
        ),
    )


def _in_its_pool(node: NodeFacts, claimants: tuple[str, ...], holders: tuple[str, ...]) -> NodeFacts:
    if not claimants and not holders:
        return node
    return msgspec.structs.replace(node, claimants=claimants, held_by_claim=holders)


def _opted_in(namespace: Namespace) -> bool:
    return namespace.metadata.labels.get(names.LABEL_ADMISSION) == "true"


def _can_steer_jobs(api_server_version: str) -> bool:
    """Whether the template of a suspended Job is mutable; that of some other owners is in any version."""
    row = owner_kind("Job", "batch/v1")
    return row is not None and placement.is_steerable(row, api_server_version)


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
    """Read the cluster once; None while the nodes are not in sync with the API server (then nothing is decided).

    `former`: extended resources that other revisions of the stack offer, see `revisions.former_resources`.
    `method`: checkpoint method of jobs that declare none; without it they are waited for.
    `reboots`: whether nodes are emptied, for a reboot or new kubelet settings, if the target requires that; only plans
    do it.
    `kept`: facts that the same loop derived before.

    Raises:
        ClusterError: the API server refused, or could not be reached.
        ConfigurationError: a gang rule of the stack is invalid.
    """
    cluster, now = context.cluster, context.clock.now()
    if context.nodes.snapshot() is None:
        return None
    version, seen = await cluster.version(), await read_around(cluster, context.stack.namespace, context.workloads)
    known = context.nodes.snapshot()
    if known is None:  # they got out of step while other objects were read
        return None
    seen = msgspec.structs.replace(seen, nodes=known, api_server_version=version, method=method)
    empties = target if reboots else None
    gpus = PoolGpus(resource=target.resource_name, former=former)
    return snapshot_of(seen, stack.spec, gpus, now, stack=stack.metadata.name, empties=empties, kept=kept)


async def read_around(cluster: Cluster, own_namespace: str, workloads: Workloads) -> ClusterReading:
    """Read everything but the nodes; `own_namespace`: namespace of the operator's own pods.

    `workloads`: the shared reading of pods and their owners.

    Raises:
        ClusterError: the API server refused, or could not be reached.
    """
    # Concurrently: the API server answers one request while another answer is decoded.
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
    return ClusterReading(
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


def _budget_selector(budget: PodDisruptionBudget) -> Selector | None:
    selector = budget.spec.selector
    if selector is None:
        return None
    return Selector(
        labels=selector.match_labels,
        requirements=tuple(
            Requirement(
                key=str(expression.get("key", "")),
                operator=str(expression.get("operator", "")),
                values=tuple(str(value) for value in expression.get("values") or ()),
            )
            for expression in selector.match_expressions
        ),
    )
