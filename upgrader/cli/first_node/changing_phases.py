"""The phases that change something, each of which is put back after it."""

import time

import msgspec

from upgrader.api.resources import GPU_STACKS, PODS
from upgrader.cli.first_node.closed_node import close_node
from upgrader.cli.first_node.first_hour import FirstHour
from upgrader.cli.first_node.reading_phases import find_stack, read_scope, run_survey
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.core.errors import ClusterError
from upgrader.core.first_node.comparisons import compare_devices
from upgrader.core.first_node.journal import PutBack, UndoAction
from upgrader.core.first_node.report_page import PhaseResult
from upgrader.core.first_node.report_rows import MeasuredRow, MissedRow
from upgrader.core.node_protocol.gpu_resources import gpus_by_name
from upgrader.stack.naming import GPU_POD
from upgrader.stack.node_pods.gpu_pod import GPU_POD_SECONDS, gpu_pod
from upgrader.stack.node_pods.holder import holder_pod

DEVICE, NVIDIA_GPUS = "/dev/nvidia0", "nvidia.com/gpu"
START_SECONDS = 60
"""Time for the pod to start, with the pull of its image."""
NAMED_SECONDS = 10
"""Within this time a holder should be named."""


async def run_gpu_pods(hour: FirstHour) -> PhaseResult:
    """Phase 7: pods with one and with all GPUs have as many device files of GPUs as they request."""
    stack = await find_stack(hour, await hour.context.cluster.list(GPU_STACKS))
    resource = stack.spec.device_plugin.resource_name if stack is not None else NVIDIA_GPUS
    runtime_class = (stack.spec.validation.runtime_class or "") if stack is not None else ""
    allocatable = (await hour.read_node()).status.allocatable
    count = gpus_by_name(allocatable, resource).get(resource, 0)
    if not count:
        return PhaseResult(message=f"the node offers no {resource}", skipped=True)
    await close_node(hour)
    measured: list[MeasuredRow] = []
    missed: list[MissedRow] = []
    for number in sorted({1, count}):
        manifest = gpu_pod(hour.node, hour.run_name(), (resource, number), hour.settings, runtime_class=runtime_class)
        begin = time.monotonic()
        log = await hour.run_pod(manifest, GPU_POD, GPU_POD_SECONDS)
        seconds = time.monotonic() - begin
        measured.append(MeasuredRow(what=f"runtime: pod with {number} GPU(s)", seconds=seconds, limit=GPU_POD_SECONDS))
        missed += compare_devices(number, log.decode(errors="replace"))
    return PhaseResult(
        message=f"pods with 1 and with {count} of {resource}: {'as requested' if not missed else 'not as requested'}",
        measured=tuple(measured),
        missed=tuple(missed),
    )


async def find_holder(hour: FirstHour) -> PhaseResult:
    """Phase 9: a pod that holds a device without a request for GPUs is named by the survey, and is not ended."""
    scope = await read_scope(hour)
    if scope.vendor != "nvidia":
        return PhaseResult(message=f"the survey knows no device files of vendor {scope.vendor}", skipped=True)
    await close_node(hour)
    manifest = holder_pod(hour.node, hour.run_name(), DEVICE, hour.settings)
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    hour.record_change(PutBack(action=UndoAction.DELETE_POD, name=name, namespace=namespace))
    await hour.context.cluster.create(PODS, manifest)
    if await _wait_for_start(hour, name, namespace) != "Running":
        return PhaseResult(message=f"{DEVICE} cannot be opened on the node", skipped=True)
    begin = time.monotonic()
    report = await run_survey(hour, msgspec.structs.replace(scope, swaps_driver=True, ends_pods=False))
    seconds = time.monotonic() - begin
    subject = f"pod {namespace}/{name}"
    found = [advice for advice in report.findings if (advice.check, advice.subject) == (_IN_USE, subject)]
    pod = await hour.context.cluster.get(PODS, name, namespace)
    missed = [] if found else [MissedRow(expected=f"{subject} holds {DEVICE}", found="nothing", where="survey")]
    if pod is None or pod.status.phase != "Running":
        missed.append(MissedRow(expected=f"{subject} runs on", found="it was ended", where="after the survey"))
    return PhaseResult(
        message=f"the survey names the holder: {'yes' if found else 'no'}",
        measured=(MeasuredRow(what="holders: named by the survey", seconds=seconds, limit=NAMED_SECONDS),),
        missed=tuple(missed),
        documents={"found.json": found},
    )


_IN_USE = SurveyCheck.DRIVER_IN_USE.value


async def _wait_for_start(hour: FirstHour, name: str, namespace: str) -> str:
    """The phase of a pod that has started or ended."""
    for _ in range(START_SECONDS):
        pod = await hour.context.cluster.get(PODS, name, namespace)
        if pod is None:
            break
        if pod.status.phase not in {"", "Pending"}:
            return pod.status.phase
        await hour.sleep(1.0)
    raise ClusterError(
        f"pod {namespace}/{name} has not started within {START_SECONDS} s",
        resolution="See the events of the pod: an admission policy or the pull of the node image may stop it.",
    )
