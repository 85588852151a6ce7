"""DriverImage: the driver image for one driver version and one kernel."""

from typing import Annotated

import msgspec

from upgrader.api.kubernetes import Conditions, ObjectMeta
from upgrader.core.driver_build.driver_builds import CheckName, FailureClass
from upgrader.core.fields import ImageReference, Resource, Text, Timestamp, VersionText, Word, field_doc
from upgrader.core.model.phases import DriverImagePhase
from upgrader.core.node_protocol.driver_services import DriverService


class DriverImageSpec(Resource, frozen=True, kw_only=True):
    """Driver and kernel of the image. If `image` is unset, the controller looks the image up in its registry, and
    builds it if it does not exist.
    """

    vendor: Annotated[Word, field_doc("Vendor of the driver, for example `nvidia`. Immutable.")]
    version: Annotated[VersionText, Word, field_doc("Driver version, for example 535.261.03. Immutable.")]
    kernel: Annotated[Text, field_doc("Kernel release that the driver is for, as printed by `uname -r`. Immutable.")]
    image: Annotated[
        ImageReference | None,
        field_doc(
            "Reference of a prebuilt image, by tag or digest. If set, the controller does not build the "
            "image. If unset, `recipe` and `os` are required."
        ),
    ] = None
    recipe: Annotated[
        Word | None,
        field_doc(
            "Recipe that builds the image: the name of a folder in driver-images/. Required if `image` is unset."
        ),
    ] = None
    flavour: Annotated[
        Word | None,
        field_doc(
            "Flavour of the kernel modules: `open` or `proprietary` for vendor nvidia. Required for "
            "vendor nvidia if `recipe` is set."
        ),
    ] = None
    os: Annotated[
        Word | None,
        field_doc("Code name of the distribution of the kernel, for example `bookworm`. Required if `image` is unset."),
    ] = None
    arch: Annotated[Word, field_doc("Architecture, by its Debian name. Defaults to `amd64`.")] = "amd64"


class ImageCheck(Resource, frozen=True, kw_only=True):
    """Result of one check of the image."""

    check: Annotated[CheckName, field_doc("Name of the check.")]
    passed: Annotated[bool | None, field_doc("Whether the check passed. Unset if the check was not run.")] = None
    reason: Annotated[str, field_doc("Result of the check, or the reason why it was not run.")] = ""


class ImageFailure(Resource, frozen=True, kw_only=True):
    """Reason why there is no image."""

    sort: Annotated[
        FailureClass,
        field_doc(
            "Class of the failure. `transient` and `push` failures are retried automatically. After any "
            "other failure the image is built again only if the packages, the builder or the signing key "
            "change."
        ),
    ] = msgspec.field(name="class")
    first_error: Annotated[str, field_doc("First error in the output of the build or check that failed.")] = ""
    symbol: Annotated[str, field_doc("Kernel symbol that the error names, if any.")] = ""


class DriverImageStatus(Resource, frozen=True, kw_only=True):
    """Observed state of the image, and its digest."""

    phase: Annotated[DriverImagePhase, field_doc("Phase of the image.")] = DriverImagePhase.PENDING
    digest: Annotated[str | None, field_doc("Reference of the image by digest: NAME@sha256:DIGEST.")] = None
    key: Annotated[str | None, field_doc("Image key: the value of the node label gpu-upgrader.io/driver.")] = None
    build_key: Annotated[str | None, field_doc("Build key: digest of all inputs of the build.")] = None
    message: Annotated[str, field_doc("Human-readable message for the phase.")] = ""
    checked_at: Annotated[Timestamp | None, field_doc("Time of the last check.")] = None
    deadline: Annotated[Timestamp | None, field_doc("Time at which the current phase times out.")] = None
    retry_at: Annotated[Timestamp | None, field_doc("Time of the next attempt to find, build or verify the image.")] = (
        None
    )
    attempts: Annotated[int, field_doc("Number of builds that were started.")] = 0
    made_with: Annotated[
        str | None,
        field_doc(
            "Inputs of the last build: the image of the builder, the digest of the packages, and the "
            "Secret whose key signed the modules, if any. If verification failed, the digest of the "
            "image that was refused."
        ),
    ] = None
    checks: Annotated[list[ImageCheck], field_doc("Result of each check.")] = []
    failure: Annotated[ImageFailure | None, field_doc("Reason why there is no image.")] = None
    services: Annotated[
        list[DriverService],
        field_doc("Services in the image. Each runs in a container of the driver's pod while the driver is loaded."),
    ] = []
    conditions: Annotated[
        Conditions,
        field_doc(
            "Conditions of the image. Verified: whether the signature of the image that is in use was "
            "verified with a key."
        ),
    ] = []


class DriverImage(Resource, frozen=True, kw_only=True):
    """DriverImage is the driver image for one driver version, one operating system and one kernel."""

    metadata: ObjectMeta
    spec: DriverImageSpec
    status: DriverImageStatus = DriverImageStatus()
    api_version: str = "gpu-upgrader.io/v1alpha1"
    kind: str = "DriverImage"
