"""The walk of a DriverImage: looked for, built by a Job where nobody brings it, verified, in service. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.build_results import BuildResult, CellState, Refusal
from upgrader.core.driver_build.driver_builds import CheckName, Failure, FailureClass, Identity, Verdict
from upgrader.core.model.phases import DriverImagePhase, row

_D = DriverImagePhase
LOOK_SECONDS = 10
"""Until a registry is asked again, where nothing else is waited for; doubled each time that it says nothing.

Doubled too while an image that cannot be built waits for other packages, which only the registry tells of.
"""
LONGEST_LOOK_SECONDS = 300
REFUSED_SECONDS = 300
"""Until an image that was refused is verified again: a signature, or the right key, may have come late."""
ABSENT_SECONDS = 600
"""How long after it was named an image may be absent before it is said to be unusable."""
FIRST_RETRY_SECONDS = 30
LONGEST_RETRY_SECONDS = 3600
"""Between two builds that failed for a reason that passes."""


class Answer(Struct, frozen=True, kw_only=True):
    """What a registry said about a name: a digest, that there is none, or nothing (`silent` says how)."""

    digest: str = ""
    silent: str = ""


class JobState(StrEnum):
    """What became of the build Job."""

    ABSENT = "absent"
    RUNNING = "running"
    ENDED = "ended"


class JobSeen(Struct, frozen=True, kw_only=True):
    """The build Job as it is now; `trouble` is what keeps it from running, or how it ended without a result."""

    state: JobState = JobState.ABSENT
    result: BuildResult | Refusal | None = None
    trouble: str = ""


class ImageView(Struct, frozen=True, kw_only=True):
    """All that is looked at; which of it was looked at goes by the phase.

    `identity` is what the image has to be, `image` what the registry says of `reference`. `brought` means that a person
    named it, so that it is never built; `since` is when they did. `inputs` are the digests of what a build would be
    made with now, `made_with` those of the last one, or the digest that was refused. `slots` is how many more builds
    may start. `verdicts` is None where no key is set to verify with; `silent` says why it could not be verified now.
    `other_means` means that the last build was by another builder, or for another key of modules, than are set.
    `unverified` means that there is a key, and the image in service was never verified with any. `pause` is how long
    the last one was, in seconds.
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
    image: Answer = Answer()
    builder: bool = False
    packages: Answer = Answer()
    packages_name: str = ""
    slots: int = 1
    job: JobSeen = JobSeen()
    verdicts: tuple[Verdict, ...] | None = None
    silent: str = ""
    inputs: str = ""
    made_with: str = ""
    other_means: bool = False


class ImageAct(StrEnum):
    """What is done to the world before the decision is written."""

    NONE = "none"
    CREATE_JOB = "create the build Job"
    DELETE_JOB = "delete the build Job"


class ImageDecision(Struct, frozen=True, kw_only=True):
    """Where the image is next, and why; an empty message leaves the one that is there.

    `digest` and `build_key` are empty where nothing new is known of them.
    """

    phase: DriverImagePhase
    message: str
    act: ImageAct = ImageAct.NONE
    digest: str = ""
    build_key: str = ""
    checks: tuple[Verdict, ...] = ()
    failure: Failure | None = None
    deadline: datetime | None = None
    retry_at: datetime | None = None
    attempts: int = 0


def decide(view: ImageView) -> ImageDecision:
    """One step of the walk."""
    match view.phase:
        case _D.PENDING:
            return _look(view)
        case _D.BUILDING:
            return _build(view)
        case _D.VERIFYING:
            return _verify(view)
        case _D.RETRYING:
            return _stays(view) if waits(view) else _look(view)
        case _D.UNBUILDABLE:
            return _unbuildable(view)
        case _D.UNUSABLE:
            other = view.image.digest and view.image.digest != view.made_with
            return _look(view) if other or not waits(view) else _stays(view)
        case _D.READY:
            return _to_verify(view, "", "a key was set: it is verified now") if view.unverified else _stays(view)


class Verification(NamedTuple):
    """Whether somebody vouches for the image: True, False or Unknown; why as one word, and as a sentence."""

    status: str
    reason: str
    message: str


def verification(phase: DriverImagePhase, checks: Mapping[CheckName, bool | None]) -> Verification:
    """What is known of an image in this phase, by the checks that its consumer made of it.

    An image is Ready without a key too, as it is pinned: this says that nobody has vouched for it.
    """
    if phase is _D.READY and checks.get(CheckName.IMAGE_SIGNATURE):
        return Verification("True", "Signed", "signature, SBOM and provenance were verified with the key that is set")
    if phase is _D.READY:
        said = "the image is pinned by its digest, and nobody vouches for it: no key is set (UPGRADER_IMAGE_KEY)"
        return Verification("False", "NoKey", said)
    if bad := [check for check, passed in checks.items() if phase is _D.UNUSABLE and not passed]:
        return Verification("False", "Refused", f"these checks of the image did not pass: {', '.join(sorted(bad))}")
    return Verification("Unknown", f"Image{phase.value}", "no image is in service, so none was verified")


def waits(view: ImageView) -> bool:
    """Whether a pause is not over yet."""
    return view.retry_at is not None and view.now < view.retry_at


def renewed(view: ImageView) -> bool:
    """Whether a build that failed for good counts no more: a person brings the image, or it was made otherwise."""
    return view.brought or view.other_means


def _unbuildable(view: ImageView) -> ImageDecision:
    """Asked ever less often whether its packages are others now, or somebody has built it elsewhere."""
    if renewed(view):
        return _look(msgspec.structs.replace(view, phase=_D.PENDING))
    changed = view.inputs and view.made_with and view.inputs != view.made_with
    if waits(view):
        return _stays(view)
    return _look(view) if changed or view.image.digest else _rests(view)


def _rests(view: ImageView) -> ImageDecision:
    return msgspec.structs.replace(_stays(view), retry_at=view.now + timedelta(seconds=_next_pause(view)))


def _next_pause(view: ImageView) -> float:
    before = view.pause if view.phase in {_D.RETRYING, _D.UNBUILDABLE} else 0.0
    return min(LONGEST_LOOK_SECONDS, max(LOOK_SECONDS, 2 * before))


def _stays(view: ImageView) -> ImageDecision:
    return ImageDecision(
        phase=view.phase, message="", deadline=view.deadline, retry_at=view.retry_at, attempts=view.attempts
    )


def _look(view: ImageView) -> ImageDecision:
    if view.image.silent:
        return _again(view, f"the registry did not answer: {view.image.silent}")
    if view.image.digest:
        return _to_verify(view, view.image.digest, "found in the registry, to be verified")
    if view.brought:
        said = f"{view.reference} is not in its registry; push it or correct spec.image"
        late = view.now - view.since > timedelta(seconds=ABSENT_SECONDS)
        return ImageDecision(phase=_D.UNUSABLE, message=said, attempts=view.attempts) if late else _again(view, said)
    return _may_build(view)


def _may_build(view: ImageView) -> ImageDecision:
    why = ""
    if not view.builder:
        why = f"{view.reference} is not in its registry and no builder is set (UPGRADER_BUILDER_IMAGE)"
    elif view.packages.silent:
        return _again(view, f"the registry did not answer about the packages: {view.packages.silent}")
    elif not view.packages.digest:
        why = f"its packages are not in the registry as {view.packages_name}: run `upgrader images pack`"
    elif view.slots <= 0:
        why = "waits until another build has ended"
    if why:
        return ImageDecision(phase=_D.PENDING, message=why, attempts=view.attempts)
    return ImageDecision(
        phase=_D.BUILDING,
        message=f"build {view.attempts + 1} begins",
        deadline=_until(view, _D.BUILDING),
        attempts=view.attempts + 1,
    )


def _build(view: ImageView) -> ImageDecision:
    job, stays = view.job, _stays(view)
    if job.state is JobState.ENDED and job.result is not None:
        return _refused(view, job.result) if isinstance(job.result, Refusal) else _ended(view, job.result)
    if job.state is JobState.ENDED:
        return _later(view, f"the build Job ended without a result: {job.trouble or 'it said nothing'}")
    if view.deadline is not None and view.now >= view.deadline:
        said = f"the build did not end in its time{': ' if job.trouble else ''}{job.trouble}"
        return msgspec.structs.replace(_later(view, said), act=ImageAct.DELETE_JOB)
    if job.state is JobState.ABSENT:
        return msgspec.structs.replace(stays, act=ImageAct.CREATE_JOB)
    return msgspec.structs.replace(stays, message=job.trouble or f"build {view.attempts} is under way")


def _ended(view: ImageView, result: BuildResult) -> ImageDecision:
    if result.identity != view.identity:
        return _later(view, f"the build was of {result.identity}, not of {view.identity}")
    if result.state is not CellState.RED and result.digest:
        return _to_verify(view, result.digest, "built and pushed, to be verified", result)
    failure = result.failure or Failure(kind=FailureClass.TRANSIENT, first_error="the build gave no reason")
    said = f"{failure.kind}: {failure.first_error}"
    if not failure.final:
        return _later(view, said)
    return msgspec.structs.replace(_failed(view, said, failure), build_key=result.build_key, checks=result.checks)


def _failed(view: ImageView, said: str, failure: Failure) -> ImageDecision:
    """For good: it is looked for again, and built only of something else."""
    return ImageDecision(
        phase=_D.UNBUILDABLE,
        message=said,
        failure=failure,
        retry_at=view.now + timedelta(seconds=LOOK_SECONDS),
        attempts=view.attempts,
    )


def _refused(view: ImageView, refusal: Refusal) -> ImageDecision:
    failure = refusal.failure
    said = f"no build was begun: {failure.kind}: {failure.first_error}"
    if not refusal.final:
        return _later(view, said)
    return _failed(view, said, failure)


def _verify(view: ImageView) -> ImageDecision:
    if view.silent:
        late = view.deadline is not None and view.now >= view.deadline
        said = f"it cannot be verified now: {view.silent}"
        return _again(view, said) if late else msgspec.structs.replace(_stays(view), message=said)
    if view.verdicts is None:
        said = "pinned by its digest; not verified, as no key is set (UPGRADER_IMAGE_KEY)"
        return ImageDecision(phase=_D.READY, message=said)
    bad = [one for one in view.verdicts if one.passed is not True]
    if not bad:
        return ImageDecision(phase=_D.READY, message="verified and pinned by its digest", checks=view.verdicts)
    first = f"{bad[0].check}: {bad[0].reason}"
    return ImageDecision(
        phase=_D.UNUSABLE,
        message=f"the image is not what was asked for: {first}",
        checks=view.verdicts,
        failure=Failure(kind=FailureClass.SIGNATURE, first_error=first),
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
        deadline=_until(view, _D.VERIFYING),
        attempts=view.attempts,
    )


def _again(view: ImageView, why: str, seconds: float = 0.0) -> ImageDecision:
    """Asked again after a pause. A registry that does not answer never makes an image unusable, nor usable again."""
    if view.phase is _D.UNUSABLE:
        return _stays(view)
    if view.phase is _D.UNBUILDABLE:
        return _rests(view)
    retry_at = view.now + timedelta(seconds=seconds or _next_pause(view))
    return ImageDecision(phase=_D.RETRYING, message=why, retry_at=retry_at, attempts=view.attempts)


def _later(view: ImageView, why: str) -> ImageDecision:
    """Built again after a pause that grows with each try."""
    seconds = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(view.attempts - 1, 16))
    return _again(view, f"{why}; built again in {seconds} s", seconds)


def _until(view: ImageView, phase: DriverImagePhase) -> datetime:
    return view.now + timedelta(seconds=row(phase).seconds or 0)
