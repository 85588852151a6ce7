"""The measurements: versions from running pods and Nodes, steps from journals, writes from the audit log."""

from collections.abc import Mapping

from msgspec import Struct

from upgrader.api import names
from upgrader.api.resources import CHECKPOINT_REQUESTS, DRIVER_IMAGES, JOBS, NODE_UPGRADES, NODES, PODS
from upgrader.api.v1alpha1 import NodeUpgrade
from upgrader.core import timing
from upgrader.core.model.phases import NodePhase, is_final
from upgrader.kube.client import KubeCluster
from upgrader.reconcile.ports import Cluster
from upgrader.stack.naming import upgrade_of
from upgrader_dev.demo.audit import parse_entries, writes_per_node
from upgrader_dev.demo.controller import NAMESPACE, USER
from upgrader_dev.demo.journals import read_job
from upgrader_dev.demo.report import JobReport, NodeReport, UpgradeReport, VersionChange
from upgrader_dev.demo.stage import Stage


class Versions(Struct, frozen=True, kw_only=True):
    """The versions on a node, from its Node and the images of its operand pods; empty without a pod."""

    driver: str = ""
    device_plugin: str = ""
    kubelet: str = ""


async def read_versions(kube: KubeCluster, made: Stage) -> dict[str, Versions]:
    """The versions of all nodes, by node name."""
    drivers = {driver_image.status.digest: driver_image.spec.version for driver_image in await kube.list(DRIVER_IMAGES)}
    plugins = {image.partition("@")[2]: name for name, image in made.images.plugins.items()}
    running: dict[tuple[str, str], str] = {}
    for pod in await kube.list(PODS, NAMESPACE):
        component = pod.metadata.labels.get(names.LABEL_COMPONENT, "")
        if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None:
            running[pod.spec.node_name, component] = pod.spec.containers[0].image
    return {
        node.metadata.name: Versions(
            driver=drivers.get(running.get((node.metadata.name, "driver"), ""), ""),
            device_plugin=plugins.get(running.get((node.metadata.name, "device-plugin"), "").partition("@")[2], ""),
            kubelet=node.status.node_info.kubelet_version.removeprefix("v"),
        )
        for node in await kube.list(NODES)
    }


async def read_jobs(kube: KubeCluster, made: Stage, jobs: Mapping[str, int]) -> tuple[JobReport, ...]:
    """The jobs, from their journals; only the acknowledged step comes from the CheckpointRequest."""
    acknowledged = {
        request.spec.owner.name: request.status.acknowledged_step
        for request in await kube.list(CHECKPOINT_REQUESTS)
        if request.status.acknowledged_step is not None
    }
    reports = []
    for name, members in jobs.items():
        history = read_job(made.journals(name))
        reports.append(
            JobReport(
                name=name,
                members=members,
                steps_done=history.steps_done,
                acknowledged_step=acknowledged.get(name),
                resumed_from_step=history.resumed_from,
                steps_lost=history.steps_lost,
                interruptions=history.interruptions,
                seconds_not_running=history.seconds_not_running,
                refusals=history.refusals,
                finished=history.finished,
            )
        )
    return tuple(reports)


async def read_nodes(
    kube: KubeCluster, made: Stage, before: Mapping[str, Versions], since: str
) -> tuple[NodeReport, ...]:
    """The nodes, before and now, and the writes of the controller's user for each since then."""
    now = await read_versions(kube, made)
    objects = await _objects_of_upgrades(kube)
    writes = writes_per_node(
        parse_entries(made.cluster.audit_log.read_bytes()),
        user=USER,
        since=since,
        namespace=NAMESPACE,
        upgrades=objects,
    )
    kinds = {name: node.sort for name, node in made.cluster.nodes.items()}
    return tuple(
        NodeReport(
            name=name,
            kind=kinds.get(name, ""),
            driver=VersionChange(before=before[name].driver, after=versions.driver),
            device_plugin=VersionChange(before=before[name].device_plugin, after=versions.device_plugin),
            kubelet=VersionChange(before=before[name].kubelet, after=versions.kubelet),
            api_writes=writes.get(name, 0),
        )
        for name, versions in sorted(now.items())
        if name in before
    )


async def read_upgrades(kube: Cluster) -> tuple[UpgradeReport, ...]:
    """The ended upgrades, in the order of their ends."""
    ended = [
        upgrade for upgrade in await kube.list(NODE_UPGRADES) if is_final(upgrade.status.phase) and upgrade.status.steps
    ]
    return tuple(
        upgrade_report(upgrade) for upgrade in sorted(ended, key=lambda upgrade: upgrade.status.steps[-1].started_at)
    )


def upgrade_report(upgrade: NodeUpgrade) -> UpgradeReport:
    """The report on a node upgrade, from its steps."""
    seconds: dict[str, float] = {}
    for step in upgrade.status.steps:
        if step.ended_at is not None:
            seconds[step.name] = seconds.get(step.name, 0.0) + _seconds_between(step.started_at, step.ended_at)
    closed = [step.started_at for step in upgrade.status.steps if step.name is NodePhase.TAINTING]
    opened = [step.ended_at for step in upgrade.status.steps if step.name is NodePhase.RELEASING and step.ended_at]
    return UpgradeReport(
        node=upgrade.spec.node.name,
        reason=upgrade.spec.reason,
        phase=upgrade.status.phase,
        seconds=seconds,
        closed_seconds=_seconds_between(closed[0], opened[-1]) if closed and opened else None,
    )


def _seconds_between(start: str, end: str) -> float:
    return (timing.parse_time(end) - timing.parse_time(start)).total_seconds()


async def _objects_of_upgrades(kube: KubeCluster) -> dict[str, str]:
    """Node by the name of each object of a plan's upgrade: its NodeUpgrade, pods and Jobs."""
    upgraded_nodes = {
        upgrade.metadata.name: upgrade.spec.node.name for upgrade in await kube.list(NODE_UPGRADES) if upgrade.spec.plan
    }
    nodes = dict(upgraded_nodes)
    pods = [pod.metadata for pod in await kube.list(PODS, NAMESPACE)]
    jobs = [job.metadata for job in await kube.list(JOBS, NAMESPACE)]
    for meta in (*pods, *jobs):
        if upgrade_of(meta) in upgraded_nodes:
            nodes[meta.name] = upgraded_nodes[upgrade_of(meta)]
    return nodes
