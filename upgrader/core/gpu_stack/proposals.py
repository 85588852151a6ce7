"""Whether a stack answers drift with a plan of its own: one at a time, towards the present revision only. Pure.

A plan that a stack makes is an ordinary one. It is approved by nobody, or by the stack where a person wrote limits into
it; it stands for its revision and is superseded when the stack asks for another one.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.driver_image.missing_images import HOPELESS, build_of, driver_of, why_no_image
from upgrader.core.model.fleet import ImageBuild, NodeFacts, Snapshot, Target
from upgrader.core.model.phases import PlanPhase, ends
from upgrader.core.upgrade_plan.plan_precedence import UNDER_WAY

IMAGE_WAIT = timedelta(hours=3)
"""How long a plan waits for an image that is being made, from its making: a build's deadline (2 h) and one retry. Then
it is made for the other nodes, and blocks those without an image."""


class OnDrift(StrEnum):
    """What a stack does about drift."""

    REPORT = "Report"
    PROPOSE = "Propose"
    APPROVE = "Approve"


class Why(StrEnum):
    """Where the answer to drift is, as one word."""

    NO_DRIFT = "NoDrift"
    BLOCKED_REVISION = "BlockedRevision"
    PLAN_UNDER_WAY = "PlanUnderWay"
    ANOTHER_PLAN = "AnotherPlan"
    PLAN_ENDED = "PlanEnded"
    UNSTEADY = "Unsteady"
    NO_DRIVER_IMAGE = "NoDriverImage"
    WAITING_FOR_IMAGES = "WaitingForImages"
    NO_LIMITS = "NoLimits"
    REVISION_NOT_WRITTEN = "RevisionNotWritten"
    PROPOSED = "Proposed"
    APPROVED = "Approved"


class PlanSeen(Struct, frozen=True, kw_only=True):
    """A plan of the stack. `number` counts those that the stack made for this revision; 0: somebody else made it."""

    name: str
    target_revision: str
    phase: PlanPhase
    approved: bool = False
    number: int = 0
    ended_at: str = ""


class ImagesSeen(Struct, frozen=True, kw_only=True):
    """What is known of the images for drifted nodes: nodes that have one, and why others have none."""

    ready: int = 0
    building: tuple[str, ...] = ()  # a sentence for each image that is waited for
    missing: tuple[str, ...] = ()  # and for each that nobody makes


class ProposalView(Struct, frozen=True, kw_only=True):
    """What the answer depends on. `drifted`, `steady`: nodes that a plan would upgrade, and those seen long enough."""

    mode: OnDrift
    revision: str
    drifted: int
    steady: int
    images: ImagesSeen
    plans: tuple[PlanSeen, ...] = ()
    blocked: bool = False
    limits: bool = False  # a person wrote the limits of an approval into the stack
    written: bool = True  # the stack's status names the revision; plans look at that, and are superseded by it


class Proposal(Struct, frozen=True, kw_only=True):
    """What is done: `create` a plan of that number, or `approve` one; `done` where nothing is left for the stack."""

    why: Why
    message: str
    done: bool = True
    create: int = 0
    approve: str = ""
    approved: bool = False


def decide(view: ProposalView) -> Proposal | None:
    """The answer; None where drift is only reported."""
    if view.mode is OnDrift.REPORT:
        return None
    present = [one for one in view.plans if not ends(one.phase)]
    running = next((one for one in present if one.phase in UNDER_WAY), None)
    if running is not None:
        return Proposal(why=Why.PLAN_UNDER_WAY, message=f"plan {running.name} is under way")
    own = next((one for one in present if one.number and one.target_revision == view.revision), None)
    if own is not None:
        return _when_written(view, _own(view, own))
    if present:
        return _waits(Why.ANOTHER_PLAN, f"plan {present[0].name} of this stack has not ended: approve or abort it")
    if view.blocked:
        said = f"a plan went back from revision {view.revision}: correct the stack; no plan is made towards it"
        return _waits(Why.BLOCKED_REVISION, said)
    if not view.drifted:
        return Proposal(why=Why.NO_DRIFT, message="no node needs a plan")
    return _ended(view) or _unready(view) or _when_written(view, _create(view))


def _when_written(view: ProposalView, found: Proposal) -> Proposal:
    """Nothing is made, approved, or said to be, for a revision that plans do not see yet."""
    if view.written:
        return found
    said = (
        f"revision {view.revision} is not in the stack's status yet; no plan is made, approved or started before it is"
    )
    return _waits(Why.REVISION_NOT_WRITTEN, said)


def _waits(why: Why, message: str) -> Proposal:
    return Proposal(why=why, message=message, done=False)


def _own(view: ProposalView, plan: PlanSeen) -> Proposal:
    """It is there already; where the stack may, it approves what it proposed before."""
    if plan.approved:
        return Proposal(why=Why.APPROVED, message=f"plan {plan.name} is approved and starts")
    if view.mode is OnDrift.APPROVE and view.limits:
        return Proposal(why=Why.APPROVED, message=f"plan {plan.name} is approved by the stack", approve=plan.name)
    if view.mode is OnDrift.APPROVE:
        return _no_limits(plan.name)
    return Proposal(why=Why.PROPOSED, message=f"plan {plan.name} waits for approval (upgrader approve {plan.name})")


def _no_limits(plan: str) -> Proposal:
    said = f"plan {plan} waits for approval: spec.driftPlan has no limits, so the stack approves nothing"
    return _waits(Why.NO_LIMITS, said)


def _ended(view: ProposalView) -> Proposal | None:
    """A plan that a person aborted, or that failed, is not made again for the same revision."""
    past = [one for one in view.plans if ends(one.phase) and one.target_revision == view.revision]
    last = max(past, key=lambda one: (one.ended_at, one.name), default=None)
    if last is None or last.phase not in {PlanPhase.ABORTED, PlanPhase.FAILED}:
        return None
    said = f"plan {last.name} to this revision ended {last.phase.value}: delete it, and another one is made"
    return _waits(Why.PLAN_ENDED, said)


def _unready(view: ProposalView) -> Proposal | None:
    images = view.images
    if not view.steady:
        said = f"{view.drifted} node(s) differ, none of them long enough and on one boot; they are looked at again"
        return _waits(Why.UNSTEADY, said)
    if images.building:
        return _waits(Why.WAITING_FOR_IMAGES, " ".join(images.building))
    if not images.ready:
        return _waits(Why.NO_DRIVER_IMAGE, " ".join(("nothing is drained.", *images.missing)))
    return None


def _create(view: ProposalView) -> Proposal:
    number = 1 + max((one.number for one in view.plans if one.target_revision == view.revision), default=0)
    said = f"{view.steady} node(s) differ from revision {view.revision}"
    if view.mode is OnDrift.APPROVE and view.limits:
        return Proposal(why=Why.APPROVED, message=f"{said}: a plan is made and approved", create=number, approved=True)
    if view.mode is OnDrift.APPROVE:
        return Proposal(why=Why.NO_LIMITS, message=f"{said}: a plan is proposed", create=number, done=False)
    return Proposal(why=Why.PROPOSED, message=f"{said}: a plan is proposed", create=number)


def images_seen(nodes: Sequence[NodeFacts], snapshot: Snapshot, target: Target, now: datetime) -> ImagesSeen:
    """How it stands with the images that these nodes need for the target."""
    catalogue = Catalogue(snapshot.images)
    driver = driver_of(target)
    without = [node for node in nodes if catalogue.wanted(node, target) is None]
    kernels = sorted({target.kernel_of(node) for node in without})
    waited = [one for one in kernels if _made(build_of(snapshot.builds, driver, one), now)]
    said = {one: why_no_image(snapshot.builds, driver, one) for one in kernels}
    return ImagesSeen(
        ready=len(nodes) - len(without),
        building=tuple(said[one] for one in waited),
        missing=tuple(said[one] for one in kernels if one not in waited),
    )


def _made(build: ImageBuild | None, now: datetime) -> bool:
    """Whether an image is being made and worth waiting for."""
    if build is None or build.phase in HOPELESS or build.unverified:
        return False
    return build.made_at is None or now - build.made_at < IMAGE_WAIT
