"""A person's check of one image, in a registry or in a store: who made it, and what is in it."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import CheckName, Identity, Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.images import trust
from upgrader.images.drivers.publish.inspection import Expected, KernelTrees, inspect, not_looked_at
from upgrader.images.labels import layout_labels, registry_labels, said_of_identity
from upgrader.images.layout import Layout, images
from upgrader.images.reference import Reference, parse
from upgrader.images.registry import RegistryClient
from upgrader.images.registry_http import ChangedContentsError

NEEDED = ("recipe", "driver", "kernel")
"""Without these an image is for nothing in particular."""

_NO_BUNDLES = "not looked at: signatures and documents hang on an image in a registry, not in a store"
_SIGNED = trust.CHECKS[1:]


class Examined(Struct, frozen=True, kw_only=True):
    """What was found. `identity` is whose image it was taken for; `by_label` are its fields that nobody gave.

    `image` is `name[:tag]@sha256:...` or `oci:DIR@sha256:...`.
    """

    image: str
    identity: Identity
    by_label: tuple[str, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The checks that did not pass; one that was not made is none of them."""
        return tuple(one for one in self.verdicts if one.passed is False)


class Looks(Struct, frozen=True, kw_only=True):
    """How an image is looked into: see `inspecting.inspect`."""

    kernels: KernelTrees
    certificate: Path | None = None
    boots: bool = False

    @property
    def left_out(self) -> frozenset[CheckName]:
        """The checks that nobody asked for, and without which an image is verified."""
        asked = {CheckName.SIGNATURE: self.certificate is not None, CheckName.BOOT: self.boots}
        return frozenset(check for check, wanted in asked.items() if not wanted)

    def into(self, layout: Layout, identity: Identity, labels: Mapping[str, str], work: Path) -> tuple[Verdict, ...]:
        """The verdicts on what is inside."""
        expected = Expected(identity=identity, build_key=labels.get(trust.BUILD_KEY, ""))
        return inspect(layout, expected, self.kernels, work, certificate=self.certificate, boots=self.boots)


class Claim(Struct, frozen=True, kw_only=True):
    """Whose image it is said to be: `given` by a person, the rest by its labels."""

    labels: Mapping[str, str]
    given: Mapping[str, str]

    @property
    def identity(self) -> Identity:
        """All of it; empty where neither says anything."""
        fields = {"vendor": "", "recipe": "", "driver": "", "kernel": "", "os": ""}
        return Identity(**{**fields, **said_of_identity(self.labels), **self.given})

    @property
    def by_label(self) -> tuple[str, ...]:
        """The fields that labels alone say."""
        return tuple(name for name in said_of_identity(self.labels) if name not in self.given)

    @property
    def trouble(self) -> str:
        """What neither says."""
        missing = [name for name in NEEDED if not getattr(self.identity, name)]
        ways = ", ".join(f"--{name}" for name in missing)
        return f"its labels do not say its {' and '.join(missing)}; with {ways} it is looked at" if missing else ""

    def examined(self, image: str, verdicts: Sequence[Verdict]) -> Examined:
        """As a result."""
        return Examined(image=image, identity=self.identity, by_label=self.by_label, verdicts=tuple(verdicts))

    def refused(self, image: str, why: str) -> Examined:
        """As a result: the image is not whole, and nothing else is looked at."""
        signed = [Verdict(check=check, passed=None, reason="not looked at") for check in _SIGNED]
        return self.examined(image, [_contents(why), *signed, *not_looked_at("not looked at")])


async def examine(
    image: str,
    given: Mapping[str, str],
    looks: Looks,
    *,
    key: trust.PublicKey,
    cosign: trust.Cosign,
    registry: RegistryClient,
) -> Examined:
    """An image in a registry, by tag or digest: what the key vouches for, then its layers, then what is in them.

    Raises:
        RegistryError, ProcessError: registry or cosign do not answer, so nothing is known.
        ConfigurationError: no such name is in the registry, or the key is none.
    """
    reference = await _resolved(image, registry)
    name, pinned = str(reference), reference.pinned(reference.digest)
    try:
        labels = await registry_labels(registry, pinned)
    except ChangedContentsError as error:
        return Claim(labels={}, given=given).refused(name, error.details)
    except ValueError as error:
        return Claim(labels={}, given=given).refused(name, f"it is not one image: {error}")
    claim = Claim(labels=labels or {}, given=given)
    if labels is None:
        return claim.refused(name, "the registry has no image of this digest")
    if claim.trouble:
        return claim.refused(name, claim.trouble)
    verdicts = await trust.Verifier(key=key, cosign=cosign, registry=registry).verify(name, claim.identity)
    if not all(one.passed for one in verdicts):
        return claim.examined(name, [*verdicts, *not_looked_at("not looked at: what nobody vouches for stays closed")])
    with tempfile.TemporaryDirectory(prefix="upgrader-verify-") as place:
        try:
            layout = await registry.pull(pinned, Path(place) / "layout")
        except ChangedContentsError as error:
            return claim.refused(name, error.details)
        if layout is None:
            return claim.refused(name, "the registry has no image of this digest")
        inside = looks.into(layout, claim.identity, claim.labels, Path(place) / "inside")
    return claim.examined(name, [*verdicts, *inside])


async def _resolved(image: str, registry: RegistryClient) -> Reference:
    reference = parse(image)
    if reference.digest:
        return reference
    pinned = await registry.digest(image)
    if pinned is None:
        raise ConfigurationError(f"{image} is not in its registry")
    return msgspec.structs.replace(reference, digest=pinned.partition("@")[2])


def examine_store(folder: Path, digest: str, given: Mapping[str, str], looks: Looks) -> Examined:
    """An image of an OCI layout: the one of a digest, or the only one that is what was given.

    Raises:
        ConfigurationError: there is none, or several are.
    """
    layout, claim, name = _chosen(folder, digest, given)
    if layout is None or not layout.whole():
        return claim.refused(name, "a part of it is missing, or not what its digest says")
    if claim.trouble:
        return claim.refused(name, claim.trouble)
    signed = [Verdict(check=check, passed=None, reason=_NO_BUNDLES) for check in _SIGNED]
    with tempfile.TemporaryDirectory(prefix="upgrader-verify-") as place:
        inside = looks.into(layout, claim.identity, claim.labels, Path(place) / "inside")
    return claim.examined(name, [_contents(""), *signed, *inside])


def _chosen(folder: Path, digest: str, given: Mapping[str, str]) -> tuple[Layout | None, Claim, str]:
    found: list[tuple[Layout | None, Claim, str]] = []
    for one in images(folder):
        if digest in {"", one.digest}:
            layout, labels = _opened(folder, one.digest)
            said = said_of_identity(labels)
            if all(said.get(name, value) == value for name, value in given.items()):
                found.append((layout, Claim(labels=labels, given=given), f"oci:{folder}@{one.digest}"))
    if len(found) != 1:
        lines = [f"{name}: {claim.identity}" for _, claim, name in found]
        raise ConfigurationError(
            f"{len(found) or 'none'} of the images in {folder} are meant",
            details="\n".join(lines),
            resolution="Name one as oci:DIR@sha256:..., or by --recipe, --driver and --kernel.",
        )
    return found[0]


def _opened(folder: Path, digest: str) -> tuple[Layout | None, dict[str, str]]:
    try:
        layout = Layout(folder, digest)
        return layout, layout_labels(layout)
    except (ConfigurationError, ValueError):
        return None, {}


def _contents(wrong: str) -> Verdict:
    holds = "the image is what its digest says"
    return Verdict(check=CheckName.CONTENTS, passed=not wrong, reason=wrong or holds)
