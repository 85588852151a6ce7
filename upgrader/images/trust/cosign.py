"""cosign's command lines: a statement and a key become a bundle, a bundle and a key a verdict. No registry, no network.

cosign is given files and gives files. What goes over the network goes through our registry client, whose answers
have three values: cosign's own look-up takes a registry that does not answer for an image that is not signed.

There is no transparency log: the signing configuration and the trusted root that it gets are empty, and verification
ignores the log. The key alone is trusted.
"""

import shutil
import tempfile
from pathlib import Path

import msgspec

from upgrader.core.errors import ConfigurationError, ProcessError
from upgrader.images.trust.keys import PASSWORD
from upgrader.images.trust.values import Bundle, PublicKey, SigningKey
from upgrader.process import Finished, ProgramFailedError
from upgrader.process.in_loop import run_async

SECONDS = 60.0
SIGNING_CONFIG = {"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}
TRUSTED_ROOT = {"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}

_REFUSED = "failed to verify signature: "
_KEY_TROUBLE = ("loading public key", "loading verifier from key opts", "reading key: ")


class Cosign:
    """The program at a path; `find` looks for it.

    Args:
        program: of version 3; upgrader.devcluster.base.binaries builds it, the controller's image has it on its PATH.
    """

    def __init__(self, program: Path) -> None:
        self._program = program

    async def sign(self, statement: bytes, predicate_type: str, key: SigningKey) -> Bundle:
        """A bundle of an in-toto statement, whose bytes are signed as they are.

        Raises:
            ConfigurationError: the key cannot be used, its password included.
            ProcessError: cosign fails otherwise.
        """
        with tempfile.TemporaryDirectory(prefix="upgrader-sign-") as folder:
            place = Path(folder)
            (place / "statement").write_bytes(statement)
            words: list[str | Path] = ["attest-blob", "--yes", "--key", key.path.absolute()]
            words += ["--statement", place / "statement"]
            words += ["--bundle", place / "bundle", *_files(place)]
            try:
                await run_async(
                    [self._program, *words], timeout=SECONDS, env={PASSWORD: key.password}, secrets=(key.password,)
                )
            except ProgramFailedError as error:
                raise _of_key(error, str(key.path), "Check the file, and the password in COSIGN_PASSWORD.") from error
            return Bundle(data=(place / "bundle").read_bytes(), predicate_type=predicate_type)

    async def refusal(self, bundle: Bundle, key: PublicKey, sha256: str) -> str | None:
        """Why a bundle is no signature by `key` over a statement of its type about the digest; None when it is one.

        Raises:
            ConfigurationError: the key cannot be used.
            ProcessError: cosign does not say that the signature is wrong, but fails: nothing is known.
        """
        with tempfile.TemporaryDirectory(prefix="upgrader-verify-") as folder:
            place = Path(folder)
            (place / "key").write_text(key.pem, encoding="ascii")
            (place / "bundle").write_bytes(bundle.data)
            words: list[str | Path] = ["verify-blob-attestation", "--insecure-ignore-tlog=true"]
            words += ["--key", place / "key"]
            words += ["--bundle", place / "bundle", "--type", bundle.predicate_type]
            words += ["--digest", sha256, "--digestAlg", "sha256", "--trusted-root", _trusted_root(place)]
            try:
                await run_async([self._program, *words], timeout=SECONDS)
            except ProgramFailedError as error:
                if (said := _refusal(error.finished)) is not None:
                    return said
                raise _of_key(error, "the public key", "Give the .pub file of a pair that cosign knows.") from error
            return None


def find(program: str = "cosign") -> Cosign:
    """A cosign by its path, or the one on PATH, as in the controller's image.

    Raises:
        ConfigurationError: there is none.
    """
    found = shutil.which(program)
    if found is None:
        raise ConfigurationError(
            f"{program} is missing: images can be neither signed nor verified",
            resolution="Use the controller's image, or set UPGRADER_COSIGN to the path that `make binaries` prints.",
        )
    return Cosign(Path(found))


def _files(place: Path) -> list[str | Path]:
    (place / "config").write_bytes(msgspec.json.encode(SIGNING_CONFIG))
    return ["--signing-config", place / "config", "--trusted-root", _trusted_root(place)]


def _trusted_root(place: Path) -> Path:
    (place / "root").write_bytes(msgspec.json.encode(TRUSTED_ROOT))
    return place / "root"


def _refusal(finished: Finished) -> str | None:
    """What cosign says when it is about the signature; it has one exit code for everything."""
    for line in finished.stderr.decode(errors="replace").splitlines():
        _, found, reason = line.partition(_REFUSED)
        if found:
            return reason
    return None


def _of_key(error: ProgramFailedError, key: str, resolution: str) -> ConfigurationError | ProcessError:
    if any(words in error.details for words in _KEY_TROUBLE):
        return ConfigurationError(f"{key} cannot be used", details=error.details, resolution=resolution)
    return error
