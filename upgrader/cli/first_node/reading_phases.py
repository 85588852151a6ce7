"""The phases that only read: cluster and node, survey, baseline, forecast."""

import re
import time
from collections.abc import Iterable, Sequence

from upgrader import __version__
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS, NODES
from upgrader.api.v1alpha1 import GpuStack
from upgrader.cli.doctor import doctor_checks, node_survey
from upgrader.cli.first_node import node_identity
from upgrader.cli.first_node.first_hour import FirstHour
from upgrader.cli.shared import cluster_reading
from upgrader.core import timing, untrusted
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.errors import ConfigurationError
from upgrader.core.explain.node_explanation import why_node
from upgrader.core.first_node.comparisons import compare_facts, compare_holders, compare_modules
from upgrader.core.first_node.report_page import PhaseResult
from upgrader.core.first_node.report_rows import MeasuredRow
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.node_protocol.recordings import RecordedOutput, RecordOrder
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.stack.naming import RECORD, SURVEY
from upgrader.stack.node_pods import survey as survey_pods

NAMES = "names"
"""The output with names that only the node knows; it is not written."""
MOST_OUTPUTS, MOST_NAMES = 64, 1000

_OUTPUT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}\.[a-z]{3}")


async def read_cluster(hour: FirstHour) -> PhaseResult:
    """Phase 0: what the API server knows of the node, and what `upgrader doctor` finds."""
    begin = time.monotonic()
    findings = await doctor_checks.run_checks(hour.context)
    seconds = time.monotonic() - begin
    node = node_identity.describe_node(await node_identity.read_node(hour.context, hour.node))
    version = await hour.context.cluster.version()
    info = node["nodeInfo"]
    shown = {name: str(info.get(key, "")) for name, key in _SHOWN.items()}
    found = tuple(advice for advice in findings if advice.severity is not Severity.OK)
    return PhaseResult(
        message=f"{len(found)} of {len(findings)} checks of the cluster have findings",
        facts={"upgrader": __version__, "API server": version, **shown},
        findings=found,
        measured=(MeasuredRow(what="checks of the cluster", seconds=seconds),),
        documents={"node.json": node},
    )


_SHOWN = {
    "kernel": "kernelVersion",
    "operating system": "osImage",
    "container runtime": "containerRuntimeVersion",
    "kubelet": "kubeletVersion",
    "architecture": "architecture",
}


async def survey_one(hour: FirstHour) -> PhaseResult:
    """Phase 1: the survey, compared with what the API server knows of the node."""
    cluster = hour.context.cluster
    node = await cluster.get(NODES, hour.node)
    if node is None:
        raise ConfigurationError(f"node {hour.node} not found")
    stacks = await cluster.list(GPU_STACKS)
    images = [facts for image in await cluster.list(DRIVER_IMAGES) if (facts := cluster_snapshot.image_facts(image))]
    scope = node_survey.survey_scope(node, stacks, images, hour.settings)
    manifest = survey_pods.survey_pod(hour.node, _run_name(hour), scope, hour.settings)
    begin = time.monotonic()
    report = node_survey.read_survey(await hour.run_pod(manifest, SURVEY, survey_pods.DEADLINE_SECONDS))
    whole = time.monotonic() - begin
    info = node.status.node_info
    problems = len(report.problems)
    return PhaseResult(
        message=f"{problems} problem(s), {len(report.warnings)} warning(s)",
        facts={f"{name} (survey)": value for name, value in report.facts.items()},
        findings=report.findings,
        measured=(
            MeasuredRow(what="survey: pod", seconds=whole, limit=survey_pods.DEADLINE_SECONDS),
            MeasuredRow(what="survey: checks on the node", seconds=report.seconds, limit=survey_pods.DEADLINE_SECONDS),
        ),
        missed=compare_facts({"kernel": info.kernel_version, "kubelet": info.kubelet_version}, report.facts),
    )


async def record_baseline(hour: FirstHour) -> PhaseResult:
    """Phase 2: outputs of programs and files of the node, as they are."""
    manifest = survey_pods.record_pod(hour.node, _run_name(hour), RecordOrder(), hour.settings)
    begin = time.monotonic()
    log = await hour.run_pod(manifest, RECORD, survey_pods.RECORD_DEADLINE_SECONDS)
    whole = time.monotonic() - begin
    outputs = read_outputs(log)
    private = outputs.pop(NAMES, None)
    if private is None or not outputs:
        raise ConfigurationError(
            "the log of the pod has no recorded outputs",
            details=log[:300].decode(errors="replace"),
            resolution="Check that UPGRADER_NODE_IMAGE is of this release.",
        )
    hour.hide_names(private.text.splitlines()[:MOST_NAMES])
    text = {name: output.text for name, output in outputs.items()}
    order = text.get("removal-order.txt", "").splitlines()
    absent = {name: output.absent for name, output in outputs.items() if output.absent}
    return PhaseResult(
        message=f"{len(outputs) - len(absent)} of {len(outputs)} outputs have contents",
        findings=tuple(_failed_outputs(outputs.values())),
        measured=(
            MeasuredRow(what="baseline: pod", seconds=whole, limit=survey_pods.RECORD_DEADLINE_SECONDS),
            *(
                MeasuredRow(what=f"baseline: {output.source}", seconds=output.seconds, limit=output.limit)
                for output in outputs.values()
                if output.limit and not output.absent
            ),
        ),
        missed=(
            *compare_holders(text.get("fuser.txt", ""), text.get("holders.txt", "")),
            *compare_modules(text.get("modules.txt", ""), order, "nvidia"),
        ),
        files={name: output.text for name, output in outputs.items() if output.text},
        documents={"absent.json": absent},
    )


def read_outputs(log: bytes) -> dict[str, RecordedOutput]:
    """The outputs of a log by name; lines that are none, and names that are no file names, are left out."""
    found = (untrusted.read_json(line.decode(errors="replace"), RecordedOutput) for line in log.splitlines())
    valid = [each for each in found if each and (each.name == NAMES or _OUTPUT_NAME.fullmatch(each.name))]
    return {output.name: output for output in valid[:MOST_OUTPUTS]}


def _failed_outputs(outputs: Iterable[RecordedOutput]) -> Iterable[Advice]:
    for output in outputs:
        if output.code:
            yield Advice(
                subject=output.source,
                check="ProgramFailed",
                severity=Severity.WARNING,
                message=f"it ended with exit code {output.code}: {' '.join(output.text.split())[-200:]}",
            )


async def forecast_node(hour: FirstHour) -> PhaseResult:
    """Phase 3: what `upgrader plan` would do with the node."""
    stack = await find_stack(hour, await hour.context.cluster.list(GPU_STACKS))
    if stack is None:
        return PhaseResult(message="no stack selects the node", skipped=True)
    begin = time.monotonic()
    target = await cluster_reading.target_of(hour.context, stack)
    seen = await cluster_reading.forecast_now(hour.context, stack, target, StrategyFacts())
    seconds = time.monotonic() - begin
    explanation = why_node(hour.node, seen.snapshot, seen.forecast)
    if explanation is None:
        return PhaseResult(message="no stack selects the node", skipped=True)
    others = len(seen.snapshot.nodes) - 1
    lines = [explanation.verdict, *(f"  - {line}" for line in explanation.because)]
    return PhaseResult(
        message=f"{explanation.verdict} The stack selects {others} other node(s).",
        measured=(MeasuredRow(what="forecast", seconds=seconds),),
        files={"forecast.txt": "\n".join(lines) + "\n"},
    )


async def find_stack(hour: FirstHour, stacks: Sequence[GpuStack]) -> GpuStack | None:
    """The stack that selects the node; None if there is none, or it has no valid target."""
    node = await hour.context.cluster.get(NODES, hour.node)
    targets, _ = cluster_reading.split_targets(stacks)
    return next((stack for stack, _ in targets if node and cluster_snapshot.in_pool(node, stack.spec)), None)


def _run_name(hour: FirstHour) -> str:
    return timing.format_time(hour.context.clock.now())
