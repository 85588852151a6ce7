"""Modules signed with a given key, as the kernel's sign-file does it: a detached CMS message at the module's end.

openssl makes and verifies the message; only the fixed trailer is ours. The message has no attributes and no time, and
RSA signs deterministically: the same module and key give the same bytes. A test compares with sign-file itself.
"""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.images.modules.checks import listed
from upgrader.images.modules.reading import module_bytes
from upgrader.images.modules.trailer import find_signature, with_signature
from upgrader.process import Finished, run
from upgrader.process.places import write_whole

PASSPHRASE = "UPGRADER_MODULE_KEY_PASSPHRASE"  # noqa: S105 - the variable's name
"""Variable of the environment, read by openssl itself; no passphrase stands on a command line."""

_SECONDS = 60.0
_HASHES = ("sha256", "sha384", "sha512")


class SigningKey(Struct, frozen=True, kw_only=True):
    """A private RSA key and its X.509 certificate, both PEM; `hash` is one that the kernel has built in."""

    key: Path
    certificate: Path
    hash: str = "sha256"


def open_key(key: Path, certificate: Path, hash_algorithm: str = "sha256") -> SigningKey:
    """A key that can sign: asked for before anything is built.

    Raises:
        ConfigurationError: one of both is no such file, they do not belong together, or it is no RSA key.
    """
    if hash_algorithm not in _HASHES:
        raise ConfigurationError(f"modules are not signed with {hash_algorithm}", resolution=f"One of {_HASHES}.")
    read = _openssl("pkey", "-in", key, "-passin", f"env:{PASSPHRASE}", "-noout", "-text_pub")
    if read.code != 0:
        raise ConfigurationError(
            f"{key} is no private key that can be read",
            details=_said(read),
            resolution=f"PEM, unencrypted or with its passphrase in {PASSPHRASE}.",
        )
    if "Modulus:" not in read.text:
        raise ConfigurationError(
            f"{key} is no RSA key", details="Other keys sign the same module differently each time."
        )
    ours = _openssl("pkey", "-in", key, "-passin", f"env:{PASSPHRASE}", "-pubout")
    if ours.text != _public_key(certificate):
        raise ConfigurationError(f"{certificate} is the certificate of another key than {key}")
    return SigningKey(key=key, certificate=certificate, hash=hash_algorithm)


def fingerprint(certificate: Path) -> str:
    """SHA-256 of a certificate's DER, in hex digits: the issuer and serial number in it stand in every signature.

    Raises:
        ConfigurationError: it is no certificate.
    """
    shown = _openssl("x509", "-in", certificate, "-outform", "DER")
    if shown.code != 0:
        raise ConfigurationError(f"{certificate} is no X.509 certificate in PEM", details=_said(shown))
    return hashlib.sha256(shown.stdout).hexdigest()


def _public_key(certificate: Path) -> str:
    shown = _openssl("x509", "-in", certificate, "-noout", "-pubkey")
    if shown.code != 0:
        raise ConfigurationError(f"{certificate} is no X.509 certificate in PEM", details=_said(shown))
    return shown.text


def sign(module: Path, key: SigningKey) -> None:
    """Sign a module in place; a signature that it has is replaced.

    Raises:
        ModuleUnreadableError: it cannot be read, or has a damaged signature.
        ConfigurationError: openssl refuses.
    """
    data = module_bytes(module)
    found = find_signature(data)
    content = data if found is None else data[: found.content]
    with tempfile.TemporaryDirectory(prefix="upgrader-sign-") as work:
        unsigned, message = Path(work) / "content", Path(work) / "message"
        unsigned.write_bytes(content)
        form = ["-binary", "-nosmimecap", "-nocerts", "-noattr", "-outform", "DER"]
        who = ["-md", key.hash, "-signer", str(key.certificate), "-inkey", str(key.key), "-passin", f"env:{PASSPHRASE}"]
        signed = _openssl("cms", "-sign", *form, *who, "-in", unsigned, "-out", message)
        if signed.code != 0:
            raise ConfigurationError(f"{module} cannot be signed with {key.key}", details=_said(signed))
        write_whole(module, with_signature(content, message.read_bytes()), module.stat().st_mode & 0o777)


def check_signatures(modules: Sequence[Path], certificate: Path | None) -> Verdict:
    """Whether each module carries a signature of this certificate over all its bytes.

    Raises:
        ConfigurationError: the certificate is none.
        ModuleUnreadableError: a module cannot be read.
    """
    if certificate is None:
        reason = "no key is configured: kernels that enforce signatures refuse these modules"
        return Verdict(check=CheckName.SIGNATURE, passed=None, reason=reason)
    _public_key(certificate)
    wrong = [f"{path.name} {problem}" for path in modules if (problem := _problem(path, certificate))]
    reason = listed(wrong) or f"{len(modules)} modules signed by the key of {certificate.name}"
    return Verdict(check=CheckName.SIGNATURE, passed=not wrong, reason=reason)


def _problem(module: Path, certificate: Path) -> str:
    data = module_bytes(module)
    found = find_signature(data)
    if found is None:
        return "is not signed"
    with tempfile.TemporaryDirectory(prefix="upgrader-sign-") as work:
        content, message = Path(work) / "content", Path(work) / "message"
        content.write_bytes(data[: found.content])
        message.write_bytes(found.pkcs7)
        # -nointern: only the given certificate counts; -noverify: it is trusted as it is, as by the kernel's keyring
        trust = ["-nointern", "-certfile", str(certificate), "-noverify"]
        files = ["-inform", "DER", "-in", str(message), "-content", str(content), "-out", os.devnull]
        verified = _openssl("cms", "-verify", "-binary", *trust, *files)
    return "" if verified.code == 0 else "carries a signature of another key, or was changed after it"


def _openssl(*words: str | Path) -> Finished:
    # an empty passphrase keeps openssl from asking somebody who is not there
    return run(["openssl", *words], timeout=_SECONDS, check=False, env={PASSPHRASE: os.environ.get(PASSPHRASE, "")})


def _said(finished: Finished) -> str:
    return finished.stderr.decode(errors="replace").strip()
