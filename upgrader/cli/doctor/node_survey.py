"""`upgrader doctor --node`: a survey of nodes by a pod on each, which is deleted afterwards."""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from upgrader.api import names
from upgrader.api.kubernetes import Node
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, NODES
from upgrader.api.v1alpha1 import GpuStack
from upgrader.cli.doctor.node_pod import Sleep, run_node_pod
from upgrader.cli.shared import cluster_reading
from upgrader.core import timing, untrusted
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.node_survey import SurveyCheck, SurveyReport
from upgrader.core.driver_image.catalogue import fits_target
from upgrader.core.errors import ClusterError, ConfigurationError, UpgraderError
from upgrader.core.model.fleet import ImageFacts, Target
from upgrader.core.node_protocol.orders import KubeletTarget, SurveyScope
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.naming import SURVEY
from upgrader.stack.node_pods.survey import DEADLINE_SECONDS, survey_pod
from upgrader.stack.settings import StackSettings


class NodeSurvey(Struct, frozen=True, kw_only=True):
    """The report on one node."""

    node: str
    report: SurveyReport


async def survey_nodes(
    context: Context, nodes: Sequence[str], *, settings: StackSettings, sleep: Sleep
) -> list[NodeSurvey]:
    """Survey nodes side by side; the pods are deleted, also if a survey fails, which is a problem of its node.

    Raises:
        ConfigurationError: a node is not found.
    """
    stacks = await context.cluster.list(GPU_STACKS)
    found = [await _read_node(context, name) for name in nodes]
    run = timing.format_time(context.clock.now())
    images = [
        facts for image in await context.cluster.list(DRIVER_IMAGES) if (facts := cluster_snapshot.image_facts(image))
    ]
    scopes = ((node, survey_scope(node, stacks, images, settings)) for node in found)
    return list(
        await asyncio.gather(*(_survey_node(context, node, run, scope, settings, sleep) for node, scope in scopes))
    )


async def _read_node(context: Context, name: str) -> Node:
    node = await context.cluster.get(NODES, name)
    if node is None:
        raise ConfigurationError(f"node {name} not found")
    return node


def survey_scope(
    node: Node, stacks: Sequence[GpuStack], images: Sequence[ImageFacts], settings: StackSettings
) -> SurveyScope:
    """What the stack of a node would change there; without a stack, the driver of NVIDIA."""
    scope = SurveyScope(
        vendor="nvidia", namespace=settings.namespace, adopted=names.ANNOTATION_ADOPT in node.metadata.annotations
    )
    targets, _ = cluster_reading.split_targets(stacks)
    found = next(((stack, target) for stack, target in targets if cluster_snapshot.in_pool(node, stack.spec)), None)
    return scope if found is None else _add_target(scope, *found, node, images)


def _add_target(
    scope: SurveyScope, stack: GpuStack, target: Target, node: Node, images: Sequence[ImageFacts]
) -> SurveyScope:
    kernel = target.kernel or node.status.node_info.kernel_version
    image = next((image for image in images if image.kernel == kernel and fits_target(image, target)), None)
    swapped = target.kubelet_version not in {"", node.status.node_info.kubelet_version.removeprefix("v")}
    kubelet = KubeletTarget(version=target.kubelet_version, binary=target.kubelet_binary) if swapped else None
    reboots = target.kernel not in {"", node.status.node_info.kernel_version} or stack.spec.reboots_after_failed_unload
    return msgspec.structs.replace(
        scope,
        ends_pods=reboots,
        reboots=reboots,
        vendor=target.driver_vendor,
        kernel=target.kernel,
        services=image.services if image is not None else None,
        kubelet=kubelet,
        restarts_kubelet=bool(target.kubelet_version or target.kubelet_settings),
        binary=target.kubelet_binary,
        resources=(target.resource_name,),
        managed_runtime=bool(target.runtime_image),
    )


async def _survey_node(
    context: Context, node: Node, run: str, scope: SurveyScope, settings: StackSettings, sleep: Sleep
) -> NodeSurvey:
    name = node.metadata.name
    try:
        return NodeSurvey(node=name, report=await _run_survey(context, name, run, scope, settings, sleep))
    except UpgraderError as error:
        failure = Advice(
            subject=name,
            check=SurveyCheck.CANNOT_LOOK.value,
            severity=Severity.PROBLEM,
            message=f"{error.brief}: {error.details}" if error.details else error.brief,
            fix=error.resolution or "See the log of the controller and the events of the pod.",
        )
        return NodeSurvey(node=name, report=SurveyReport(findings=(failure,)))


async def _run_survey(
    context: Context, node: str, run: str, scope: SurveyScope, settings: StackSettings, sleep: Sleep
) -> SurveyReport:
    manifest = survey_pod(node, run, scope, settings)
    return read_survey(await run_node_pod(context, manifest, SURVEY, DEADLINE_SECONDS, sleep))


def read_survey(log: bytes) -> SurveyReport:
    """The first line of the log of a survey; everything from a node may be forged or damaged.

    Raises:
        ClusterError: it is no report.
    """
    report = untrusted.read_json(log.partition(b"\n")[0].decode(errors="replace"), SurveyReport)
    if report is None:
        raise ClusterError(
            "the survey has no readable report",
            details=log[:300].decode(errors="replace"),
            resolution="Check that UPGRADER_NODE_IMAGE is of this release.",
        )
    return report
