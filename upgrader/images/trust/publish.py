"""Signs a built image: three statements about one digest, each as a bundle that is attached to the image."""

from upgrader.core.errors import ConfigurationError
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.reference import parse_reference
from upgrader.images.trust import evidence
from upgrader.images.trust.cosign import Cosign
from upgrader.images.trust.sbom import sbom_statement
from upgrader.images.trust.statements import PROVENANCE, SBOM, SIGNATURE, provenance_statement, signature_statement
from upgrader.images.trust.values import Bundle, SignedImageFacts, SigningKey


async def sign_image(facts: SignedImageFacts, *, key: SigningKey, cosign: Cosign) -> tuple[Bundle, ...]:
    """SBOM, provenance and signature of an image. The signature is last, so that a signed image has all documents.

    Raises:
        ConfigurationError: the key or the facts are invalid.
        ProcessError: cosign fails.
    """
    statements = (
        (sbom_statement(facts), SBOM),
        (provenance_statement(facts), PROVENANCE),
        (signature_statement(facts), SIGNATURE),
    )
    return tuple([await cosign.sign(statement, kind, key) for statement, kind in statements])


async def publish_signatures(
    image: str, facts: SignedImageFacts, *, key: SigningKey, cosign: Cosign, registry: RegistryClient
) -> None:
    """Sign an image that was pushed as `name@sha256:...`.

    Signing again adds to the existing bundles, and one set of three that verifies is sufficient. After an interruption,
    sign again; use `Verifier` to check first.

    Raises:
        ConfigurationError: as `sign_image`; also if `facts` are about another digest.
        ProcessError: as `sign_image`.
        RegistryError: the registry rejects a bundle, or does not have the image.
    """
    if parse_reference(image).digest != facts.digest:
        raise ConfigurationError(f"{image} is not the image that was built", details=f"built: {facts.digest}")
    for bundle in await sign_image(facts, key=key, cosign=cosign):
        await evidence.attach_bundle(registry, image, bundle)
