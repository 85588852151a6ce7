"""The checks of `upgrader doctor`: their reads of the cluster.

The checks are independent, so that one rejected request does not hide other findings.
"""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from upgrader.api import names
from upgrader.api.crd import crd_manifest
from upgrader.api.kinds import KINDS
from upgrader.api.kubernetes import Node
from upgrader.api.resources import DAEMONSETS, DRIVER_IMAGES, GPU_STACKS, NODES, ResourceKind
from upgrader.api.reviews import WHO_AM_I
from upgrader.api.v1alpha1 import DriverImage, GpuStack
from upgrader.cli.doctor import access, claimed_gpus, measured_limits
from upgrader.cli.shared import cluster_reading, policies
from upgrader.core import timing
from upgrader.core.doctor import checkup
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.checkup import LeaseFacts
from upgrader.core.doctor.other_operators import DaemonSetFacts, other_operators
from upgrader.core.driver_image.image_names import with_registry
from upgrader.core.errors import ClusterError, ConfigurationError, RegistryError, UnreachableError
from upgrader.core.model.phases import DriverImagePhase
from upgrader.core.workloads import placement
from upgrader.core.workloads.owner_kinds import OWNERS
from upgrader.kube.lease import CONTROLLER, LEASES
from upgrader.reconcile.gpu_stack import drift_status
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.operands import nondisruptive_operands
from upgrader.reconcile.runtime.context import Context

DEFINITIONS: ResourceKind[dict[str, Any]] = ResourceKind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
    type=dict[str, Any],
)

Look = Callable[[Context], Awaitable[Sequence[Advice]]]


async def run_checks(context: Context) -> tuple[Advice, ...]:
    """The results of all checks of this cluster.

    Raises:
        UnreachableError: the API server is not reachable.
    """
    await context.cluster.version()
    looked = {
        "API server": _check_version,
        "clocks": _check_clocks,
        "definitions": _check_definitions,
        "your rights": access.own_rights,
        "the controller's rights": access.controllers_rights,
        "controller": _check_controller,
        "admission policies": _check_policies,
        "other operators": _check_other_operators,
        "images": _check_images,
        "stacks": _check_stacks,
        "dynamic resources": claimed_gpus.find_claimed_gpus,
        "limits": measured_limits.check_measured_limits,
    }
    results = [await _run_check(context, subject, look) for subject, look in looked.items()]
    return tuple(advice for part in results for advice in part)


async def _run_check(context: Context, subject: str, look: Look) -> Sequence[Advice]:
    try:
        return await look(context)
    except UnreachableError:
        raise
    except (ClusterError, ConfigurationError) as error:
        message = f"the check failed: {error.brief}{f' ({error.details})' if error.details else ''}"
        return [
            Advice(
                subject=subject,
                check="CannotLook",
                severity=Severity.WARNING,
                message=message,
                fix=error.resolution or "Run the check as a user with the required rights, or with another --context.",
            )
        ]


async def _check_version(context: Context) -> list[Advice]:
    version = await context.cluster.version()
    unsteered = sorted({row.kind for row in OWNERS if row.templates and not placement.is_steerable(row, version)})
    return [checkup.check_version(version, unsteered)]


async def _check_clocks(context: Context) -> list[Advice]:
    before = context.clock.now()
    server = await _server_time(context)
    return [checkup.check_clock(server, before, context.clock.now())]


async def _server_time(context: Context) -> datetime:
    seen = await context.cluster.create(WHO_AM_I, {"metadata": {}})
    if not seen.metadata.creation_timestamp:
        raise ConfigurationError("the API server did not return its time")
    return timing.parse_time(seen.metadata.creation_timestamp)


async def _check_definitions(context: Context) -> list[Advice]:
    findings = []
    for kind in KINDS:
        wanted = crd_manifest(kind)
        name = wanted["metadata"]["name"]
        there = await context.cluster.get(DEFINITIONS, name)
        findings.append(checkup.check_definition(name, wanted["spec"], there["spec"] if there is not None else None))
    return findings


async def _check_controller(context: Context) -> list[Advice]:
    namespace = context.stack.namespace
    lease = await context.cluster.get(LEASES, CONTROLLER, namespace)
    facts = None
    if lease is not None:
        renewed = timing.parse_time(lease.spec.renew_time) if lease.spec.renew_time else datetime.fromtimestamp(0, UTC)
        facts = LeaseFacts(
            holder=lease.spec.holder_identity or "",
            renewed_at=renewed,
            seconds=lease.spec.lease_duration_seconds or 0,
        )
    return [checkup.check_controller(facts, await _server_time(context), namespace)]


async def _check_policies(context: Context) -> list[Advice]:
    there = await policies.installed_policies(context)
    return [checkup.check_policy(policy.name, installed=policy.name in there) for policy in policies.SHIPPED]


async def _check_other_operators(context: Context) -> Sequence[Advice]:
    stacks = await context.cluster.list(GPU_STACKS)
    nodes = await context.cluster.list(NODES)
    definitions = await context.cluster.list(DEFINITIONS)
    daemonsets = [
        DaemonSetFacts(
            name=f"{daemonset.metadata.namespace}/{daemonset.metadata.name}",
            pods=daemonset.status.desired_number_scheduled,
        )
        for daemonset in await context.cluster.list(DAEMONSETS)
        if names.LABEL_STACK not in daemonset.metadata.labels
    ]
    labels_by_node = {node.metadata.name: node.metadata.labels for node in nodes if _in_any(node, stacks)}
    return other_operators(
        (str(definition["metadata"]["name"]) for definition in definitions), daemonsets, labels_by_node
    )


def _in_any(node: Node, stacks: Sequence[GpuStack]) -> bool:
    return any(cluster_snapshot.in_pool(node, stack.spec) for stack in stacks)


async def _check_images(context: Context) -> list[Advice]:
    findings = []
    valid, invalid = cluster_reading.split_targets(await context.cluster.list(GPU_STACKS))
    findings += [checkup.report_invalid_stack(stack.metadata.name, error) for stack, error in invalid]
    for stack, target in valid:
        by_themselves = (operand.image for operand in nondisruptive_operands.managed_operands(stack).values())
        named = filter(None, (target.runtime_image, target.plugin_image, target.kubelet_artifact, *by_themselves))
        findings += [await _check_image(context, with_registry(image, context.stack.registry)) for image in named]
    images = await context.cluster.list(DRIVER_IMAGES)
    doubtful = sorted(image.metadata.name for image in images if _in_service_unverified(image))
    findings += [checkup.report_unverified(doubtful)] if doubtful else []
    message = "installed" if shutil.which("buildah") else "not installed; only machines that build images require it"
    findings.append(Advice(subject="buildah", check="Buildah", severity=Severity.OK, message=message))
    return findings


async def _check_stacks(context: Context) -> list[Advice]:
    """Conditions of stacks that a user should review before a reboot or a rollout."""
    return [
        Advice(
            subject=f"stack {stack.metadata.name}",
            check=condition.type,
            severity=Severity.WARNING,
            message=condition.message,
            fix=fix,
        )
        for stack in await context.cluster.list(GPU_STACKS)
        for condition in stack.status.conditions
        if condition.status == "False" and (fix := drift_status.FIXES.get(condition.type))
    ]


def _in_service_unverified(image: DriverImage) -> bool:
    verified = next((condition.status for condition in image.status.conditions if condition.type == "Verified"), "")
    return image.status.phase is DriverImagePhase.READY and verified == "False"


async def _check_image(context: Context, image: str) -> Advice:
    try:
        digest = await context.registry.digest(image)
    except RegistryError as error:
        return Advice(
            subject=image,
            check="Registry",
            severity=Severity.WARNING,
            message=f"the registry is not reachable from this machine: {error.brief}",
            fix="`plan` requires the registry; nodes may still reach it. List registries that use plain HTTP "
            "in UPGRADER_INSECURE_REGISTRIES.",
        )
    if digest is None:
        return Advice(
            subject=image,
            check="Registry",
            severity=Severity.PROBLEM,
            message="the image is not in its registry",
            fix="Push the image, or correct the stack.",
        )
    return Advice(
        subject=image,
        check="Registry",
        severity=Severity.OK,
        message=f"found with digest {digest.partition('@')[2][:19]}",
    )
