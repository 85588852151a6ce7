"""Pushes images from the shelf to a registry with their documents, and verifies them as a consumer does."""

import asyncio
import hashlib
import tempfile
from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.build_results import BuildResult, CellState
from upgrader.core.driver_build.driver_builds import FailureClass, Identity, Verdict
from upgrader.core.driver_image.image_names import image_name
from upgrader.core.errors import ProcessError, RegistryError
from upgrader.images import trust
from upgrader.images.drivers.builder.assembly import MANIFEST, unpack_driver
from upgrader.images.drivers.builder.image_store import Shelf
from upgrader.images.drivers.publish.build_matrix import unpublished_result
from upgrader.images.drivers.recipe.definition import BuildDefinition
from upgrader.images.drivers.recipe.manifest import read_manifest
from upgrader.images.labels import registry_labels
from upgrader.images.layout import Layout
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.login import auth_file, read_logins
from upgrader.images.registry.reference import parse_reference
from upgrader.images.registry.transport import ChangedContentsError
from upgrader.process.places import Progress


class PublicationKeys(Struct, frozen=True, kw_only=True):
    """The signing key, and the public key of the consumers."""

    key: trust.SigningKey
    public: trust.PublicKey
    cosign: trust.Cosign


class Publisher:
    """Pushes to `repository/RECIPE:TAG`. Images that the registry already has in the same form are left alone.

    Args:
        repository: registry/path.
        shelf: the stored images.
        insecure: registries that are accessed without TLS.
        keys: without it, images are pushed unsigned, and controllers reject them.
    """

    def __init__(
        self,
        repository: str,
        shelf: Shelf,
        *,
        insecure: Collection[str],
        keys: PublicationKeys | None,
        progress: Progress,
    ) -> None:
        self._repository = repository
        self._shelf = shelf
        self._insecure = insecure
        self._keys = keys
        self._progress = progress

    def publish(self, result: BuildResult) -> BuildResult:
        """The cell with its image's name in the registry, or a red cell if the registry does not answer."""
        try:
            image, verdicts = asyncio.run(self._push_and_sign(result.identity, result.digest))
        except (RegistryError, ProcessError) as error:
            return unpublished_result(result, str(error), FailureClass.PUSH)
        refused = [f"{verdict.check}: {verdict.reason}" for verdict in verdicts if verdict.passed is False]
        if refused:
            return unpublished_result(result, "; ".join(refused), FailureClass.SIGNATURE)
        return msgspec.structs.replace(result, digest=image, checks=(*result.checks, *verdicts))

    def find_published(self, definition: BuildDefinition) -> BuildResult | None:
        """The image at the cell's tag, if it has this build key and the key verifies it; otherwise None.

        Raises:
            RegistryError, ProcessError: registry or cosign do not answer, so there is no result.
        """
        return asyncio.run(self._find_verified(definition))

    async def _find_verified(self, definition: BuildDefinition) -> BuildResult | None:
        identity = definition.identity
        async with RegistryClient(insecure=self._insecure, logins=read_logins(auth_file())) as registry:
            pinned = await registry.digest(image_name(self._repository, identity))
            if pinned is None:
                return None
            try:
                labels = await registry_labels(registry, pinned) or {}
            except (ValueError, ChangedContentsError) as error:
                self._progress(f"{identity}: {pinned} is not an image of this project: {error}")
                return None
            if labels.get(trust.BUILD_KEY) != definition.key:
                return None
            verdicts: tuple[Verdict, ...] = ()
            if self._keys is not None:
                verifier = trust.Verifier(key=self._keys.public, cosign=self._keys.cosign, registry=registry)
                verdicts = await verifier.verify(pinned, identity)
            if not all(verdict.passed for verdict in verdicts):
                refused = "; ".join(f"{verdict.check}: {verdict.reason}" for verdict in verdicts if not verdict.passed)
                self._progress(f"{identity}: built again, since the verification of {pinned} failed: {refused}")
                return None
            return BuildResult(
                identity=identity,
                state=CellState.UNCHANGED,
                digest=pinned,
                build_key=definition.key,
                checks=verdicts,
            )

    async def _push_and_sign(self, identity: Identity, digest: str) -> tuple[str, tuple[Verdict, ...]]:
        name = image_name(self._repository, identity)
        layout = self._shelf.open_layout(digest)
        async with RegistryClient(insecure=self._insecure, logins=read_logins(auth_file())) as registry:
            pinned = parse_reference(name).with_digest(digest)
            if await registry.digest(pinned) is None:
                self._progress(f"{identity}: pushing {layout.size / 1e6:.1f} MB")
                await registry.push(layout, pinned)
            verdicts = await self._sign_if_needed(pinned, identity, layout, registry, self._keys) if self._keys else ()
            # The tag is pushed last, so that it always refers to a signed image.
            if all(verdict.passed is not False for verdict in verdicts) and await registry.digest(name) != pinned:
                await registry.push(layout, name)
            return pinned, verdicts

    async def _sign_if_needed(
        self, image: str, identity: Identity, layout: Layout, registry: RegistryClient, keys: PublicationKeys
    ) -> tuple[Verdict, ...]:
        """Sign the image unless it has a valid signature. It is verified in any case."""
        verifier = trust.Verifier(key=keys.public, cosign=keys.cosign, registry=registry)
        verdicts = await verifier.verify(image, identity)
        if all(verdict.passed for verdict in verdicts):
            return verdicts
        self._progress(f"{identity}: signing")
        facts = image_facts(identity, layout)
        await trust.publish_signatures(image, facts, key=keys.key, cosign=keys.cosign, registry=registry)
        return await verifier.verify(image, identity, layers=True)


def image_facts(identity: Identity, layout: Layout) -> trust.SignedImageFacts:
    """The facts in an image's documents, read from the image itself."""
    with tempfile.TemporaryDirectory(prefix="upgrader-facts-") as place:
        root = Path(place) / "root"
        unpack_driver(layout, root)
        manifest = read_manifest(root / MANIFEST)
        files = tuple(
            _shipped_file(path, root) for path in sorted((root / "driver").rglob("*")) if _is_plain_file(path)
        )
    return trust.SignedImageFacts(digest=layout.image.digest, identity=identity, inputs=manifest.inputs, files=files)


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _shipped_file(path: Path, root: Path) -> trust.ShippedFile:
    data = path.read_bytes()
    return trust.ShippedFile(
        path=str(path.relative_to(root)),
        sha1=hashlib.sha1(data, usedforsecurity=False).hexdigest(),
        sha256=hashlib.sha256(data).hexdigest(),
    )
