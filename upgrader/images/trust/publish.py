"""Signing what was built: three statements about one digest, each a bundle, hung on the image in its registry."""

from upgrader.core.errors import ConfigurationError
from upgrader.images.reference import parse
from upgrader.images.registry import RegistryClient
from upgrader.images.trust import evidence
from upgrader.images.trust.cosign import Cosign
from upgrader.images.trust.sbom import sbom
from upgrader.images.trust.statements import PROVENANCE, SBOM, SIGNATURE, provenance, signature
from upgrader.images.trust.values import Bundle, ImageFacts, SigningKey


async def sign(facts: ImageFacts, *, key: SigningKey, cosign: Cosign) -> tuple[Bundle, ...]:
    """SBOM, provenance and signature of an image, wherever it lies. The signature comes last: then all is there.

    Raises:
        ConfigurationError: the key or the facts cannot be used.
        ProcessError: cosign fails.
    """
    said = ((sbom(facts), SBOM), (provenance(facts), PROVENANCE), (signature(facts), SIGNATURE))
    return tuple([await cosign.sign(statement, kind, key) for statement, kind in said])


async def publish(image: str, facts: ImageFacts, *, key: SigningKey, cosign: Cosign, registry: RegistryClient) -> None:
    """Sign an image that was pushed as `name@sha256:...`.

    Signing again adds to what is there, and one set of three that verifies is enough: whoever was interrupted signs
    again, whoever wants to know first asks a `Verifier`.

    Raises:
        ConfigurationError: as `sign`; also when `facts` are about another digest.
        ProcessError: as `sign`.
        RegistryError: the registry does not take it, or has no such image.
    """
    if parse(image).digest != facts.digest:
        raise ConfigurationError(f"{image} is not the image that was built", details=f"that is {facts.digest}")
    for bundle in await sign(facts, key=key, cosign=cosign):
        await evidence.put(registry, image, bundle)
