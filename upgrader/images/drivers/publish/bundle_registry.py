"""Bundles of packages in a registry: signed by whoever packs, verified before anything of them is unpacked."""

from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ConfigurationError, UnverifiedError
from upgrader.images import trust
from upgrader.images.drivers.recipe.definition import Definition
from upgrader.images.layout import Layout
from upgrader.images.reference import parse
from upgrader.images.registry import RegistryClient
from upgrader.images.registry_login import auth_file, logins
from upgrader.images.trust import evidence, statements
from upgrader.process.places import Progress


class NoBundleError(ConfigurationError):
    """The registry itself says that it has no such bundle: one that is pushed is built from."""


class Signer(Struct, frozen=True, kw_only=True):
    """Who packs."""

    key: trust.SigningKey
    cosign: trust.Cosign


class Judge(Struct, frozen=True, kw_only=True):
    """Whose bundles are built from."""

    public: trust.PublicKey
    cosign: trust.Cosign


async def push_bundle(
    layout: Layout, definition: Definition, image: str, *, signer: Signer | None, insecure: Collection[str]
) -> str:
    """`name@sha256:...`. The tag comes last: who looks for the bundle finds one that is signed, where one signs.

    Raises:
        RegistryError: the registry does not take it.
        ProcessError: cosign fails.
    """
    async with RegistryClient(insecure=insecure, logins=logins(auth_file())) as registry:
        pinned = parse(image).pinned(layout.image.digest)
        await registry.push(layout, pinned)
        if signer is not None:
            digest, inputs = layout.image.digest, definition.inputs
            facts = trust.ImageFacts(digest=digest, identity=definition.identity, inputs=inputs)
            await trust.publish(pinned, facts, key=signer.key, cosign=signer.cosign, registry=registry)
        await registry.push(layout, image)
        return pinned


async def pull_bundle(
    image: str, folder: Path, *, judge: Judge | None, insecure: Collection[str], progress: Progress
) -> Layout:
    """The layout of the bundle that the tag stands for; not one package comes before its signature is verified.

    Args:
        image: by tag or digest.
        folder: gets the layout.
        judge: without, whoever can write to the registry says what is compiled; `progress` is told so.
        insecure: registries that are spoken to without TLS.
        progress: told of what is not verified.

    Raises:
        UnverifiedError: the key has not signed this digest.
        RegistryError, ProcessError: registry or cosign do not answer, so nothing is known.
        NoBundleError: it is not there.
        ConfigurationError: it is not one image.
    """
    async with RegistryClient(insecure=insecure, logins=logins(auth_file())) as registry:
        pinned = await registry.digest(image)
        if pinned is None:
            raise NoBundleError(f"{image} is not in its registry", resolution="Run `upgrader images pack`.")
        if judge is None:
            progress(f"{image}: not verified; --public-key says whose packages are built from")
        elif wrong := await _refusal(registry, pinned, judge):
            raise UnverifiedError(
                f"{image} is not signed by the key of --public-key; nothing of it was unpacked",
                details=f"{pinned}: {wrong}",
                resolution="Run `upgrader images pack` with --key.",
            )
        layout = await registry.pull(pinned, folder)
        if layout is None:
            raise NoBundleError(f"{pinned} is not in its registry", resolution="Run `upgrader images pack`.")
        return layout


async def _refusal(registry: RegistryClient, pinned: str, judge: Judge) -> str:
    """Why the key does not vouch for a digest; empty where it does. All else in the bundle hangs on the digest."""
    sha256 = parse(pinned).digest.partition(":")[2]
    refusals: list[str] = []
    for one in await evidence.look(registry, pinned):
        if one.bundle.predicate_type != statements.SIGNATURE:
            continue
        refusal = await judge.cosign.refusal(one.bundle, judge.public, sha256)
        if refusal is None:
            return ""
        refusals.append(refusal)
    return "; ".join(dict.fromkeys(refusals)) or trust.NOT_SIGNED
