"""Signatures, SBOM and provenance of driver images, made by cosign, spdx-tools and in-toto-attestation.

`publish` signs what was pushed; `Verifier` is what a consumer asks before it lets a node near an image.
docs/guides/driver-images/trust.md says what is trusted, and what is not.
"""

from upgrader.images.trust.cosign import Cosign, find
from upgrader.images.trust.keys import parse_public_key, public_key, signing_key
from upgrader.images.trust.publish import publish, sign
from upgrader.images.trust.values import BUILD_KEY, BUILDER, Bundle, ImageFacts, PublicKey, ShippedFile, SigningKey
from upgrader.images.trust.verify import CHECKS, NOT_SIGNED, Verifier

__all__ = [
    "BUILDER",
    "BUILD_KEY",
    "CHECKS",
    "NOT_SIGNED",
    "Bundle",
    "Cosign",
    "ImageFacts",
    "PublicKey",
    "ShippedFile",
    "SigningKey",
    "Verifier",
    "find",
    "parse_public_key",
    "public_key",
    "publish",
    "sign",
    "signing_key",
]
