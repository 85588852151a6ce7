"""The inputs of one step of a DriverImage: its registry, its build Job, its verification."""

import msgspec

from upgrader.api import names
from upgrader.api.kubernetes import Job, Pod
from upgrader.api.resources import DRIVER_IMAGES, JOBS, PODS
from upgrader.api.v1alpha1 import DriverImage
from upgrader.core import timing
from upgrader.core.driver_build.build_results import read_message
from upgrader.core.driver_build.driver_builds import CheckName, Identity
from upgrader.core.driver_image.image_machine import (
    BuildJobState,
    DigestLookup,
    ImageView,
    JobSeen,
    is_failure_outdated,
    is_paused,
)
from upgrader.core.driver_image.image_names import image_name, packages_name
from upgrader.core.errors import ConfigurationError, ProcessError, RegistryError
from upgrader.core.model.phases import DriverImagePhase
from upgrader.core.node_protocol.driver_services import SERVICES_LABEL, DriverService, parse_services
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.build_jobs import BUILD, build_job_name
from upgrader.stack.settings import BuildSettings

_P = DriverImagePhase
_SHOWN = 300


def identity_of(image: DriverImage) -> Identity:
    """Driver and kernel of an image; recipe and os may be empty for an image that a user provides."""
    spec = image.spec
    return Identity(
        vendor=spec.vendor,
        recipe=spec.recipe or "",
        driver=spec.version,
        flavour=spec.flavour or "",
        kernel=spec.kernel,
        os=spec.os or "",
        arch=spec.arch,
    )


async def read_view(context: Context, image: DriverImage) -> ImageView:
    """Read only the inputs that the image's phase waits for."""
    status, settings = image.status, context.builds
    identity = identity_of(image)
    brought = image.spec.image is not None
    named = image_name(settings.repository, identity) if settings.repository else ""
    view = ImageView(
        phase=status.phase,
        now=context.clock.now(),
        since=timing.parse_time(image.metadata.creation_timestamp),
        identity=identity,
        reference=image.spec.image or named,
        brought=brought,
        deadline=timing.parse_time(status.deadline) if status.deadline else None,
        retry_at=timing.parse_time(status.retry_at) if status.retry_at else None,
        pause=_retry_pause(image),
        attempts=status.attempts,
        unverified=context.trust is not None and not _has_verified_signature(image),
        builder=bool(settings.builder_image),
        packages_name=packages_name(settings.repository, identity),
        made_with=status.made_with or "",
        other_means=_other_means(status.made_with or "", settings),
    )
    match status.phase:
        case _P.RETRYING if is_paused(view):
            return view
        case _P.UNBUILDABLE if is_paused(view) and not is_failure_outdated(view):
            return view
        case _P.PENDING | _P.RETRYING | _P.UNUSABLE | _P.UNBUILDABLE:
            return await _with_registry(context, view)
        case _P.BUILDING:
            return msgspec.structs.replace(view, job=await _read_job(context, image))
        case _P.VERIFYING:
            return await _with_verdicts(context, image, view)
        case _P.READY:
            return view


def _retry_pause(image: DriverImage) -> float:
    status = image.status
    if not status.retry_at or not status.checked_at:
        return 0.0
    return (timing.parse_time(status.retry_at) - timing.parse_time(status.checked_at)).total_seconds()


def _other_means(made_with: str, settings: BuildSettings) -> bool:
    """Whether a build used other settings than the present ones; without a builder nothing can be rebuilt."""
    if not made_with or not settings.builder_image:
        return False
    builder, _, rest = made_with.partition(" ")
    return (builder, rest.partition(" ")[2]) != (settings.builder_image, settings.module_signing)


def _has_verified_signature(image: DriverImage) -> bool:
    return any(check.check is CheckName.IMAGE_SIGNATURE and check.passed for check in image.status.checks)


async def _with_registry(context: Context, view: ImageView) -> ImageView:
    image = await _read_digest(context, view.reference) if view.reference else DigestLookup()
    view = msgspec.structs.replace(view, image=image)
    if view.brought or not view.builder:
        return view
    packages = await _read_digest(context, view.packages_name)
    settings = context.builds
    made_of = (settings.builder_image, packages.digest, *([settings.module_signing] if settings.module_signing else []))
    return msgspec.structs.replace(view, packages=packages, inputs=" ".join(made_of) if packages.digest else "")


async def free_slots(context: Context) -> int:
    """The number of builds that may begin now."""
    under_way = [image for image in await context.cluster.list(DRIVER_IMAGES) if image.status.phase is _P.BUILDING]
    return context.builds.max_concurrent - len(under_way)


async def _read_digest(context: Context, name: str) -> DigestLookup:
    try:
        return DigestLookup(digest=await context.registry.digest(name) or "")
    except (RegistryError, ConfigurationError) as error:  # the latter: an invalid or ambiguous name
        return DigestLookup(silent=error.brief)


async def _with_verdicts(context: Context, image: DriverImage, view: ImageView) -> ImageView:
    digest, trust, verdicts = image.status.digest or "", context.trust, None
    try:
        if trust is not None:
            verdicts = await trust.verify(digest, identity_of(image))
        services = await _read_services(context, digest)
    except (RegistryError, ProcessError, ConfigurationError) as error:
        return msgspec.structs.replace(view, silent=error.brief)
    return msgspec.structs.replace(view, verdicts=verdicts, services=services)


async def _read_services(context: Context, digest: str) -> tuple[DriverService, ...]:
    """The services of an image, by its label. An index of several images has no label, and thus no services.

    Raises:
        RegistryError: the registry does not answer, or has lost the image.
        ConfigurationError: the label is invalid.
    """
    try:
        labels = await context.registry.labels(digest)
    except ValueError:
        return ()
    if labels is None:
        raise RegistryError(f"the registry has no image {digest} any more")
    return parse_services(labels.get(SERVICES_LABEL, ""))


async def _read_job(context: Context, image: DriverImage) -> JobSeen:
    name, namespace = build_job_name(image), context.builds.namespace
    job = await context.cluster.get(JOBS, name, namespace)
    if job is None:
        return JobSeen()
    labels = f"{names.LABEL_COMPONENT}={BUILD}"
    pods = [
        pod
        for pod in await context.cluster.list(PODS, namespace, labels=labels)
        if any(owner.uid == job.metadata.uid for owner in pod.metadata.owner_references)
    ]
    return job_seen(job, pods)


def job_seen(job: Job, pods: list[Pod]) -> JobSeen:
    """The result of a build Job, from its conditions and the messages of its pod."""
    ended = next(
        (
            condition
            for condition in job.status.conditions
            if condition.status == "True" and condition.type in {"Complete", "Failed"}
        ),
        None,
    )
    for pod in pods:
        for status in pod.status.container_statuses:
            terminated, waiting = status.state.terminated, status.state.waiting
            if terminated is not None and (result := read_message(terminated.message)) is not None:
                return JobSeen(state=BuildJobState.ENDED, result=result)
            if terminated is not None:
                trouble = f"exit code {terminated.exit_code}: {terminated.message[-_SHOWN:] or terminated.reason}"
                return JobSeen(
                    state=BuildJobState.ENDED if ended is not None else BuildJobState.RUNNING, trouble=trouble
                )
            if waiting is not None and waiting.reason not in {"ContainerCreating", "PodInitializing"}:
                return JobSeen(state=BuildJobState.RUNNING, trouble=f"{waiting.reason}: {waiting.message}"[:_SHOWN])
    if ended is not None:
        return JobSeen(state=BuildJobState.ENDED, trouble=f"{ended.reason}: {ended.message}".strip(": "))
    waits = next(
        (
            condition.message
            for pod in pods
            for condition in pod.status.conditions
            if condition.status == "False" and condition.message
        ),
        "",
    )
    return JobSeen(state=BuildJobState.RUNNING, trouble=waits[:_SHOWN])
