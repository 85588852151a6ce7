"""Bundles of packages in a registry: signed by the packer, and verified before they are unpacked."""

from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ConfigurationError, UnverifiedError
from upgrader.images import trust
from upgrader.images.drivers.recipe.definition import BuildDefinition
from upgrader.images.layout import Layout
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.login import auth_file, read_logins
from upgrader.images.registry.reference import parse_reference
from upgrader.images.trust import evidence, statements
from upgrader.process.places import Progress


class NoBundleError(ConfigurationError):
    """The registry reports that it does not have the bundle. The build can be repeated after a push."""


class Signer(Struct, frozen=True, kw_only=True):
    """The key of the packer."""

    key: trust.SigningKey
    cosign: trust.Cosign


class BundleTrust(Struct, frozen=True, kw_only=True):
    """The trusted key for bundles."""

    public: trust.PublicKey
    cosign: trust.Cosign


async def push_bundle(
    layout: Layout, definition: BuildDefinition, image: str, *, signer: Signer | None, insecure: Collection[str]
) -> str:
    """Push a bundle and return `name@sha256:...`. The tag is pushed last, so that it always refers to a signed bundle.

    Raises:
        RegistryError: the registry rejects it.
        ProcessError: cosign fails.
    """
    async with RegistryClient(insecure=insecure, logins=read_logins(auth_file())) as registry:
        pinned = parse_reference(image).with_digest(layout.image.digest)
        await registry.push(layout, pinned)
        if signer is not None:
            digest, inputs = layout.image.digest, definition.inputs
            facts = trust.SignedImageFacts(digest=digest, identity=definition.identity, inputs=inputs)
            await trust.publish_signatures(pinned, facts, key=signer.key, cosign=signer.cosign, registry=registry)
        await registry.push(layout, image)
        return pinned


async def pull_bundle(
    image: str, folder: Path, *, judge: BundleTrust | None, insecure: Collection[str], progress: Progress
) -> Layout:
    """The layout of the bundle that the tag refers to. The signature is verified before any package is pulled.

    Args:
        image: by tag or digest.
        folder: receives the layout.
        judge: without it, anyone with write access to the registry decides what is compiled; `progress` reports that.
        insecure: registries that are accessed without TLS.
        progress: receives a warning if the bundle is not verified.

    Raises:
        UnverifiedError: the key has not signed this digest.
        RegistryError, ProcessError: registry or cosign do not answer, so there is no result.
        NoBundleError: the bundle does not exist.
        ConfigurationError: the reference is not a single image.
    """
    async with RegistryClient(insecure=insecure, logins=read_logins(auth_file())) as registry:
        pinned = await registry.digest(image)
        if pinned is None:
            raise NoBundleError(f"{image} is not in its registry", resolution="Run `upgrader images pack`.")
        if judge is None:
            progress(f"{image}: not verified; use --public-key to verify the packages")
        elif wrong := await _find_refusal(registry, pinned, judge):
            raise UnverifiedError(
                f"{image} is not signed by the key of --public-key; it was not unpacked",
                details=f"{pinned}: {wrong}",
                resolution="Run `upgrader images pack` with --key.",
            )
        layout = await registry.pull(pinned, folder)
        if layout is None:
            raise NoBundleError(f"{pinned} is not in its registry", resolution="Run `upgrader images pack`.")
        return layout


async def _find_refusal(registry: RegistryClient, pinned: str, judge: BundleTrust) -> str:
    """The reason why the key does not verify a digest; empty if it does. The digest covers the whole bundle."""
    sha256 = parse_reference(pinned).digest.partition(":")[2]
    refusals: list[str] = []
    for bundle in await evidence.find_bundles(registry, pinned):
        if bundle.bundle.predicate_type != statements.SIGNATURE:
            continue
        refusal = await judge.cosign.find_refusal(bundle.bundle, judge.public, sha256)
        if refusal is None:
            return ""
        refusals.append(refusal)
    return "; ".join(dict.fromkeys(refusals)) or trust.NOT_SIGNED
