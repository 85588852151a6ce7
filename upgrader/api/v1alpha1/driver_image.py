"""DriverImage: the driver for one kernel."""

from typing import Annotated, Literal

from upgrader.api.fields import ImageReference, Resource, Text, Timestamp, VersionText, described
from upgrader.api.kubernetes import ObjectMeta
from upgrader.core.phases import DriverImagePhase


class DriverImageSpec(Resource, frozen=True, kw_only=True):
    """A driver image that you built: for which driver and kernel it is, and where it lies."""

    vendor: Annotated[Literal["sim"], described("Whose driver.")]
    version: Annotated[VersionText, described("Driver version.")]
    kernel: Annotated[Text, described("Kernel that it is for, as in `uname -r`.")]
    image: Annotated[ImageReference, described("The image, by tag or digest.")]


class DriverImageStatus(Resource, frozen=True, kw_only=True):
    """Whether the image can be used, and under which digest."""

    phase: Annotated[DriverImagePhase, described("Where the image is.")] = DriverImagePhase.PENDING
    digest: Annotated[str | None, described("The image, pinned: name@sha256:...")] = None
    key: Annotated[str | None, described("Image key, as on the node's label.")] = None
    message: Annotated[str, described("Where the image is, as a sentence.")] = ""
    checked_at: Annotated[Timestamp | None, described("When the registry was asked last.")] = None


class DriverImage(Resource, frozen=True, kw_only=True):
    """The image for one driver on one kernel."""

    metadata: ObjectMeta
    spec: DriverImageSpec
    status: DriverImageStatus = DriverImageStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "DriverImage"
