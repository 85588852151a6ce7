"""A user's check of one image, in a registry or in a store: its signer and its contents."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import CheckName, Identity, Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.core.node_protocol.driver_services import SERVICES_LABEL
from upgrader.images import trust
from upgrader.images.drivers.publish.inspection import ExpectedImage, KernelTrees, inspect_image, unchecked_verdicts
from upgrader.images.labels import labelled_identity, layout_labels, registry_labels
from upgrader.images.layout import Layout, listed_images
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.reference import Reference, parse_reference
from upgrader.images.registry.transport import ChangedContentsError

NEEDED = ("recipe", "driver", "kernel")
"""The fields without which an identity is incomplete."""

_NO_BUNDLES = "not checked: signatures and documents are attached to an image in a registry, not in a store"
_SIGNED = trust.CHECKS[1:]


class ExaminedImage(Struct, frozen=True, kw_only=True):
    """The result. `identity` is the checked identity; `by_label` are its fields that the user did not give.

    `image` is `name[:tag]@sha256:...` or `oci:DIR@sha256:...`.
    """

    image: str
    identity: Identity
    by_label: tuple[str, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def failed_checks(self) -> tuple[Verdict, ...]:
        """The checks that did not pass. A check that was not done is not among them."""
        return tuple(verdict for verdict in self.verdicts if verdict.passed is False)


class InspectionOptions(Struct, frozen=True, kw_only=True):
    """How to inspect an image: see `inspection.inspect_image`."""

    kernels: KernelTrees
    certificate: Path | None = None
    boots: bool = False

    @property
    def skipped_checks(self) -> frozenset[CheckName]:
        """The checks that were not requested. An image counts as verified without them."""
        requested = {CheckName.SIGNATURE: self.certificate is not None, CheckName.BOOT: self.boots}
        return frozenset(check for check, is_requested in requested.items() if not is_requested)

    def inspect_layout(
        self, layout: Layout, identity: Identity, labels: Mapping[str, str], work: Path
    ) -> tuple[Verdict, ...]:
        """The verdicts on the contents."""
        expected = ExpectedImage(
            identity=identity,
            build_key=labels.get(trust.BUILD_KEY, ""),
            services=labels.get(SERVICES_LABEL, ""),
        )
        return inspect_image(layout, expected, self.kernels, work, certificate=self.certificate, boots=self.boots)


class Claim(Struct, frozen=True, kw_only=True):
    """The claimed identity: the fields `given` by the user, the others by the labels."""

    labels: Mapping[str, str]
    given: Mapping[str, str]

    @property
    def identity(self) -> Identity:
        """The identity; a field that neither contains is empty."""
        fields = {"vendor": "", "recipe": "", "driver": "", "kernel": "", "os": ""}
        return Identity(**{**fields, **labelled_identity(self.labels), **self.given})

    @property
    def by_label(self) -> tuple[str, ...]:
        """The fields that only the labels contain."""
        return tuple(name for name in labelled_identity(self.labels) if name not in self.given)

    @property
    def missing_fields(self) -> str:
        """A text about the required fields that are missing."""
        missing = [name for name in NEEDED if not getattr(self.identity, name)]
        ways = ", ".join(f"--{name}" for name in missing)
        return f"its labels lack its {' and '.join(missing)}; use {ways}" if missing else ""

    def with_verdicts(self, image: str, verdicts: Sequence[Verdict]) -> ExaminedImage:
        """The result with these verdicts."""
        return ExaminedImage(image=image, identity=self.identity, by_label=self.by_label, verdicts=tuple(verdicts))

    def with_refusal(self, image: str, why: str) -> ExaminedImage:
        """The result for an image that is incomplete; nothing else was checked."""
        signed = [Verdict(check=check, passed=None, reason="not checked") for check in _SIGNED]
        return self.with_verdicts(image, [_contents_verdict(why), *signed, *unchecked_verdicts("not checked")])


async def examine_image(
    image: str,
    given: Mapping[str, str],
    looks: InspectionOptions,
    *,
    key: trust.PublicKey,
    cosign: trust.Cosign,
    registry: RegistryClient,
) -> ExaminedImage:
    """Check an image in a registry, by tag or digest: the signed documents, then the layers, then their contents.

    Raises:
        RegistryError, ProcessError: registry or cosign do not answer, so there is no result.
        ConfigurationError: the registry does not have the image, or the key is invalid.
    """
    reference = await _resolve_digest(image, registry)
    name, pinned = str(reference), reference.with_digest(reference.digest)
    try:
        labels = await registry_labels(registry, pinned)
    except ChangedContentsError as error:
        return Claim(labels={}, given=given).with_refusal(name, error.details)
    except ValueError as error:
        return Claim(labels={}, given=given).with_refusal(name, f"it is not one image: {error}")
    claim = Claim(labels=labels or {}, given=given)
    if labels is None:
        return claim.with_refusal(name, "the registry has no image of this digest")
    if claim.missing_fields:
        return claim.with_refusal(name, claim.missing_fields)
    verdicts = await trust.Verifier(key=key, cosign=cosign, registry=registry).verify(name, claim.identity)
    if not all(verdict.passed for verdict in verdicts):
        return claim.with_verdicts(
            name, [*verdicts, *unchecked_verdicts("not checked: unverified images are not unpacked")]
        )
    with tempfile.TemporaryDirectory(prefix="upgrader-verify-") as place:
        try:
            layout = await registry.pull(pinned, Path(place) / "layout")
        except ChangedContentsError as error:
            return claim.with_refusal(name, error.details)
        if layout is None:
            return claim.with_refusal(name, "the registry has no image of this digest")
        inside = looks.inspect_layout(layout, claim.identity, claim.labels, Path(place) / "inside")
    return claim.with_verdicts(name, [*verdicts, *inside])


async def _resolve_digest(image: str, registry: RegistryClient) -> Reference:
    reference = parse_reference(image)
    if reference.digest:
        return reference
    pinned = await registry.digest(image)
    if pinned is None:
        raise ConfigurationError(f"{image} is not in its registry")
    return msgspec.structs.replace(reference, digest=pinned.partition("@")[2])


def examine_store(folder: Path, digest: str, given: Mapping[str, str], looks: InspectionOptions) -> ExaminedImage:
    """Check an image of an OCI layout: the image with a digest, or the only one that matches the given fields.

    Raises:
        ConfigurationError: none or several images match.
    """
    layout, claim, name = _choose_image(folder, digest, given)
    if layout is None or not layout.is_intact():
        return claim.with_refusal(name, "a part of it is missing, or differs from its digest")
    if claim.missing_fields:
        return claim.with_refusal(name, claim.missing_fields)
    signed = [Verdict(check=check, passed=None, reason=_NO_BUNDLES) for check in _SIGNED]
    with tempfile.TemporaryDirectory(prefix="upgrader-verify-") as place:
        inside = looks.inspect_layout(layout, claim.identity, claim.labels, Path(place) / "inside")
    return claim.with_verdicts(name, [_contents_verdict(""), *signed, *inside])


def _choose_image(folder: Path, digest: str, given: Mapping[str, str]) -> tuple[Layout | None, Claim, str]:
    candidates: list[tuple[Layout | None, Claim, str]] = []
    for image in listed_images(folder):
        if digest in {"", image.digest}:
            layout, labels = _open_image(folder, image.digest)
            labelled = labelled_identity(labels)
            if all(labelled.get(name, value) == value for name, value in given.items()):
                candidates.append((layout, Claim(labels=labels, given=given), f"oci:{folder}@{image.digest}"))
    if len(candidates) != 1:
        lines = [f"{name}: {claim.identity}" for _, claim, name in candidates]
        raise ConfigurationError(
            f"{len(candidates) or 'none'} of the images in {folder} match",
            details="\n".join(lines),
            resolution="Select one by oci:DIR@sha256:..., or by --recipe, --driver and --kernel.",
        )
    return candidates[0]


def _open_image(folder: Path, digest: str) -> tuple[Layout | None, dict[str, str]]:
    try:
        layout = Layout(folder, digest)
        return layout, layout_labels(layout)
    except (ConfigurationError, ValueError):
        return None, {}


def _contents_verdict(wrong: str) -> Verdict:
    holds = "the image matches its digest"
    return Verdict(check=CheckName.CONTENTS, passed=not wrong, reason=wrong or holds)
