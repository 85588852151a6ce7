"""DriverImage: the driver for one kernel."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from upgrader.api.fields import Conditions, ImageReference, Resource, Text, Timestamp, VersionText, described
from upgrader.api.kubernetes import ObjectMeta
from upgrader.core.driver_build.driver_builds import CheckName, FailureClass
from upgrader.core.model.phases import DriverImagePhase

Word = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]


class DriverImageSpec(Resource, frozen=True, kw_only=True):
    """For which driver and kernel the image is; where `image` names none, it is found by this identity, or built."""

    vendor: Annotated[Literal["nvidia", "sim"], described("Whose driver.")]
    version: Annotated[VersionText, described("Driver version.")]
    kernel: Annotated[Text, described("Kernel that it is for, as in `uname -r`.")]
    image: Annotated[
        ImageReference | None, described("An image that you bring, by tag or digest; it is never built.")
    ] = None
    recipe: Annotated[Word | None, described("Recipe that it is built by, a folder in driver-images/.")] = None
    flavour: Annotated[Word | None, described("Flavour of the recipe, where it has several.")] = None
    os: Annotated[Word | None, described("Code name of the kernel's distribution, as bookworm.")] = None
    arch: Annotated[Word, described("Architecture, as Debian names it.")] = "amd64"


class ImageCheck(Resource, frozen=True, kw_only=True):
    """What one check of the image found."""

    check: Annotated[CheckName, described("What was looked at.")]
    passed: Annotated[bool | None, described("Whether it passed; absent where it was not made.")] = None
    reason: Annotated[str, described("What was found, or why it was not looked for.")] = ""


class ImageFailure(Resource, frozen=True, kw_only=True):
    """Why there is no image."""

    sort: Annotated[FailureClass, described("Sort of failure; only `transient` is tried again by itself.")] = (
        msgspec.field(name="class")
    )
    first_error: Annotated[str, described("First error, in the tool's own words.")] = ""
    symbol: Annotated[str, described("Symbol that it is about, where it names one.")] = ""


class DriverImageStatus(Resource, frozen=True, kw_only=True):
    """Whether the image can be used, and under which digest."""

    phase: Annotated[DriverImagePhase, described("Where the image is.")] = DriverImagePhase.PENDING
    digest: Annotated[str | None, described("The image, pinned: name@sha256:...")] = None
    key: Annotated[str | None, described("Image key, as on the node's label.")] = None
    build_key: Annotated[str | None, described("Build key: digest of all that went into the image.")] = None
    message: Annotated[str, described("Where the image is, as a sentence.")] = ""
    checked_at: Annotated[Timestamp | None, described("When what stands here was found.")] = None
    deadline: Annotated[Timestamp | None, described("Until when the phase may last.")] = None
    retry_at: Annotated[Timestamp | None, described("When it is tried again.")] = None
    attempts: Annotated[int, described("Builds so far.")] = 0
    made_with: Annotated[
        str | None,
        described(
            "Digests of builder and packages of the last build and the Secret that signed its modules, "
            "or the digest that was refused."
        ),
    ] = None
    checks: Annotated[list[ImageCheck], described("Verdict of each check.")] = []
    failure: Annotated[ImageFailure | None, described("Why there is no image.")] = None
    conditions: Annotated[
        Conditions, described("Verified: whether a key vouches for the image that is in service.")
    ] = []


class DriverImage(Resource, frozen=True, kw_only=True):
    """The image for one driver on one kernel."""

    metadata: ObjectMeta
    spec: DriverImageSpec
    status: DriverImageStatus = DriverImageStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "DriverImage"
