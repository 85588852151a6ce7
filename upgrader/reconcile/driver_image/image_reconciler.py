"""Reconciler of DriverImages: find in the registry or build by a Job, verify, pin the digest once."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from upgrader.api.resources import DRIVER_IMAGES, JOBS
from upgrader.api.v1alpha1 import DriverImage
from upgrader.api.v1alpha1.driver_image import DriverImageStatus
from upgrader.core import timing
from upgrader.core.driver_build.driver_builds import Verdict
from upgrader.core.driver_image.image_machine import (
    LOOK_SECONDS,
    ImageAct,
    ImageDecision,
    ImageView,
    decide,
    image_verification,
)
from upgrader.core.errors import ClusterError, ConflictError
from upgrader.core.model.phases import DriverImagePhase
from upgrader.core.model.revisions import image_key
from upgrader.reconcile.driver_image.image_reading import free_slots, identity_of, read_view
from upgrader.reconcile.runtime.conditions import ConditionContent, next_condition
from upgrader.reconcile.runtime.context import Context, record_status
from upgrader.stack.build_jobs import build_job, build_job_name


async def reconcile_image(context: Context, name: str) -> float | None:
    """One step of the image; returns seconds until the next step, None when nothing is left to do.

    A registry that does not answer never makes an image Unusable: only its "no such image" does, for long enough, or a
    failed check.
    """
    image = await context.cluster.get(DRIVER_IMAGES, name)
    if image is None:
        return None
    view = await read_view(context, image)
    decision = decide(view)
    if not _begins_build(image, decision):
        return await _perform_decision(context, image, view, decision)
    # Builds are counted and begun under a gate; registries are read outside of it.
    async with context.gates.builds:
        counted = msgspec.structs.replace(view, slots=await free_slots(context))
        return await _perform_decision(context, image, counted, decide(counted))


def _begins_build(image: DriverImage, decision: ImageDecision) -> bool:
    """Whether the decision begins a build."""
    return decision.phase is DriverImagePhase.BUILDING and image.status.phase is not DriverImagePhase.BUILDING


async def _perform_decision(
    context: Context, image: DriverImage, view: ImageView, decision: ImageDecision
) -> float | None:
    phase, refusal = image.status.phase, ""
    try:
        await _perform_act(context, image, decision)
    except ClusterError as error:
        if not error.refused:
            raise
        refusal = f"the build Job is refused: {error.brief}"
    context.crash.reached(("DriverImage", phase.value, "after-act"))
    status = _status_patch(image, view, msgspec.structs.replace(decision, message=refusal) if refusal else decision)
    if _is_worth_writing(image, status):
        await record_status(context, DRIVER_IMAGES, image.metadata, status, left=phase, entered=decision.phase)
    if decision.phase is DriverImagePhase.READY:
        return None
    return _next_look(decision, view.now) if decision.phase is phase else context.active_seconds


def _next_look(decision: ImageDecision, now: datetime) -> float:
    """Seconds to the next step; during a pause, to its end."""
    if decision.phase not in {DriverImagePhase.RETRYING, DriverImagePhase.UNBUILDABLE} or decision.retry_at is None:
        return LOOK_SECONDS
    return max(0.0, (decision.retry_at - now).total_seconds())


async def _perform_act(context: Context, image: DriverImage, decision: ImageDecision) -> None:
    settings = context.builds
    match decision.act:
        case ImageAct.NONE:
            return
        case ImageAct.CREATE_JOB:
            context.leadership.check()
            try:
                await context.cluster.create(JOBS, build_job(image, identity_of(image), settings))
            except ConflictError:
                return  # created before a restart; its name contains the attempt
        case ImageAct.DELETE_JOB:
            job = await context.cluster.get(JOBS, build_job_name(image), settings.namespace)
            if job is not None:
                context.leadership.check()
                await context.cluster.delete(JOBS, job.metadata)


def _status_patch(image: DriverImage, view: ImageView, decision: ImageDecision) -> dict[str, Any]:
    """The status patch: fields without a value in the decision are cleared, except permanent ones."""
    before = image.status
    digest = decision.digest or before.digest or ""
    status: dict[str, Any] = {
        "phase": decision.phase.value,
        "message": decision.message or before.message,
        "checkedAt": timing.format_time(view.now),
        "deadline": _show_time(decision.deadline),
        "retryAt": _show_time(decision.retry_at),
        "attempts": decision.attempts or None,
        "conditions": [_verified_condition(before, decision, view.now)],
    }
    if decision.phase is not before.phase:
        status["checks"] = [_check_entry(verdict) for verdict in decision.checks] or None
        status["failure"] = _failure_entry(decision)
        status["services"] = list(view.services) or None
    if decision.build_key:
        status["buildKey"] = decision.build_key
    return status | _pinned_digest(image, decision.phase, digest) | _made_with(before.phase, view, decision, digest)


def _verified_condition(before: DriverImageStatus, decision: ImageDecision, now: datetime) -> dict[str, Any]:
    """The condition Verified: an unchanged phase keeps its checks."""
    checks = {check.check: check.passed for check in before.checks}
    if decision.phase is not before.phase:
        checks = {verdict.check: verdict.passed for verdict in decision.checks}
    told = ConditionContent("Verified", *image_verification(decision.phase, checks))
    condition: dict[str, Any] = msgspec.to_builtins(next_condition(before.conditions, told, now))
    return condition


def _pinned_digest(image: DriverImage, phase: DriverImagePhase, digest: str) -> dict[str, str | None]:
    """The digest in Verifying and Ready; the key in Ready only."""
    spec = image.spec
    if phase not in {DriverImagePhase.VERIFYING, DriverImagePhase.READY} or not digest:
        return {"digest": None, "key": None}
    if phase is DriverImagePhase.VERIFYING:
        return {"digest": digest, "key": None}
    key = image_key(vendor=spec.vendor, version=spec.version, kernel=spec.kernel, digest=digest)
    return {"digest": digest, "key": key}


def _made_with(
    before: DriverImagePhase, view: ImageView, decision: ImageDecision, digest: str
) -> dict[str, str | None]:
    """The inputs that must change before a permanent failure is retried."""
    if decision.phase is DriverImagePhase.BUILDING and before is not DriverImagePhase.BUILDING:
        return {"madeWith": view.inputs}
    if decision.phase is DriverImagePhase.UNUSABLE and before is DriverImagePhase.VERIFYING:
        return {"madeWith": digest}
    return {}


def _check_entry(verdict: Verdict) -> dict[str, Any]:
    passed = {} if verdict.passed is None else {"passed": verdict.passed}
    return {"check": verdict.check.value, **passed, "reason": verdict.reason}


def _failure_entry(decision: ImageDecision) -> dict[str, Any] | None:
    failure = decision.failure
    if failure is None:
        return None
    return {"class": failure.kind.value, "firstError": failure.first_error, "symbol": failure.symbol}


def _is_worth_writing(image: DriverImage, status: Mapping[str, Any]) -> bool:
    """Whether the status changes in more than the time of the check."""
    before = image.status
    now = (status["phase"], status["message"], status["retryAt"], status["conditions"])
    return now != (before.phase.value, before.message, before.retry_at, msgspec.to_builtins(before.conditions))


def _show_time(moment: datetime | None) -> str | None:
    return timing.format_time(moment) if moment is not None else None
