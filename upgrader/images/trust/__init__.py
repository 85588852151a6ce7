"""Signatures, SBOM and provenance of driver images, made by cosign, spdx-tools and in-toto-attestation.

`publish` signs what was pushed; `verify_image` is what a consumer asks before it lets a node near an image.
docs/driver-image-trust.md says what is trusted, and what is not.
"""
