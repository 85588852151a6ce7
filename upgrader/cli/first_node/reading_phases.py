"""The phases that only read: cluster and node, survey, baseline, forecast."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from upgrader import __version__
from upgrader.api.resources import DRIVER_IMAGES, GPU_STACKS
from upgrader.api.v1alpha1 import GpuStack
from upgrader.cli.doctor import doctor_checks, node_survey
from upgrader.cli.first_node import node_identity
from upgrader.cli.first_node.first_hour import FirstHour
from upgrader.cli.shared import cluster_reading
from upgrader.core import untrusted
from upgrader.core.doctor.advice import Advice, Severity
from upgrader.core.doctor.node_survey import SurveyReport
from upgrader.core.errors import ConfigurationError, UnreadableError
from upgrader.core.explain.node_explanation import why_node
from upgrader.core.first_node.comparisons import compare_facts, compare_holders, compare_lines, compare_modules
from upgrader.core.first_node.report_page import PhaseResult
from upgrader.core.first_node.report_rows import MeasuredRow
from upgrader.core.model.strategy import StrategyFacts
from upgrader.core.node_protocol.orders import OrderResult, SurveyScope
from upgrader.core.node_protocol.recordings import RecordedOutput, RecordOrder
from upgrader.node.validation.gpu_report import parse_report
from upgrader.reconcile.observe import cluster_snapshot
from upgrader.stack.naming import RECORD, SURVEY
from upgrader.stack.node_pods import survey as survey_pods

NAMES = "names"
"""The output with names that only the node knows; it is not written."""
MOST_OUTPUTS, MOST_NAMES = 64, 1000

BASELINE, SMI_REPORT = 2, "nvidia-smi-q-x.xml"
COMPARED = (
    *("cmdline.txt", "modules.txt", "os-release.txt", "nvidia-params.txt", "nvidia-version.txt", "pci.txt"),
    *("ib-ports.txt", "nvidia-smi-topo.txt", "nvidia-smi-nvlink.txt", SMI_REPORT),
)
"""Outputs that are the same after everything was put back."""


class _Recorded(Struct, frozen=True, kw_only=True):
    """The outputs of a node by name, their durations, and what is wrong with them."""

    outputs: dict[str, RecordedOutput]
    measured: tuple[MeasuredRow, ...]
    findings: tuple[Advice, ...]


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
    node = await hour.read_node()
    begin = time.monotonic()
    report = await run_survey(hour, await read_scope(hour))
    whole = time.monotonic() - begin
    info = node.status.node_info
    return PhaseResult(
        message=f"{len(report.problems)} problem(s), {len(report.warnings)} warning(s)",
        facts={f"{name} (survey)": value for name, value in report.facts.items()},
        findings=report.findings,
        measured=(
            MeasuredRow(what="survey: pod", seconds=whole, limit=survey_pods.DEADLINE_SECONDS),
            MeasuredRow(what="survey: checks on the node", seconds=report.seconds, limit=survey_pods.DEADLINE_SECONDS),
        ),
        missed=compare_facts({"kernel": info.kernel_version, "kubelet": info.kubelet_version}, report.facts),
    )


async def read_scope(hour: FirstHour) -> SurveyScope:
    """What an upgrade would change on the node."""
    cluster = hour.context.cluster
    stacks = await cluster.list(GPU_STACKS)
    images = [facts for image in await cluster.list(DRIVER_IMAGES) if (facts := cluster_snapshot.image_facts(image))]
    return node_survey.survey_scope(await hour.read_node(), stacks, images, hour.settings)


async def run_survey(hour: FirstHour, scope: SurveyScope) -> SurveyReport:
    """A survey of the node by a pod."""
    manifest = survey_pods.survey_pod(hour.node, hour.run_name(), scope, hour.settings)
    return node_survey.read_survey(await hour.run_pod(manifest, SURVEY, survey_pods.DEADLINE_SECONDS))


async def record_baseline(hour: FirstHour) -> PhaseResult:
    """Phase 2: outputs of programs and files of the node, as they are."""
    recorded = await _record_outputs(hour, "baseline")
    outputs = recorded.outputs
    text = {name: output.text for name, output in outputs.items()}
    order = text.get("removal-order.txt", "").splitlines()
    absent = {name: output.absent for name, output in outputs.items() if output.absent}
    return PhaseResult(
        message=f"{len(outputs) - len(absent)} of {len(outputs)} outputs have contents",
        findings=recorded.findings,
        measured=recorded.measured,
        missed=(
            *compare_holders(text.get("fuser.txt", ""), text.get("holders.txt", "")),
            *compare_modules(text.get("modules.txt", ""), order, "nvidia"),
        ),
        files={name: text for name, text in text.items() if text},
        documents={"absent.json": absent},
    )


async def compare_baseline(hour: FirstHour) -> PhaseResult:
    """Phase 13: the outputs again, and what differs from the baseline."""
    before = hour.folder.read_files(BASELINE, COMPARED)
    if not before:
        raise ConfigurationError(
            "there is no baseline to compare with", resolution="Run `upgrader first-node` without --go first."
        )
    recorded = await _record_outputs(hour, "comparison")
    outputs = recorded.outputs
    after = {name: hour.redact_text(output.text) for name, output in outputs.items() if name in COMPARED}
    rows = compare_lines(_stable_texts(before), _stable_texts(after))
    return PhaseResult(
        message=f"{len(rows)} line(s) of {len(before.keys() & after.keys())} outputs differ from the baseline",
        findings=recorded.findings,
        measured=recorded.measured,
        missed=rows,
        files={name: output.text for name, output in outputs.items() if output.text},
    )


def _stable_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """The outputs without counters and measured values, which differ in each run."""
    stable = dict(texts)
    if "modules.txt" in stable:
        stable["modules.txt"] = "\n".join(line.partition(" ")[0] for line in stable["modules.txt"].splitlines())
    if SMI_REPORT in stable:
        try:
            report = parse_report(stable[SMI_REPORT])
        except UnreadableError as error:
            stable[SMI_REPORT] = f"unreadable: {error}"
        else:
            stable[SMI_REPORT] = "\n".join(f"{gpu.address}: {gpu}" for gpu in report.gpus)
    return stable


async def _record_outputs(hour: FirstHour, what: str) -> _Recorded:
    manifest = survey_pods.record_pod(hour.node, hour.run_name(), RecordOrder(), hour.settings)
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
    programs = (
        MeasuredRow(what=f"{what}: {output.source}", seconds=output.seconds, limit=output.limit)
        for output in outputs.values()
        if output.limit and not output.absent
    )
    pod = MeasuredRow(what=f"{what}: pod", seconds=whole, limit=survey_pods.RECORD_DEADLINE_SECONDS)
    return _Recorded(
        outputs=outputs,
        measured=(pod, *programs),
        findings=(*_check_end(log), *_failed_outputs(outputs.values())),
    )


def _check_end(log: bytes) -> Iterable[Advice]:
    """A log that was cut, or whose pod was ended, has no result as its last line."""
    if untrusted.read_json(log.strip().rpartition(b"\n")[2].decode(errors="replace"), OrderResult) is None:
        yield Advice(
            subject="recorded outputs",
            check="RecordIncomplete",
            severity=Severity.WARNING,
            message=f"the log of {len(log)} bytes has no result at its end: outputs are missing",
            fix="The pod was ended at its deadline, or its log is too long; run the phase again.",
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
    node = await hour.read_node()
    targets, _ = cluster_reading.split_targets(stacks)
    return next((stack for stack, _ in targets if cluster_snapshot.in_pool(node, stack.spec)), None)
