"""What a consumer asks before it lets a node near an image: is it signed, by the key that counts, and what is it?

The answer is a tuple of verdicts, always of the same four checks. It never says that something is wrong because a
registry did not answer, or because cosign could not be run: those are errors, and who gets one holds.
"""

from upgrader.core.driver_build.driver_builds import CheckName, Identity, Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.images.labels import CONFIG_LIMIT, Parts, decode_labels
from upgrader.images.reference import Reference, parse
from upgrader.images.registry import RegistryClient
from upgrader.images.registry_http import ChangedContentsError
from upgrader.images.trust.cosign import Cosign
from upgrader.images.trust.evidence import Found, look
from upgrader.images.trust.judging import ABSENT, Expected, judge
from upgrader.images.trust.statements import PROVENANCE, SBOM, SIGNATURE
from upgrader.images.trust.values import BUILD_KEY, PublicKey
from upgrader.images.wire import decode

CHECKS = (CheckName.CONTENTS, CheckName.IMAGE_SIGNATURE, CheckName.PROVENANCE, CheckName.SBOM)
NOT_SIGNED = "not signed"


class Verifier:
    """Verifies images with one key.

    Args:
        key: the only one that counts.
        cosign: see `cosign.find`.
        registry: open; with logins where the registry wants them.
    """

    def __init__(self, *, key: PublicKey, cosign: Cosign, registry: RegistryClient) -> None:
        self._key = key
        self._cosign = cosign
        self._registry = registry

    async def verify(self, image: str, identity: Identity, *, layers: bool = False) -> tuple[Verdict, ...]:
        """The verdicts of CHECKS on `name@sha256:...`, or `name:tag@sha256:...` where the tag has to be at the digest.

        Args:
            image: by digest.
            identity: whose image it has to be.
            layers: whether every layer is fetched and compared with its digest. Whoever pulls the image does that
                again, so a controller leaves it out; a person who wants to know what lies in the registry asks for it.

        Raises:
            RegistryError: the registry does not answer, so nothing is known.
            ProcessError: cosign does not answer, so nothing is known.
            ConfigurationError: the key is none, or `image` has no digest.
        """
        reference = parse(image)
        if not reference.digest:
            raise ConfigurationError(
                f"{image} has no digest, so nothing can be verified",
                resolution="Name it as registry/repository@sha256:<64 hex digits>.",
            )
        contents = _Contents(self._registry, reference)
        try:
            wrong = await contents.look(layers=layers)
            found = () if wrong else await look(self._registry, reference.pinned(reference.digest))
        except ChangedContentsError as error:
            wrong, found = error.details, ()
        if wrong:
            others = (Verdict(check=check, passed=None, reason="not looked at") for check in CHECKS[1:])
            return (_verdict(CheckName.CONTENTS, wrong), *others)
        sha256 = reference.digest.partition(":")[2]
        return (
            _verdict(CheckName.CONTENTS, "", "the image is what its digest says"),
            await self._signature(found, sha256),
            *await self._documents(found, Expected(sha256=sha256, label=contents.build_key, identity=identity)),
        )

    async def _signature(self, found: tuple[Found, ...], sha256: str) -> Verdict:
        good, refusals = await self._verified(found, SIGNATURE, sha256)
        wrong = "" if good else "; ".join(refusals) or NOT_SIGNED
        return _verdict(CheckName.IMAGE_SIGNATURE, wrong, "signed with the key")

    async def _documents(self, found: tuple[Found, ...], expected: Expected) -> tuple[Verdict, Verdict]:
        provenances, no_provenance = await self._verified(found, PROVENANCE, expected.sha256)
        sboms, no_sbom = await self._verified(found, SBOM, expected.sha256)
        troubles = judge(provenances, sboms, expected)
        holds = f"all inputs of build key {expected.label[:16]} are named, for {expected.identity}"
        return (
            _verdict(CheckName.PROVENANCE, _why(troubles.provenance, no_provenance), holds),
            _verdict(CheckName.SBOM, _why(troubles.sbom, no_sbom), holds),
        )

    async def _verified(
        self, found: tuple[Found, ...], predicate_type: str, sha256: str
    ) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
        """Statements of a type that the key has signed about the digest, and why the others are none."""
        good: list[bytes] = []
        refusals: list[str] = []
        for one in found:
            if one.bundle.predicate_type != predicate_type:
                continue
            refusal = await self._cosign.refusal(one.bundle, self._key, sha256)
            if refusal is None:
                good.append(one.payload)
            elif one.hint not in {"", self._key.hint}:
                refusals.append(f"signed with another key ({one.hint})")
            else:
                refusals.append(f"its signature is wrong: {refusal}")
        return tuple(good), tuple(dict.fromkeys(refusals))


def _verdict(check: CheckName, wrong: str, holds: str = "") -> Verdict:
    return Verdict(check=check, passed=not wrong, reason=wrong or holds)


def _why(trouble: str, refusals: tuple[str, ...]) -> str:
    """That there is no such document has a better reason where one was refused."""
    return "; ".join(refusals) if trouble == ABSENT and refusals else trouble


class _Contents:
    """The image itself: manifest, configuration and layers against their digests, the tag against the digest."""

    def __init__(self, registry: RegistryClient, reference: Reference) -> None:
        self._registry = registry
        self._reference = reference
        self.build_key = ""

    async def look(self, *, layers: bool) -> str:
        """What is wrong; empty, and the label read, when nothing is."""
        pinned = self._reference.pinned(self._reference.digest)
        manifest = await self._registry.manifest(pinned)
        if manifest is None:
            return "the registry has no image of this digest"
        if wrong := await self._tag_moved():
            return wrong
        try:
            parts = decode(manifest.data, Parts)
            config = await self._registry.blob(parts.config, self._reference, limit=CONFIG_LIMIT)
            labels = decode_labels(config)
        except ValueError as error:
            return f"its manifest ({manifest.media_type}) is not that of one image: {error}"
        self.build_key = labels.get(BUILD_KEY, "")
        for layer in parts.layers if layers else ():
            async for _ in self._registry.chunks(layer, self._reference):
                pass
        return "" if self.build_key else f"it has no label {BUILD_KEY}"

    async def _tag_moved(self) -> str:
        if not self._reference.tag:
            return ""
        now = await self._registry.digest(f"{self._reference.name}:{self._reference.tag}")
        if now == self._reference.pinned(self._reference.digest):
            return ""
        return f"the tag {self._reference.tag} stands for {now or 'no image'}"
