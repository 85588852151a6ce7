"""cosign's command lines: sign a statement into a bundle, and verify a bundle. Without registry and network.

cosign reads and writes files only. The registry client of this package does all network requests, since cosign's own
look-up treats a registry without an answer as an unsigned image.

There is no transparency log: the signing configuration and the trusted root are empty, and verification ignores the
log. Only the key is trusted.
"""

import shutil
import tempfile
from pathlib import Path

import msgspec

from upgrader.core.errors import ConfigurationError, ProcessError
from upgrader.images.trust.keys import PASSWORD
from upgrader.images.trust.values import Bundle, PublicKey, SigningKey
from upgrader.process import FinishedProgram, ProgramFailedError
from upgrader.process.in_loop import run_async

SECONDS = 60.0
SIGNING_CONFIG = {"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}
TRUSTED_ROOT = {"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}

_REFUSED = "failed to verify signature: "
_KEY_TROUBLE = ("loading public key", "loading verifier from key opts", "reading key: ")


class Cosign:
    """The cosign program at a path; `find_cosign` finds it.

    Args:
        program: of version 3; the controller's image has it on its PATH.
    """

    def __init__(self, program: Path) -> None:
        self._program = program

    async def sign(self, statement: bytes, predicate_type: str, key: SigningKey) -> Bundle:
        """Sign the bytes of an in-toto statement, and return the bundle.

        Raises:
            ConfigurationError: the key or its password is invalid.
            ProcessError: cosign fails for another reason.
        """
        with tempfile.TemporaryDirectory(prefix="upgrader-sign-") as folder:
            place = Path(folder)
            (place / "statement").write_bytes(statement)
            words: list[str | Path] = ["attest-blob", "--yes", "--key", key.path.absolute()]
            words += ["--statement", place / "statement"]
            words += ["--bundle", place / "bundle", *_signing_options(place)]
            try:
                await run_async(
                    [self._program, *words], timeout=SECONDS, env={PASSWORD: key.password}, secrets=(key.password,)
                )
            except ProgramFailedError as error:
                raise _key_error(
                    error, str(key.path), "Check the file, and the password in COSIGN_PASSWORD."
                ) from error
            return Bundle(data=(place / "bundle").read_bytes(), predicate_type=predicate_type)

    async def find_refusal(self, bundle: Bundle, key: PublicKey, sha256: str) -> str | None:
        """The reason why a bundle is not a signature by `key` over a statement of its type about the digest; None if it
        is.

        Raises:
            ConfigurationError: the key is invalid.
            ProcessError: cosign fails without a result about the signature.
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
                if (reason := _refusal_reason(error.finished)) is not None:
                    return reason
                raise _key_error(error, "the public key", "Use the .pub file of a key pair of cosign.") from error
            return None


def find_cosign(program: str = "cosign") -> Cosign:
    """The cosign at a path, or the one on PATH, as in the controller's image.

    Raises:
        ConfigurationError: the program does not exist.
    """
    path = shutil.which(program)
    if path is None:
        raise ConfigurationError(
            f"{program} is missing: images can be neither signed nor verified",
            resolution="Install cosign 3, or build it with `upgrader dev cosign` (gpu-upgrader-dev), and set "
            "UPGRADER_COSIGN to its path. The controller's image has it.",
        )
    return Cosign(Path(path))


def _signing_options(place: Path) -> list[str | Path]:
    (place / "config").write_bytes(msgspec.json.encode(SIGNING_CONFIG))
    return ["--signing-config", place / "config", "--trusted-root", _trusted_root(place)]


def _trusted_root(place: Path) -> Path:
    (place / "root").write_bytes(msgspec.json.encode(TRUSTED_ROOT))
    return place / "root"


def _refusal_reason(finished: FinishedProgram) -> str | None:
    """The reason if cosign's output is about the signature. cosign has a single exit code for all errors."""
    for line in finished.stderr.decode(errors="replace").splitlines():
        _, prefix, reason = line.partition(_REFUSED)
        if prefix:
            return reason
    return None


def _key_error(error: ProgramFailedError, key: str, resolution: str) -> ConfigurationError | ProcessError:
    if any(words in error.details for words in _KEY_TROUBLE):
        return ConfigurationError(f"{key} cannot be used", details=error.details, resolution=resolution)
    return error
