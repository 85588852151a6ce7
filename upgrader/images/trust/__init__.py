"""Signatures, SBOM and provenance of driver images, created by cosign, spdx-tools and in-toto-attestation.

`publish_signatures` signs a pushed image. A consumer calls `Verifier` before it lets a node use an image.
docs/guides/driver-images/trust.md describes what is trusted.
"""

from upgrader.images.trust.cosign import Cosign, find_cosign
from upgrader.images.trust.keys import parse_public_key, public_key, signing_key
from upgrader.images.trust.publish import publish_signatures, sign_image
from upgrader.images.trust.values import (
    BUILD_KEY,
    BUILDER,
    Bundle,
    PublicKey,
    ShippedFile,
    SignedImageFacts,
    SigningKey,
)
from upgrader.images.trust.verify import CHECKS, NOT_SIGNED, Verifier

__all__ = [
    "BUILDER",
    "BUILD_KEY",
    "CHECKS",
    "NOT_SIGNED",
    "Bundle",
    "Cosign",
    "PublicKey",
    "ShippedFile",
    "SignedImageFacts",
    "SigningKey",
    "Verifier",
    "find_cosign",
    "parse_public_key",
    "public_key",
    "publish_signatures",
    "sign_image",
    "signing_key",
]
