"""What is said about an image, and signed: the facts that its documents are made of, and the keys."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Identity, Input, build_key

BUILD_KEY = "gpu-upgrader.io/build-key"
"""Label of an image's configuration: the build key, 64 hex digits."""

BUILDER = "https://gpu-upgrader.io/builder/v1"
"""Who built it, in the provenance; a site with several builders names each of them."""


class ShippedFile(Struct, frozen=True, kw_only=True, order=True):
    """A file of the image that the SBOM lists: path from the image's root, without a slash before it; hex digits."""

    path: str
    sha1: str
    """SPDX 2.3 asks for it of every file; nothing is decided by it."""
    sha256: str


class ImageFacts(Struct, frozen=True, kw_only=True):
    """All that is said about one image. `digest` is that of its manifest, `sha256:...`; where it lies is not said.

    `epoch` is what the build stamped its files with (SOURCE_DATE_EPOCH, seconds): the same facts give the same
    documents, byte by byte, whenever they are made.
    """

    digest: str
    identity: Identity
    inputs: tuple[Input, ...]
    files: tuple[ShippedFile, ...] = ()
    epoch: int = 0
    builder: str = BUILDER

    @property
    def sha256(self) -> str:
        """The digits of its digest."""
        return self.digest.partition(":")[2]

    @property
    def key(self) -> str:
        """Its build key."""
        return build_key(self.identity, self.inputs)


class PublicKey(Struct, frozen=True, kw_only=True):
    """A key that verifies, as PEM."""

    pem: str
    hint: str
    """Base64 of the key's SHA-256: what cosign writes beside a signature to say by whom it is."""


class SigningKey(Struct, frozen=True, kw_only=True):
    """A key that signs, in the encrypted file that `cosign generate-key-pair` writes."""

    path: Path
    password: str

    def __repr__(self) -> str:
        """Without the password: values are shown in tracebacks and logs."""
        return f"SigningKey(path={str(self.path)!r})"


class Bundle(Struct, frozen=True, kw_only=True):
    """One signed statement as cosign stores it (a Sigstore bundle, JSON), and what it says unsigned."""

    data: bytes
    predicate_type: str


def named(inputs: Sequence[Input]) -> str:
    """Inputs as a sentence lists them."""
    return ", ".join(" ".join(part for part in (one.kind, one.name, one.version) if part) for one in inputs)
