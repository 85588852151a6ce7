"""The state machine of a DriverImage: looked up, built by a Job unless supplied, verified, in service. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.build_results import BuildRefusal, BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, CheckName, FailureClass, Identity, Verdict
from upgrader.core.model.phases import DriverImagePhase, transition_of
from upgrader.core.node_protocol.driver_services import DriverService

_D = DriverImagePhase
LOOK_SECONDS = 10
"""Until the next request to a registry, if nothing else is waited for; doubled each time that it does not answer.

Also doubled while an image that cannot be built waits for other packages, which only show in the registry.
"""
LONGEST_LOOK_SECONDS = 300
REFUSED_SECONDS = 300
"""Until a refused image is verified again: its signature, or the right key, may be late."""
ABSENT_SECONDS = 600
"""How long after it was named an image may be absent before it is unusable."""
FIRST_RETRY_SECONDS = 30
LONGEST_RETRY_SECONDS = 3600
"""Between two builds after a transient failure."""


class DigestLookup(Struct, frozen=True, kw_only=True):
    """A registry's answer about a name: a digest, or none; `silent` is the error if it did not answer."""

    digest: str = ""
    silent: str = ""


class BuildJobState(StrEnum):
    """The state of the build Job."""

    ABSENT = "absent"
    RUNNING = "running"
    ENDED = "ended"


class JobSeen(Struct, frozen=True, kw_only=True):
    """The build Job as it is now; `trouble` is why it does not run, or how it ended without a result."""

    state: BuildJobState = BuildJobState.ABSENT
    result: BuildResult | BuildRefusal | None = None
    trouble: str = ""


class ImageView(Struct, frozen=True, kw_only=True):
    """All that the next step depends on; the phase determines which parts are read.

    `identity` is what the image must contain, `image` the registry's answer about `reference`. `brought`: a user
    named the image, so that it is never built; `since`: when. `inputs` are the digests of the inputs of a build now,
    `made_with` those of the last build, or the digest that was refused. `slots` is how many more builds may start.
    `verdicts` is None if no key is set for verification; `services` are those of the image; `silent` is why it could
    not be verified now. `other_means`:
    the last build was by another builder, or for another key of modules, than are set. `unverified`: there is a key,
    and the image in service was never verified with any. `pause` is the length of the last pause, in seconds.
    """

    phase: DriverImagePhase
    now: datetime
    since: datetime
    identity: Identity
    reference: str
    brought: bool = False
    deadline: datetime | None = None
    retry_at: datetime | None = None
    pause: float = 0.0
    attempts: int = 0
    unverified: bool = False
    image: DigestLookup = DigestLookup()
    builder: bool = False
    packages: DigestLookup = DigestLookup()
    packages_name: str = ""
    slots: int = 1
    job: JobSeen = JobSeen()
    verdicts: tuple[Verdict, ...] | None = None
    services: tuple[DriverService, ...] = ()
    silent: str = ""
    inputs: str = ""
    made_with: str = ""
    other_means: bool = False


class ImageAct(StrEnum):
    """What is done in the cluster before the decision is written."""

    NONE = "none"
    CREATE_JOB = "create the build Job"
    DELETE_JOB = "delete the build Job"


class ImageDecision(Struct, frozen=True, kw_only=True):
    """The next phase of the image, and why; an empty message keeps the present one.

    `digest` and `build_key` are empty if they do not change.
    """

    phase: DriverImagePhase
    message: str
    act: ImageAct = ImageAct.NONE
    digest: str = ""
    build_key: str = ""
    checks: tuple[Verdict, ...] = ()
    failure: BuildFailure | None = None
    deadline: datetime | None = None
    retry_at: datetime | None = None
    attempts: int = 0


def decide(view: ImageView) -> ImageDecision:
    """The next step of one image."""
    match view.phase:
        case _D.PENDING:
            return _look_up_image(view)
        case _D.BUILDING:
            return _follow_build(view)
        case _D.VERIFYING:
            return _verify_image(view)
        case _D.RETRYING:
            return _keep_phase(view) if is_paused(view) else _look_up_image(view)
        case _D.UNBUILDABLE:
            return _decide_unbuildable(view)
        case _D.UNUSABLE:
            other = view.image.digest and view.image.digest != view.made_with
            return _look_up_image(view) if other or not is_paused(view) else _keep_phase(view)
        case _D.READY:
            return _to_verify(view, "", "a key was set: it is verified now") if view.unverified else _keep_phase(view)


class Verification(NamedTuple):
    """Whether the image is verified: True, False or Unknown; the reason as one word, and as a sentence."""

    status: str
    reason: str
    message: str


def image_verification(phase: DriverImagePhase, checks: Mapping[CheckName, bool | None]) -> Verification:
    """The verification of an image in this phase, by the checks of its consumer.

    An image is Ready also without a key, since it is pinned: then the status states that it is not verified.
    """
    if phase is _D.READY and checks.get(CheckName.IMAGE_SIGNATURE):
        return Verification("True", "Signed", "signature, SBOM and provenance were verified with the key that is set")
    if phase is _D.READY:
        message = "the image is pinned by its digest, and no signature was verified: no key is set (UPGRADER_IMAGE_KEY)"
        return Verification("False", "NoKey", message)
    if bad := [check for check, passed in checks.items() if phase is _D.UNUSABLE and not passed]:
        return Verification("False", "Refused", f"these checks of the image did not pass: {', '.join(sorted(bad))}")
    return Verification("Unknown", f"Image{phase.value}", "no image is in service, so none was verified")


def is_paused(view: ImageView) -> bool:
    """Whether a pause has not ended yet."""
    return view.retry_at is not None and view.now < view.retry_at


def is_failure_outdated(view: ImageView) -> bool:
    """Whether a final failure no longer counts: a user supplies the image, or the builder or its key has changed."""
    return view.brought or view.other_means


def _decide_unbuildable(view: ImageView) -> ImageDecision:
    """Wait for other packages, or for an image built elsewhere, with pauses that grow."""
    if is_failure_outdated(view):
        return _look_up_image(msgspec.structs.replace(view, phase=_D.PENDING))
    changed = view.inputs and view.made_with and view.inputs != view.made_with
    if is_paused(view):
        return _keep_phase(view)
    return _look_up_image(view) if changed or view.image.digest else _extend_pause(view)


def _extend_pause(view: ImageView) -> ImageDecision:
    return msgspec.structs.replace(_keep_phase(view), retry_at=view.now + timedelta(seconds=_next_pause(view)))


def _next_pause(view: ImageView) -> float:
    before = view.pause if view.phase in {_D.RETRYING, _D.UNBUILDABLE} else 0.0
    return min(LONGEST_LOOK_SECONDS, max(LOOK_SECONDS, 2 * before))


def _keep_phase(view: ImageView) -> ImageDecision:
    return ImageDecision(
        phase=view.phase, message="", deadline=view.deadline, retry_at=view.retry_at, attempts=view.attempts
    )


def _look_up_image(view: ImageView) -> ImageDecision:
    if view.image.silent:
        return _retry_later(view, f"the registry did not respond: {view.image.silent}")
    if view.image.digest:
        return _to_verify(view, view.image.digest, "found in the registry, to be verified")
    if view.brought:
        message = f"{view.reference} is not in its registry; push it or correct spec.image"
        late = view.now - view.since > timedelta(seconds=ABSENT_SECONDS)
        return (
            ImageDecision(phase=_D.UNUSABLE, message=message, attempts=view.attempts)
            if late
            else _retry_later(view, message)
        )
    return _start_build(view)


def _start_build(view: ImageView) -> ImageDecision:
    why = ""
    if not view.builder:
        why = f"{view.reference} is not in its registry and no builder is set (UPGRADER_BUILDER_IMAGE)"
    elif view.packages.silent:
        return _retry_later(view, f"the registry did not respond to a request for the packages: {view.packages.silent}")
    elif not view.packages.digest:
        why = f"the packages of the image are not in the registry as {view.packages_name}: run `upgrader images pack`"
    elif view.slots <= 0:
        why = "waits until another build has ended"
    if why:
        return ImageDecision(phase=_D.PENDING, message=why, attempts=view.attempts)
    return ImageDecision(
        phase=_D.BUILDING,
        message=f"build {view.attempts + 1} begins",
        deadline=_phase_deadline(view, _D.BUILDING),
        attempts=view.attempts + 1,
    )


def _follow_build(view: ImageView) -> ImageDecision:
    job, unchanged = view.job, _keep_phase(view)
    if job.state is BuildJobState.ENDED and job.result is not None:
        return (
            _judge_refusal(view, job.result)
            if isinstance(job.result, BuildRefusal)
            else _judge_build_result(view, job.result)
        )
    if job.state is BuildJobState.ENDED:
        return _rebuild_later(view, f"the build Job ended without a result: {job.trouble or 'it printed no output'}")
    if view.deadline is not None and view.now >= view.deadline:
        message = f"the build did not end in its time{': ' if job.trouble else ''}{job.trouble}"
        return msgspec.structs.replace(_rebuild_later(view, message), act=ImageAct.DELETE_JOB)
    if job.state is BuildJobState.ABSENT:
        return msgspec.structs.replace(unchanged, act=ImageAct.CREATE_JOB)
    return msgspec.structs.replace(unchanged, message=job.trouble or f"build {view.attempts} is in progress")


def _judge_build_result(view: ImageView, result: BuildResult) -> ImageDecision:
    if result.identity != view.identity:
        return _rebuild_later(view, f"the build Job built {result.identity} instead of {view.identity}")
    if result.state is not CellState.RED and result.digest:
        return _to_verify(view, result.digest, "built and pushed, to be verified", result)
    failure = result.failure or BuildFailure(kind=FailureClass.TRANSIENT, first_error="the build gave no reason")
    message = f"{failure.kind}: {failure.first_error}"
    if not failure.final:
        return _rebuild_later(view, message)
    return msgspec.structs.replace(
        _fail_build(view, message, failure), build_key=result.build_key, checks=result.checks
    )


def _fail_build(view: ImageView, message: str, failure: BuildFailure) -> ImageDecision:
    """Fail finally: the image is looked up again, and built again only from other inputs."""
    return ImageDecision(
        phase=_D.UNBUILDABLE,
        message=message,
        failure=failure,
        retry_at=view.now + timedelta(seconds=LOOK_SECONDS),
        attempts=view.attempts,
    )


def _judge_refusal(view: ImageView, refusal: BuildRefusal) -> ImageDecision:
    failure = refusal.failure
    message = f"no build was begun: {failure.kind}: {failure.first_error}"
    if not refusal.final:
        return _rebuild_later(view, message)
    return _fail_build(view, message, failure)


def _verify_image(view: ImageView) -> ImageDecision:
    if view.silent:
        late = view.deadline is not None and view.now >= view.deadline
        message = f"the image cannot be verified now: {view.silent}"
        return _retry_later(view, message) if late else msgspec.structs.replace(_keep_phase(view), message=message)
    if view.verdicts is None:
        message = "pinned by its digest; not verified, as no key is set (UPGRADER_IMAGE_KEY)"
        return ImageDecision(phase=_D.READY, message=message)
    bad = [verdict for verdict in view.verdicts if verdict.passed is not True]
    if not bad:
        return ImageDecision(phase=_D.READY, message="verified and pinned by its digest", checks=view.verdicts)
    first = f"{bad[0].check}: {bad[0].reason}"
    return ImageDecision(
        phase=_D.UNUSABLE,
        message=f"the image does not match the request: {first}",
        checks=view.verdicts,
        failure=BuildFailure(kind=FailureClass.SIGNATURE, first_error=first),
        retry_at=view.now + timedelta(seconds=REFUSED_SECONDS),
        attempts=view.attempts,
    )


def _to_verify(view: ImageView, digest: str, message: str, result: BuildResult | None = None) -> ImageDecision:
    return ImageDecision(
        phase=_D.VERIFYING,
        message=message,
        digest=digest,
        build_key=result.build_key if result is not None else "",
        checks=result.checks if result is not None else (),
        deadline=_phase_deadline(view, _D.VERIFYING),
        attempts=view.attempts,
    )


def _retry_later(view: ImageView, why: str, seconds: float = 0.0) -> ImageDecision:
    """Look it up after a pause. A registry that does not answer never makes an image unusable, or usable again."""
    if view.phase is _D.UNUSABLE:
        return _keep_phase(view)
    if view.phase is _D.UNBUILDABLE:
        return _extend_pause(view)
    retry_at = view.now + timedelta(seconds=seconds or _next_pause(view))
    return ImageDecision(phase=_D.RETRYING, message=why, retry_at=retry_at, attempts=view.attempts)


def _rebuild_later(view: ImageView, why: str) -> ImageDecision:
    """Build it again after a pause that grows with each attempt."""
    seconds = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(view.attempts - 1, 16))
    return _retry_later(view, f"{why}; built again in {seconds} s", seconds)


def _phase_deadline(view: ImageView, phase: DriverImagePhase) -> datetime:
    return view.now + timedelta(seconds=transition_of(phase).seconds or 0)
