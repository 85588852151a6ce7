"""Where a DriverImage goes next, and why, phase by phase."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.driver_build.build_results import BuildRefusal, BuildResult, CellState
from upgrader.core.driver_build.driver_builds import BuildFailure, CheckName, FailureClass, Identity, Verdict
from upgrader.core.driver_image.image_machine import (
    FIRST_RETRY_SECONDS,
    LONGEST_RETRY_SECONDS,
    LOOK_SECONDS,
    REFUSED_SECONDS,
    BuildJobState,
    DigestLookup,
    ImageAct,
    ImageDecision,
    ImageView,
    JobSeen,
    decide,
    is_paused,
)
from upgrader.core.model.phases import DriverImagePhase, transition_of

D = DriverImagePhase
NOW = datetime(2026, 11, 21, tzinfo=UTC)
PINNED = "registry/drivers/open@sha256:" + "a" * 64
IDENTITY = Identity(vendor="sim", recipe="fakebridge", driver="1", kernel="6.1.0-50-amd64", os="bookworm")
BUILT = ImageView(
    phase=D.PENDING,
    now=NOW,
    since=NOW,
    identity=IDENTITY,
    reference="registry/drivers/open:1",
    builder=True,
    packages=DigestLookup(digest="sha256:" + "b" * 64),
    packages_name="registry/drivers/packages:1",
    inputs="builder packages",
)
GREEN = BuildResult(identity=IDENTITY, state=CellState.GREEN, build_key="c" * 64, digest=PINNED)


def but(view: ImageView = BUILT, **changes: object) -> ImageView:
    return msgspec.structs.replace(view, **changes)


def red(kind: FailureClass) -> BuildResult:
    return BuildResult(
        identity=IDENTITY,
        state=CellState.RED,
        failure=BuildFailure(kind=kind, first_error="too few arguments", symbol="x"),
    )


def refusal(kind: FailureClass) -> BuildRefusal:
    return BuildRefusal(failure=BuildFailure(kind=kind, first_error="the bundle is of another"))


def after(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("view", "decision"),
    [
        (
            BUILT,
            ImageDecision(phase=D.BUILDING, message="build 1 begins", deadline=after(7200), attempts=1),
        ),
        (
            but(image=DigestLookup(digest=PINNED)),
            ImageDecision(
                phase=D.VERIFYING, message="found in the registry, to be verified", digest=PINNED, deadline=after(600)
            ),
        ),
        (
            but(image=DigestLookup(silent="it is away")),
            ImageDecision(
                phase=D.RETRYING, message="the registry did not respond: it is away", retry_at=after(LOOK_SECONDS)
            ),
        ),
        (
            but(builder=False),
            ImageDecision(
                phase=D.PENDING,
                message="registry/drivers/open:1 is not in its registry and no builder is set (UPGRADER_BUILDER_IMAGE)",
            ),
        ),
        (
            but(packages=DigestLookup()),
            ImageDecision(
                phase=D.PENDING,
                message=f"the packages of the image are not in the registry as {BUILT.packages_name}: run "
                "`upgrader images pack`",
            ),
        ),
        (but(slots=0), ImageDecision(phase=D.PENDING, message="waits until another build has ended")),
        (
            but(brought=True),
            ImageDecision(
                phase=D.RETRYING,
                message="registry/drivers/open:1 is not in its registry; push it or correct spec.image",
                retry_at=after(LOOK_SECONDS),
            ),
        ),
        (
            but(brought=True, since=NOW - timedelta(seconds=601)),
            ImageDecision(
                phase=D.UNUSABLE,
                message="registry/drivers/open:1 is not in its registry; push it or correct spec.image",
            ),
        ),
    ],
)
def test_what_is_looked_for(view: ImageView, decision: ImageDecision) -> None:
    assert decide(view) == decision


BUILDING = but(phase=D.BUILDING, attempts=2, deadline=after(100))


@pytest.mark.parametrize(
    ("view", "decision"),
    [
        (
            BUILDING,
            ImageDecision(phase=D.BUILDING, message="", act=ImageAct.CREATE_JOB, deadline=after(100), attempts=2),
        ),
        (
            but(BUILDING, job=JobSeen(state=BuildJobState.RUNNING, trouble="no node has room")),
            ImageDecision(phase=D.BUILDING, message="no node has room", deadline=after(100), attempts=2),
        ),
        (
            but(BUILDING, job=JobSeen(state=BuildJobState.ENDED, result=GREEN)),
            ImageDecision(
                phase=D.VERIFYING,
                message="built and pushed, to be verified",
                digest=PINNED,
                build_key="c" * 64,
                deadline=after(600),
                attempts=2,
            ),
        ),
        (
            but(BUILDING, job=JobSeen(state=BuildJobState.ENDED, result=red(FailureClass.COMPILE))),
            ImageDecision(
                phase=D.UNBUILDABLE,
                message="compile: too few arguments",
                failure=BuildFailure(kind=FailureClass.COMPILE, first_error="too few arguments", symbol="x"),
                retry_at=after(LOOK_SECONDS),
                attempts=2,
            ),
        ),
        (
            but(BUILDING, job=JobSeen(state=BuildJobState.ENDED, result=red(FailureClass.TRANSIENT))),
            ImageDecision(
                phase=D.RETRYING,
                message="transient: too few arguments; built again in 60 s",
                retry_at=after(2 * FIRST_RETRY_SECONDS),
                attempts=2,
            ),
        ),
        (
            but(BUILDING, job=JobSeen(state=BuildJobState.ENDED, result=refusal(FailureClass.UNSUPPORTED))),
            ImageDecision(
                phase=D.UNBUILDABLE,
                message="no build was begun: unsupported: the bundle is of another",
                failure=BuildFailure(kind=FailureClass.UNSUPPORTED, first_error="the bundle is of another"),
                retry_at=after(LOOK_SECONDS),
                attempts=2,
            ),
        ),
        *(
            (
                but(BUILDING, job=JobSeen(state=BuildJobState.ENDED, result=refusal(kind))),
                ImageDecision(
                    phase=D.RETRYING,
                    message=f"no build was begun: {kind}: the bundle is of another; built again in 60 s",
                    retry_at=after(60),
                    attempts=2,
                ),
            )
            for kind in (FailureClass.SIGNATURE, FailureClass.TRANSIENT)
        ),
        (
            but(BUILDING, job=JobSeen(state=BuildJobState.ENDED, trouble="OOMKilled")),
            ImageDecision(
                phase=D.RETRYING,
                message="the build Job ended without a result: OOMKilled; built again in 60 s",
                retry_at=after(60),
                attempts=2,
            ),
        ),
        (
            but(BUILDING, now=after(100), job=JobSeen(state=BuildJobState.RUNNING)),
            ImageDecision(
                phase=D.RETRYING,
                message="the build did not end in its time; built again in 60 s",
                act=ImageAct.DELETE_JOB,
                retry_at=after(160),
                attempts=2,
            ),
        ),
    ],
)
def test_what_becomes_of_a_build(view: ImageView, decision: ImageDecision) -> None:
    assert decide(view) == decision


VERIFYING = but(phase=D.VERIFYING, deadline=after(600), attempts=1)
BAD = Verdict(check=CheckName.IMAGE_SIGNATURE, passed=False, reason="signed by another key")
UNSURE = Verdict(check=CheckName.SBOM, passed=None, reason="not made")


@pytest.mark.parametrize("verdict", [BAD, UNSURE])
def test_an_image_that_does_not_pass_every_check_is_not_used(verdict: Verdict) -> None:
    good = Verdict(check=CheckName.PROVENANCE, passed=True, reason="all inputs are named")
    first = f"{verdict.check}: {verdict.reason}"
    assert decide(but(VERIFYING, verdicts=(good, verdict))) == ImageDecision(
        phase=D.UNUSABLE,
        message=f"the image does not match the request: {first}",
        checks=(good, verdict),
        failure=BuildFailure(kind=FailureClass.SIGNATURE, first_error=first),
        retry_at=after(REFUSED_SECONDS),
        attempts=1,
    )


def test_without_a_key_it_says_that_nothing_was_verified() -> None:
    said = "pinned by its digest; not verified, as no key is set (UPGRADER_IMAGE_KEY)"
    assert decide(VERIFYING) == ImageDecision(phase=D.READY, message=said)


def test_what_cannot_be_verified_now_waits_and_is_looked_for_again_after_its_time() -> None:
    silent = but(VERIFYING, silent="no answer")
    assert decide(silent).phase is D.VERIFYING
    late = decide(but(silent, now=after(600)))
    assert (late.phase, late.message) == (D.RETRYING, "the image cannot be verified now: no answer")


def test_what_failed_for_good_is_tried_again_when_what_it_is_made_with_has_changed() -> None:
    failed = but(phase=D.UNBUILDABLE, attempts=3, made_with="builder packages")
    assert decide(failed) == ImageDecision(phase=D.UNBUILDABLE, message="", retry_at=after(LOOK_SECONDS), attempts=3)
    assert decide(but(failed, inputs="builder other packages")).phase is D.BUILDING


def test_an_image_that_somebody_built_elsewhere_ends_unbuildable() -> None:
    failed = but(phase=D.UNBUILDABLE, attempts=3, made_with="builder packages", image=DigestLookup(digest=PINNED))
    assert decide(failed).phase is D.VERIFYING


REFUSED = but(phase=D.UNUSABLE, made_with=PINNED, image=DigestLookup(digest=PINNED), retry_at=after(REFUSED_SECONDS))


def test_what_was_refused_is_verified_again_for_another_image_at_once_and_for_the_same_after_a_while() -> None:
    assert decide(REFUSED).phase is D.UNUSABLE
    assert decide(but(REFUSED, image=DigestLookup(digest=PINNED.replace("a", "b")))).phase is D.VERIFYING
    assert decide(but(REFUSED, now=after(REFUSED_SECONDS))).phase is D.VERIFYING


def test_a_refused_image_that_was_taken_away_is_built() -> None:
    assert decide(but(REFUSED, now=after(REFUSED_SECONDS), image=DigestLookup())).phase is D.BUILDING


def test_a_registry_that_stays_silent_is_asked_ever_less_often() -> None:
    view, pauses = but(image=DigestLookup(silent="away")), []
    for _ in range(8):
        found = decide(view)
        assert found.retry_at is not None
        pauses.append((found.retry_at - view.now).total_seconds())
        view = but(view, phase=found.phase, retry_at=found.retry_at, now=found.retry_at, pause=pauses[-1])
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize(("phase", "pause"), [(D.UNBUILDABLE, after(LOOK_SECONDS)), (D.UNUSABLE, None)])
def test_a_silent_registry_changes_nothing_of_a_failure(phase: DriverImagePhase, pause: datetime | None) -> None:
    view = but(phase=phase, image=DigestLookup(silent="away"), inputs="others", made_with="these", attempts=1)
    assert decide(view) == ImageDecision(phase=phase, message="", retry_at=pause, attempts=1)


@pytest.mark.parametrize("answer", [DigestLookup(), DigestLookup(silent="away")], ids=["nothing new", "silent"])
def test_what_cannot_be_built_is_looked_for_ever_less_often(answer: DigestLookup) -> None:
    failed = but(phase=D.UNBUILDABLE, made_with="builder packages", retry_at=after(10), pause=10.0)
    view, pauses = but(failed, image=answer), []
    for _ in range(8):
        assert decide(view) == ImageDecision(phase=D.UNBUILDABLE, message="", retry_at=view.retry_at)
        assert view.retry_at is not None
        found = decide(but(view, now=view.retry_at))
        assert found.phase is D.UNBUILDABLE
        assert found.retry_at is not None
        pauses.append((found.retry_at - view.retry_at).total_seconds())
        view = but(view, now=view.retry_at, retry_at=found.retry_at, pause=pauses[-1])
    assert pauses == [20, 40, 80, 160, 300, 300, 300, 300]


FAILED = but(phase=D.UNBUILDABLE, attempts=3, made_with="builder packages", retry_at=after(300), pause=300.0)


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({"other_means": True}, D.BUILDING),
        ({"other_means": True, "slots": 0}, D.PENDING),
        ({"other_means": True, "packages": DigestLookup()}, D.PENDING),
        ({"other_means": True, "image": DigestLookup(silent="away")}, D.RETRYING),
        ({"brought": True}, D.RETRYING),
        ({"brought": True, "image": DigestLookup(digest=PINNED)}, D.VERIFYING),
        ({"brought": True, "since": NOW - timedelta(seconds=601)}, D.UNUSABLE),
    ],
)
def test_a_failed_build_counts_no_more_for_another_means_or_where_a_person_brings_it(
    changes: dict[str, object], phase: D
) -> None:
    assert decide(but(FAILED, **changes)).phase is phase


def test_an_image_in_service_is_verified_when_a_key_is_set() -> None:
    in_service = but(phase=D.READY, attempts=1)
    assert decide(in_service) == ImageDecision(phase=D.READY, message="", attempts=1)
    assert decide(but(in_service, unverified=True)) == ImageDecision(
        phase=D.VERIFYING, message="a key was set: it is verified now", deadline=after(600), attempts=1
    )


def test_a_build_of_something_else_is_none() -> None:
    other = msgspec.structs.replace(GREEN, identity=msgspec.structs.replace(IDENTITY, driver="2"))
    found = decide(but(BUILDING, job=JobSeen(state=BuildJobState.ENDED, result=other)))
    assert (found.phase, found.message) == (
        D.RETRYING,
        (
            "the build Job built fakebridge 2 for 6.1.0-50-amd64 instead of fakebridge 1 for 6.1.0-50-amd64; built "
            "again in 60 s"
        ),
    )


ANSWERS = st.sampled_from([DigestLookup(), DigestLookup(digest=PINNED), DigestLookup(silent="away")])
JOBS = st.builds(
    JobSeen,
    state=st.sampled_from(BuildJobState),
    result=st.sampled_from(
        [None, GREEN, red(FailureClass.CRC), red(FailureClass.TRANSIENT), *map(refusal, FailureClass)]
    ),
)
VIEWS = st.builds(
    ImageView,
    phase=st.sampled_from(D),
    now=st.integers(0, 20_000).map(after),
    since=st.just(NOW),
    identity=st.just(IDENTITY),
    reference=st.just("registry/drivers/open:1"),
    brought=st.booleans(),
    deadline=st.none() | st.integers(0, 20_000).map(after),
    retry_at=st.none() | st.integers(0, 20_000).map(after),
    attempts=st.integers(1, 40),
    pause=st.sampled_from([0.0, 10.0, 300.0]),
    unverified=st.booleans(),
    image=ANSWERS,
    builder=st.booleans(),
    packages=ANSWERS,
    slots=st.integers(-1, 2),
    job=JOBS,
    verdicts=st.none() | st.sampled_from([(), (BAD,)]),
    silent=st.sampled_from(["", "away"]),
    other_means=st.booleans(),
    inputs=st.sampled_from(["", "one", "two"]),
    made_with=st.sampled_from(["", "one", PINNED]),
)


@given(VIEWS.filter(lambda view: not (view.brought and view.phase is D.BUILDING)))
def test_laws_of_the_walk(view: ImageView) -> None:
    decision = decide(view)
    assert decision.phase is view.phase or decision.phase in transition_of(view.phase).to
    # a brought image is never built, and nothing is built while a registry is silent or no slot is free
    begins = decision.phase is D.BUILDING and view.phase is not D.BUILDING
    if begins:
        assert not view.brought
        assert (view.image, view.packages.digest != "", view.slots > 0) == (DigestLookup(), True, True)
    # in service only what was verified, or where no key is set
    if decision.phase is D.READY and view.phase is not D.READY:
        assert not view.silent
        assert view.verdicts in {None, ()}
    # every phase that waits by itself says until when
    if decision.phase in {D.BUILDING, D.VERIFYING} and view.phase is not decision.phase:
        assert decision.deadline is not None
    if decision.phase in {D.RETRYING, D.UNBUILDABLE} and (view.phase is not decision.phase or not is_paused(view)):
        assert decision.retry_at is not None
        assert decision.retry_at <= view.now + timedelta(seconds=LONGEST_RETRY_SECONDS)
