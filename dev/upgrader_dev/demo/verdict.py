"""The check of the demo's results."""

from collections.abc import Iterator

from upgrader.core.model.phases import NodePhase
from upgrader_dev.demo.report import DemoReport, JobReport, NodeReport


def find_faults(report: DemoReport) -> tuple[str, ...]:
    """Missing results, as sentences; empty if the demo showed everything."""
    last_upgrades = {upgrade.node: upgrade for upgrade in report.upgrades}
    return (
        *(fault for job in report.jobs for fault in _job_faults(job)),
        *(fault for node in report.nodes for fault in _node_faults(node)),
        *(
            f"the last upgrade of {upgrade.node} ({upgrade.reason}) ended as {upgrade.phase}"
            for upgrade in last_upgrades.values()
            if upgrade.phase != NodePhase.SUCCEEDED
        ),
    )


def _job_faults(job: JobReport) -> Iterator[str]:
    if job.steps_lost:
        yield f"job {job.name} lost {job.steps_lost} step(s)"
    if job.interruptions > 1:
        yield f"job {job.name} was stopped {job.interruptions} times"
    if job.interruptions and job.resumed_from_step != job.acknowledged_step:
        yield f"job {job.name} acknowledged step {job.acknowledged_step} and resumed from step {job.resumed_from_step}"


def _node_faults(node: NodeReport) -> Iterator[str]:
    if node.kind == "kwok":
        if node.api_writes:
            yield f"{node.name} belongs to no pool and was changed {node.api_writes} time(s)"
        return
    changes = {"driver": node.driver, "device plugin": node.device_plugin, "kubelet": node.kubelet}
    if node.module is not None:
        changes["module in the kernel"] = node.module
    for what, change in changes.items():
        if change.before == change.after:
            yield f"{node.name} still has {what} {change.before or 'none'}"
