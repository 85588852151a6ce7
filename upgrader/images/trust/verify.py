"""Verification by a consumer before it lets a node use an image: signature, key, identity and inputs.

The result is a tuple of verdicts, always of the same four checks. If a registry does not answer or cosign cannot run,
there is an error instead of a verdict, and the caller must wait.
"""

from upgrader.core.driver_build.driver_builds import CheckName, Identity, Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.images.labels import CONFIG_LIMIT, Parts, decode_labels
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.reference import Reference, parse_reference
from upgrader.images.registry.transport import ChangedContentsError
from upgrader.images.trust.cosign import Cosign
from upgrader.images.trust.evidence import FoundBundle, find_bundles
from upgrader.images.trust.judging import ABSENT, ExpectedFacts, judge_documents
from upgrader.images.trust.statements import PROVENANCE, SBOM, SIGNATURE
from upgrader.images.trust.values import BUILD_KEY, PublicKey
from upgrader.images.wire import decode_json

CHECKS = (CheckName.CONTENTS, CheckName.IMAGE_SIGNATURE, CheckName.PROVENANCE, CheckName.SBOM)
NOT_SIGNED = "not signed"


class Verifier:
    """Verifies images with one key.

    Args:
        key: the only trusted key.
        cosign: see `cosign.find_cosign`.
        registry: open; with logins if the registry requires them.
    """

    def __init__(self, *, key: PublicKey, cosign: Cosign, registry: RegistryClient) -> None:
        self._key = key
        self._cosign = cosign
        self._registry = registry

    async def verify(self, image: str, identity: Identity, *, layers: bool = False) -> tuple[Verdict, ...]:
        """The verdicts of CHECKS for `name@sha256:...`, or for `name:tag@sha256:...` if the tag must have the digest.

        Args:
            image: by digest.
            identity: the expected identity.
            layers: whether to fetch every layer and compare it with its digest. Container runtimes do that, too,
                so a controller leaves it out; the command line uses it to check the contents of the registry.

        Raises:
            RegistryError: the registry does not answer, so there is no result.
            ProcessError: cosign fails, so there is no result.
            ConfigurationError: the key is invalid, or `image` has no digest.
        """
        reference = parse_reference(image)
        if not reference.digest:
            raise ConfigurationError(
                f"{image} has no digest, so nothing can be verified",
                resolution="Name it as registry/repository@sha256:<64 hex digits>.",
            )
        contents = _Contents(self._registry, reference)
        try:
            wrong = await contents.check_image(layers=layers)
            bundles = () if wrong else await find_bundles(self._registry, reference.with_digest(reference.digest))
        except ChangedContentsError as error:
            wrong, bundles = error.details, ()
        if wrong:
            others = (Verdict(check=check, passed=None, reason="not checked") for check in CHECKS[1:])
            return (_make_verdict(CheckName.CONTENTS, wrong), *others)
        sha256 = reference.digest.partition(":")[2]
        return (
            _make_verdict(CheckName.CONTENTS, "", "the image matches its digest"),
            await self._check_signature(bundles, sha256),
            *await self._check_documents(
                bundles, ExpectedFacts(sha256=sha256, label=contents.build_key, identity=identity)
            ),
        )

    async def _check_signature(self, bundles: tuple[FoundBundle, ...], sha256: str) -> Verdict:
        good, refusals = await self._verified_statements(bundles, SIGNATURE, sha256)
        wrong = "" if good else "; ".join(refusals) or NOT_SIGNED
        return _make_verdict(CheckName.IMAGE_SIGNATURE, wrong, "signed with the key")

    async def _check_documents(
        self, bundles: tuple[FoundBundle, ...], expected: ExpectedFacts
    ) -> tuple[Verdict, Verdict]:
        provenances, no_provenance = await self._verified_statements(bundles, PROVENANCE, expected.sha256)
        sboms, no_sbom = await self._verified_statements(bundles, SBOM, expected.sha256)
        troubles = judge_documents(provenances, sboms, expected)
        holds = f"all inputs of build key {expected.label[:16]} are named, for {expected.identity}"
        return (
            _make_verdict(CheckName.PROVENANCE, _better_reason(troubles.provenance, no_provenance), holds),
            _make_verdict(CheckName.SBOM, _better_reason(troubles.sbom, no_sbom), holds),
        )

    async def _verified_statements(
        self, bundles: tuple[FoundBundle, ...], predicate_type: str, sha256: str
    ) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
        """Statements of a type that the key has signed about the digest, and the reasons why others are not."""
        good: list[bytes] = []
        refusals: list[str] = []
        for bundle in bundles:
            if bundle.bundle.predicate_type != predicate_type:
                continue
            refusal = await self._cosign.find_refusal(bundle.bundle, self._key, sha256)
            if refusal is None:
                good.append(bundle.payload)
            elif bundle.hint not in {"", self._key.hint}:
                refusals.append(f"signed with another key ({bundle.hint})")
            else:
                refusals.append(f"its signature is wrong: {refusal}")
        return tuple(good), tuple(dict.fromkeys(refusals))


def _make_verdict(check: CheckName, wrong: str, holds: str = "") -> Verdict:
    return Verdict(check=check, passed=not wrong, reason=wrong or holds)


def _better_reason(trouble: str, refusals: tuple[str, ...]) -> str:
    """If a document was rejected, its reason replaces "it does not exist"."""
    return "; ".join(refusals) if trouble == ABSENT and refusals else trouble


class _Contents:
    """The image itself: manifest, configuration and layers against their digests, and the tag against the digest."""

    def __init__(self, registry: RegistryClient, reference: Reference) -> None:
        self._registry = registry
        self._reference = reference
        self.build_key = ""

    async def check_image(self, *, layers: bool) -> str:
        """The problem of the image, or an empty text after the label was read."""
        pinned = self._reference.with_digest(self._reference.digest)
        manifest = await self._registry.get_manifest(pinned)
        if manifest is None:
            return "the registry has no image of this digest"
        if wrong := await self._tag_moved():
            return wrong
        try:
            parts = decode_json(manifest.data, Parts)
            config = await self._registry.read_blob(parts.config, self._reference, limit=CONFIG_LIMIT)
            labels = decode_labels(config)
        except ValueError as error:
            return f"its manifest ({manifest.media_type}) is not that of one image: {error}"
        self.build_key = labels.get(BUILD_KEY, "")
        for layer in parts.layers if layers else ():
            async for _ in self._registry.read_chunks(layer, self._reference):
                pass
        return "" if self.build_key else f"it has no label {BUILD_KEY}"

    async def _tag_moved(self) -> str:
        if not self._reference.tag:
            return ""
        now = await self._registry.digest(f"{self._reference.name}:{self._reference.tag}")
        if now == self._reference.with_digest(self._reference.digest):
            return ""
        return f"the tag {self._reference.tag} refers to {now or 'no image'}"
