"""Tables of the embedded clusters and of the measurements of the demo."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from upgrader.cli.base.render import empty_table, list_names, show_change, titled_table
from upgrader_dev.demo.report import DemoReport, JobReport
from upgrader_dev.devcluster import ClusterStatus


def cluster_table(clusters: Sequence[ClusterStatus]) -> RenderableType:
    """The clusters on this machine."""
    if not clusters:
        return Text("No embedded cluster found on this machine.")
    table = empty_table("Cluster", "Up", "API server", "Registry", "Boxes", "Virtual", "Kwok", "Kubeconfig")
    for cluster in clusters:
        up = "yes" if cluster.running else "no"
        table.add_row(
            cluster.name,
            up,
            cluster.server,
            cluster.registry,
            _format_powers(cluster.boxes),
            _format_powers(cluster.vms),
            str(cluster.kwok),
            cluster.kubeconfig,
        )
    return table


def _format_powers(nodes: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({power})" for name, power in sorted(nodes.items()))


def demo_tables(report: DemoReport) -> RenderableType:
    """The measurements of the demo."""
    jobs = empty_table(
        "Job", "Members", "Steps done", "Refusals", "Acknowledged", "Resumed from", "Lost", "Stops", "Not running"
    )
    for job in report.jobs:
        jobs.add_row(
            job.name,
            str(job.members),
            str(job.steps_done),
            str(job.refusals),
            _format_number(job.acknowledged_step),
            _format_number(job.resumed_from_step),
            Text(str(job.steps_lost), style="red" if job.steps_lost else "green"),
            str(job.interruptions),
            f"{job.seconds_not_running:.1f} s",
        )
    real = any(node.module is not None for node in report.nodes)
    head = ("Kernel", "Module, by /sys") if real else ("Driver (simulated)",)
    nodes = empty_table("Node", "Kind", *head, "Device plugin", "Kubelet", "API writes")
    for node in report.nodes:
        if node.kind != "kwok":
            drivers = (node.kernel, node.module) if real else (node.driver,)
            versions = (
                show_change(change.before, change.after) if change is not None else ""
                for change in (*drivers, node.device_plugin, node.kubelet)
            )
            nodes.add_row(node.name, node.kind, *versions, str(node.api_writes))
    upgrades = empty_table(
        "Node", "Reason", "Ended", "Prepared in", "Cordon to uncordon", "Of that draining", "Upgrading"
    )
    for upgrade in report.upgrades:
        phases = [upgrade.seconds.get(phase) for phase in ("Draining", "Upgrading")]
        spans = (upgrade.seconds.get("Preparing"), upgrade.closed_seconds, *phases)
        upgrades.add_row(upgrade.node, upgrade.reason, upgrade.phase, *(_format_seconds(seconds) for seconds in spans))
    parts = [
        titled_table("Jobs, from their logs", jobs),
        *(Text(job_sentence(job)) for job in report.jobs),
        titled_table("Nodes, from the API and its audit log", nodes),
        titled_table("Node upgrades, from their steps", upgrades),
    ]
    fleet = [node for node in report.nodes if node.kind == "kwok"]
    touched = [node.name for node in fleet if node.api_writes]
    if fleet:
        about = f"changed: {list_names(touched)}" if touched else "none of them changed"
        parts.append(Text(f"and {len(fleet)} kwok nodes (API objects only), {about}"))
    return Group(
        *parts, Text(f"Total time: {report.seconds:.0f} s, with creation and deletion of the cluster", style="bold")
    )


def job_sentence(job: JobReport) -> str:
    """The numbers of a job, in a sentence."""
    lost = "no step was lost" if not job.steps_lost else f"{job.steps_lost} step(s) were lost"
    if job.finished and not job.interruptions:
        return f"{job.name}: completed at step {job.steps_done}; the plan waited for completion and did not stop it"
    if not job.interruptions:
        return f"{job.name}: continues, and was never stopped"
    refused = f"refused {job.refusals} time(s), then " if job.refusals else ""
    return (
        f"{job.name}: {refused}parked at step {job.acknowledged_step}, was stopped {job.interruptions} time(s) and "
        f"resumed from step {job.resumed_from_step}; {lost}"
    )


def _format_seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} s"


def _format_number(value: int | None) -> str:
    return "–" if value is None else str(value)
