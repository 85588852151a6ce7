"""Images from the shelf into a registry, with their documents, looked at again as a consumer does."""

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
from upgrader.images.drivers.publish.build_matrix import unpublished
from upgrader.images.drivers.recipe.definition import Definition
from upgrader.images.drivers.recipe.manifest import read_manifest
from upgrader.images.labels import registry_labels
from upgrader.images.layout import Layout
from upgrader.images.reference import parse
from upgrader.images.registry import RegistryClient
from upgrader.images.registry_http import ChangedContentsError
from upgrader.images.registry_login import auth_file, logins
from upgrader.process.places import Progress


class Trust(Struct, frozen=True, kw_only=True):
    """Who signs, and what consumers will verify with."""

    key: trust.SigningKey
    public: trust.PublicKey
    cosign: trust.Cosign


class Publisher:
    """Pushes to `repository/RECIPE:TAG`. Whatever is there already in the same form is left alone.

    Args:
        repository: registry/path.
        shelf: where the images are.
        insecure: registries that are spoken to without TLS.
        keys: without, images are pushed unsigned, and no controller takes them.
    """

    def __init__(
        self,
        repository: str,
        shelf: Shelf,
        *,
        insecure: Collection[str],
        keys: Trust | None,
        progress: Progress,
    ) -> None:
        self._repository = repository
        self._shelf = shelf
        self._insecure = insecure
        self._keys = keys
        self._progress = progress

    def publish(self, result: BuildResult) -> BuildResult:
        """The cell with its image's name in the registry, or red: nothing that a registry does not say is guessed."""
        try:
            image, verdicts = asyncio.run(self._publish(result.identity, result.digest))
        except (RegistryError, ProcessError) as error:
            return unpublished(result, str(error), FailureClass.PUSH)
        refused = [f"{one.check}: {one.reason}" for one in verdicts if one.passed is False]
        if refused:
            return unpublished(result, "; ".join(refused), FailureClass.SIGNATURE)
        return msgspec.structs.replace(result, digest=image, checks=(*result.checks, *verdicts))

    def find(self, definition: Definition) -> BuildResult | None:
        """The image at the cell's tag, if it is of this build key and the key vouches for it; None where it is not.

        Raises:
            RegistryError, ProcessError: registry or cosign do not answer, so nothing is known.
        """
        return asyncio.run(self._find(definition))

    async def _find(self, definition: Definition) -> BuildResult | None:
        identity = definition.identity
        async with RegistryClient(insecure=self._insecure, logins=logins(auth_file())) as registry:
            pinned = await registry.digest(image_name(self._repository, identity))
            if pinned is None:
                return None
            try:
                labels = await registry_labels(registry, pinned) or {}
            except (ValueError, ChangedContentsError) as error:
                self._progress(f"{identity}: what {pinned} has there is no image of ours: {error}")
                return None
            if labels.get(trust.BUILD_KEY) != definition.key:
                return None
            verdicts: tuple[Verdict, ...] = ()
            if self._keys is not None:
                verifier = trust.Verifier(key=self._keys.public, cosign=self._keys.cosign, registry=registry)
                verdicts = await verifier.verify(pinned, identity)
            if not all(one.passed for one in verdicts):
                refused = "; ".join(f"{one.check}: {one.reason}" for one in verdicts if not one.passed)
                self._progress(f"{identity}: built again, as {pinned} does not verify: {refused}")
                return None
            return BuildResult(
                identity=identity,
                state=CellState.UNCHANGED,
                digest=pinned,
                build_key=definition.key,
                checks=verdicts,
            )

    async def _publish(self, identity: Identity, digest: str) -> tuple[str, tuple[Verdict, ...]]:
        name = image_name(self._repository, identity)
        layout = self._shelf.layout(digest)
        async with RegistryClient(insecure=self._insecure, logins=logins(auth_file())) as registry:
            pinned = parse(name).pinned(digest)
            if await registry.digest(pinned) is None:
                self._progress(f"{identity}: pushing {layout.size / 1e6:.1f} MB")
                await registry.push(layout, pinned)
            verdicts = await self._signed(pinned, identity, layout, registry, self._keys) if self._keys else ()
            # The tag comes last: who looks for the image finds one that is signed, or none.
            if all(one.passed is not False for one in verdicts) and await registry.digest(name) != pinned:
                await registry.push(layout, name)
            return pinned, verdicts

    async def _signed(
        self, image: str, identity: Identity, layout: Layout, registry: RegistryClient, keys: Trust
    ) -> tuple[Verdict, ...]:
        """Signed only where no good signature is there; verified in the end in any case."""
        verifier = trust.Verifier(key=keys.public, cosign=keys.cosign, registry=registry)
        verdicts = await verifier.verify(image, identity)
        if all(one.passed for one in verdicts):
            return verdicts
        self._progress(f"{identity}: signing")
        facts = image_facts(identity, layout)
        await trust.publish(image, facts, key=keys.key, cosign=keys.cosign, registry=registry)
        return await verifier.verify(image, identity, layers=True)


def image_facts(identity: Identity, layout: Layout) -> trust.ImageFacts:
    """What is said about an image in its documents: read from the image itself."""
    with tempfile.TemporaryDirectory(prefix="upgrader-facts-") as place:
        root = Path(place) / "root"
        unpack_driver(layout, root)
        manifest = read_manifest(root / MANIFEST)
        files = tuple(_file(path, root) for path in sorted((root / "driver").rglob("*")) if _plain(path))
    return trust.ImageFacts(digest=layout.image.digest, identity=identity, inputs=manifest.inputs, files=files)


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _file(path: Path, root: Path) -> trust.ShippedFile:
    data = path.read_bytes()
    return trust.ShippedFile(
        path=str(path.relative_to(root)),
        sha1=hashlib.sha1(data, usedforsecurity=False).hexdigest(),
        sha256=hashlib.sha256(data).hexdigest(),
    )
