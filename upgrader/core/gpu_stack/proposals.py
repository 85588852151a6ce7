"""Plans that a stack creates on drift: one at a time, to its present revision only. Pure.

Such a plan is like any other. It is not approved, or approved by the stack if a user has written limits into its
spec; it belongs to its revision and is superseded when the stack has another one.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from upgrader.core.driver_image.catalogue import Catalogue
from upgrader.core.driver_image.missing_images import HOPELESS, build_of, driver_of, why_no_image
from upgrader.core.model.fleet import ImageBuild, NodeFacts, Snapshot, Target
from upgrader.core.model.phases import PlanPhase, is_final
from upgrader.core.upgrade_plan.plan_precedence import UNDER_WAY

IMAGE_WAIT = timedelta(hours=3)
"""How long a plan waits for an image that is being built, from the start: a build's deadline (2 h) and one retry. Then
the plan is created for the other nodes, and nodes without an image are blocked."""


class OnDrift(StrEnum):
    """What a stack does on drift."""

    REPORT = "Report"
    PROPOSE = "Propose"
    APPROVE = "Approve"


class DriftReaction(StrEnum):
    """The state of the reaction to drift, as one word."""

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
    """A plan of the stack. `number` counts the plans that the stack created for this revision; 0: by other writers."""

    name: str
    target_revision: str
    phase: PlanPhase
    approved: bool = False
    number: int = 0
    ended_at: str = ""


class ImagesSeen(Struct, frozen=True, kw_only=True):
    """Images for drifted nodes: how many nodes have one, and why others have none."""

    ready: int = 0
    building: tuple[str, ...] = ()  # a sentence for each image that is waited for
    missing: tuple[str, ...] = ()  # and for each that is not being built


class ProposalView(Struct, frozen=True, kw_only=True):
    """What the proposal depends on. `drifted`: nodes that a plan would upgrade; `steady`: those without flapping."""

    mode: OnDrift
    revision: str
    drifted: int
    steady: int
    images: ImagesSeen
    plans: tuple[PlanSeen, ...] = ()
    blocked: bool = False
    limits: bool = False  # a user wrote the limits of an approval into the stack
    written: bool = True  # the stack's status names the revision; it supersedes plans to another one


class Proposal(Struct, frozen=True, kw_only=True):
    """What is done: `create` a plan of that number, or `approve` one; `done` if nothing is left for the stack."""

    why: DriftReaction
    message: str
    done: bool = True
    create: int = 0
    approve: str = ""
    approved: bool = False


def decide(view: ProposalView) -> Proposal | None:
    """The proposal; None if drift is only reported."""
    if view.mode is OnDrift.REPORT:
        return None
    present = [plan for plan in view.plans if not is_final(plan.phase)]
    running = next((plan for plan in present if plan.phase in UNDER_WAY), None)
    if running is not None:
        return Proposal(why=DriftReaction.PLAN_UNDER_WAY, message=f"plan {running.name} is in progress")
    own = next((plan for plan in present if plan.number and plan.target_revision == view.revision), None)
    if own is not None:
        return _when_written(view, _answer_own_plan(view, own))
    if present:
        return _wait_with_reason(
            DriftReaction.ANOTHER_PLAN, f"plan {present[0].name} of this stack has not ended: approve or abort it"
        )
    if view.blocked:
        message = (
            f"a plan rolled back revision {view.revision}: correct the stack; no plan is created for this revision"
        )
        return _wait_with_reason(DriftReaction.BLOCKED_REVISION, message)
    if not view.drifted:
        return Proposal(why=DriftReaction.NO_DRIFT, message="no node needs a plan")
    return _answer_ended_plan(view) or _answer_unready(view) or _when_written(view, _create_plan(view))


def _when_written(view: ProposalView, proposal: Proposal) -> Proposal:
    """The proposal, unless plans do not see the revision yet: then no plan is created, approved or reported."""
    if view.written:
        return proposal
    what = "no plan is created, approved or started until then"
    return _wait_with_reason(
        DriftReaction.REVISION_NOT_WRITTEN, f"revision {view.revision} is not in the stack's status yet; {what}"
    )


def _wait_with_reason(why: DriftReaction, message: str) -> Proposal:
    return Proposal(why=why, message=message, done=False)


def _answer_own_plan(view: ProposalView, plan: PlanSeen) -> Proposal:
    """The plan exists already; if the stack may approve, it approves the plan that it proposed before."""
    if plan.approved:
        return Proposal(why=DriftReaction.APPROVED, message=f"plan {plan.name} is approved and starts")
    if view.mode is OnDrift.APPROVE and view.limits:
        return Proposal(
            why=DriftReaction.APPROVED, message=f"plan {plan.name} is approved by the stack", approve=plan.name
        )
    if view.mode is OnDrift.APPROVE:
        return _wait_for_limits(plan.name)
    return Proposal(
        why=DriftReaction.PROPOSED, message=f"plan {plan.name} waits for approval (upgrader approve {plan.name})"
    )


def _wait_for_limits(plan: str) -> Proposal:
    message = f"plan {plan} waits for approval: spec.driftPlan has no limits, so the stack approves nothing"
    return _wait_with_reason(DriftReaction.NO_LIMITS, message)


def _answer_ended_plan(view: ProposalView) -> Proposal | None:
    """A plan that a user aborted, or that failed, is not created again for the same revision."""
    past = [plan for plan in view.plans if is_final(plan.phase) and plan.target_revision == view.revision]
    last = max(past, key=lambda plan: (plan.ended_at, plan.name), default=None)
    if last is None or last.phase not in {PlanPhase.ABORTED, PlanPhase.FAILED}:
        return None
    message = f"plan {last.name} to this revision ended {last.phase.value}: delete it to get a new plan"
    return _wait_with_reason(DriftReaction.PLAN_ENDED, message)


def _answer_unready(view: ProposalView) -> Proposal | None:
    images = view.images
    if not view.steady:
        message = (
            f"{view.drifted} node(s) differ from revision {view.revision}, none for long enough within one boot yet"
        )
        return _wait_with_reason(DriftReaction.UNSTEADY, message)
    if images.building:
        return _wait_with_reason(DriftReaction.WAITING_FOR_IMAGES, " ".join(images.building))
    if not images.ready:
        return _wait_with_reason(DriftReaction.NO_DRIVER_IMAGE, " ".join(("no node is drained.", *images.missing)))
    return None


def _create_plan(view: ProposalView) -> Proposal:
    number = 1 + max((plan.number for plan in view.plans if plan.target_revision == view.revision), default=0)
    difference = f"{view.steady} node(s) differ from revision {view.revision}"
    if view.mode is OnDrift.APPROVE and view.limits:
        return Proposal(
            why=DriftReaction.APPROVED,
            message=f"{difference}: a plan is created and approved",
            create=number,
            approved=True,
        )
    if view.mode is OnDrift.APPROVE:
        return Proposal(
            why=DriftReaction.NO_LIMITS,
            message=f"{difference}: a plan is proposed; spec.driftPlan has no limits, so it waits for approval",
            create=number,
            done=False,
        )
    return Proposal(why=DriftReaction.PROPOSED, message=f"{difference}: a plan is proposed", create=number)


def images_seen(nodes: Sequence[NodeFacts], snapshot: Snapshot, target: Target, now: datetime) -> ImagesSeen:
    """The state of the images that these nodes need for the target."""
    catalogue = Catalogue(snapshot.images)
    driver = driver_of(target)
    without = [node for node in nodes if catalogue.required_image(node, target) is None]
    kernels = sorted({target.kernel_of(node) for node in without})
    building = [kernel for kernel in kernels if _is_awaited(build_of(snapshot.builds, driver, kernel), now)]
    reasons = {kernel: why_no_image(snapshot.builds, driver, kernel) for kernel in kernels}
    return ImagesSeen(
        ready=len(nodes) - len(without),
        building=tuple(reasons[kernel] for kernel in building),
        missing=tuple(reasons[kernel] for kernel in kernels if kernel not in building),
    )


def _is_awaited(build: ImageBuild | None, now: datetime) -> bool:
    """Whether an image is being built and waited for."""
    if build is None or build.phase in HOPELESS or build.unverified:
        return False
    return build.made_at is None or now - build.made_at < IMAGE_WAIT
