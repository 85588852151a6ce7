"""The facts about an image that its signed documents contain, and the keys."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Identity, Input, build_key

BUILD_KEY = "gpu-upgrader.io/build-key"
"""Label of an image's configuration: the build key, 64 hex digits."""

BUILDER = "https://gpu-upgrader.io/builder/v1"
"""The builder in the provenance. A site with several builders gives each a name."""


class ShippedFile(Struct, frozen=True, kw_only=True, order=True):
    """A file of the image in the SBOM: path from the image's root without a leading slash, digests in hex digits."""

    path: str
    sha1: str
    """Required by SPDX 2.3 for every file; not used otherwise."""
    sha256: str


class SignedImageFacts(Struct, frozen=True, kw_only=True):
    """The facts in an image's documents. `digest` is its manifest's, `sha256:...`. The image's location is not
    included.

    `epoch` is the build's file time (SOURCE_DATE_EPOCH, seconds). The same facts always give the same documents, byte
    by byte.
    """

    digest: str
    identity: Identity
    inputs: tuple[Input, ...]
    files: tuple[ShippedFile, ...] = ()
    epoch: int = 0
    builder: str = BUILDER

    @property
    def sha256(self) -> str:
        """The digits of the digest."""
        return self.digest.partition(":")[2]

    @property
    def key(self) -> str:
        """The build key."""
        return build_key(self.identity, self.inputs)


class PublicKey(Struct, frozen=True, kw_only=True):
    """A public key as PEM."""

    pem: str
    hint: str
    """Base64 of the key's SHA-256, which cosign stores with a signature to identify the signer."""


class SigningKey(Struct, frozen=True, kw_only=True):
    """A private key in the encrypted file that `cosign generate-key-pair` writes."""

    path: Path
    password: str

    def __repr__(self) -> str:
        """Omits the password, since tracebacks and logs contain values."""
        return f"SigningKey(path={str(self.path)!r})"


class Bundle(Struct, frozen=True, kw_only=True):
    """A signed statement as cosign stores it (a Sigstore bundle, JSON), and its unverified type."""

    data: bytes
    predicate_type: str


def list_inputs(inputs: Sequence[Input]) -> str:
    """Inputs as a list in a message."""
    return ", ".join(
        " ".join(part for part in (image_input.kind, image_input.name, image_input.version) if part)
        for image_input in inputs
    )
