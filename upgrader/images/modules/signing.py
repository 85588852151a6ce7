"""Signs modules with a given key as the kernel's sign-file does: a detached CMS message at the module's end.

openssl creates and verifies the message; this module adds the fixed trailer. The message has no attributes and no time,
and RSA signatures are deterministic, so the same module and key give the same bytes. A test compares with sign-file.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.images.modules.checks import shorten_list
from upgrader.images.modules.reading import module_bytes
from upgrader.images.modules.trailer import find_signature, with_signature
from upgrader.process import FinishedProgram, run
from upgrader.process.places import write_atomically

PASSPHRASE = "UPGRADER_MODULE_KEY_PASSPHRASE"  # noqa: S105 - the variable's name
"""Environment variable that openssl reads itself, so that no command line contains a passphrase."""

_SECONDS = 60.0
_HASHES = ("sha256", "sha384", "sha512")
_KEY_ID = re.compile(r"Subject Key Identifier:\s*([0-9A-F]{2}(?::[0-9A-F]{2})*)")
_SERIAL = re.compile(r"^serial=([0-9A-F]+)$", re.MULTILINE)


class ModuleSigningKey(Struct, frozen=True, kw_only=True):
    """A private RSA key and its X.509 certificate, both PEM. `hash` is a hash that the kernel has built in."""

    key: Path
    certificate: Path
    hash: str = "sha256"


def open_key(key: Path, certificate: Path, hash_algorithm: str = "sha256") -> ModuleSigningKey:
    """Check that a key can sign, before anything is built.

    Raises:
        ConfigurationError: a file is invalid, the files do not match, or the key is not an RSA key.
    """
    if hash_algorithm not in _HASHES:
        raise ConfigurationError(f"modules are not signed with {hash_algorithm}", resolution=f"One of {_HASHES}.")
    read = _run_openssl("pkey", "-in", key, "-passin", f"env:{PASSPHRASE}", "-noout", "-text_pub")
    if read.code != 0:
        raise ConfigurationError(
            f"{key} is not a readable private key",
            details=_error_text(read),
            resolution=f"Use PEM, unencrypted or with the passphrase in {PASSPHRASE}.",
        )
    if "Modulus:" not in read.text:
        raise ConfigurationError(
            f"{key} is not an RSA key", details="Other keys sign the same module differently each time."
        )
    public = _run_openssl("pkey", "-in", key, "-passin", f"env:{PASSPHRASE}", "-pubout")
    if public.text != _public_key(certificate):
        raise ConfigurationError(f"{certificate} is not the certificate of the key {key}")
    return ModuleSigningKey(key=key, certificate=certificate, hash=hash_algorithm)


def certificate_fingerprint(certificate: Path) -> str:
    """SHA-256 of a certificate's DER in hex digits. Every signature contains the certificate's issuer and serial
    number.

    Raises:
        ConfigurationError: the file is not a certificate.
    """
    shown = _run_openssl("x509", "-in", certificate, "-outform", "DER")
    if shown.code != 0:
        raise ConfigurationError(f"{certificate} is not an X.509 certificate in PEM", details=_error_text(shown))
    return hashlib.sha256(shown.stdout).hexdigest()


def certificate_key_id(certificate: Path) -> str:
    """The id by which a kernel lists a certificate of its keyrings in /proc/keys, in hex digits.

    It is the subject key identifier, or the serial number of a certificate without one (Linux,
    crypto/asymmetric_keys/x509_public_key.c).

    Raises:
        ConfigurationError: the file is not a certificate.
    """
    shown = _run_openssl("x509", "-in", certificate, "-noout", "-ext", "subjectKeyIdentifier", "-serial")
    if shown.code != 0:
        raise ConfigurationError(f"{certificate} is not an X.509 certificate in PEM", details=_error_text(shown))
    serial, identifier = _SERIAL.search(shown.text), _KEY_ID.search(shown.text)
    if identifier is not None:
        return identifier[1].replace(":", "").lower()
    if serial is None:
        raise ConfigurationError(f"{certificate} has no serial number", details=shown.text)
    return serial[1].lower()


def _public_key(certificate: Path) -> str:
    shown = _run_openssl("x509", "-in", certificate, "-noout", "-pubkey")
    if shown.code != 0:
        raise ConfigurationError(f"{certificate} is not an X.509 certificate in PEM", details=_error_text(shown))
    return shown.text


def sign_module(module: Path, key: ModuleSigningKey) -> None:
    """Sign a module in place. An existing signature is replaced.

    Raises:
        ModuleUnreadableError: the module cannot be read, or has a damaged signature.
        ConfigurationError: openssl fails.
    """
    data = module_bytes(module)
    signature = find_signature(data)
    content = data if signature is None else data[: signature.content]
    with tempfile.TemporaryDirectory(prefix="upgrader-sign-") as work:
        unsigned, message = Path(work) / "content", Path(work) / "message"
        unsigned.write_bytes(content)
        form = ["-binary", "-nosmimecap", "-nocerts", "-noattr", "-outform", "DER"]
        who = ["-md", key.hash, "-signer", str(key.certificate), "-inkey", str(key.key), "-passin", f"env:{PASSPHRASE}"]
        signed = _run_openssl("cms", "-sign", *form, *who, "-in", unsigned, "-out", message)
        if signed.code != 0:
            raise ConfigurationError(f"{module} cannot be signed with {key.key}", details=_error_text(signed))
        write_atomically(module, with_signature(content, message.read_bytes()), module.stat().st_mode & 0o777)


def check_signatures(modules: Sequence[Path], certificate: Path | None) -> Verdict:
    """Check that each module has a signature of this certificate over all its bytes.

    Raises:
        ConfigurationError: the file is not a certificate.
        ModuleUnreadableError: a module cannot be read.
    """
    if certificate is None:
        reason = "no key is configured: kernels that enforce signatures reject these modules"
        return Verdict(check=CheckName.SIGNATURE, passed=None, reason=reason)
    _public_key(certificate)
    wrong = [f"{path.name} {problem}" for path in modules if (problem := _signature_problem(path, certificate))]
    reason = shorten_list(wrong) or f"{len(modules)} modules signed by the key of {certificate.name}"
    return Verdict(check=CheckName.SIGNATURE, passed=not wrong, reason=reason)


def _signature_problem(module: Path, certificate: Path) -> str:
    data = module_bytes(module)
    signature = find_signature(data)
    if signature is None:
        return "is not signed"
    with tempfile.TemporaryDirectory(prefix="upgrader-sign-") as work:
        content, message = Path(work) / "content", Path(work) / "message"
        content.write_bytes(data[: signature.content])
        message.write_bytes(signature.pkcs7)
        # -nointern: only the given certificate counts; -noverify: it is trusted without a chain, as by the kernel
        trust = ["-nointern", "-certfile", str(certificate), "-noverify"]
        files = ["-inform", "DER", "-in", str(message), "-content", str(content), "-out", os.devnull]
        verified = _run_openssl("cms", "-verify", "-binary", *trust, *files)
    return "" if verified.code == 0 else "has a signature of another key, or was changed after it was signed"


def _run_openssl(*words: str | Path) -> FinishedProgram:
    # an empty passphrase prevents an interactive prompt of openssl
    return run(["openssl", *words], timeout=_SECONDS, check=False, env={PASSPHRASE: os.environ.get(PASSPHRASE, "")})


def _error_text(finished: FinishedProgram) -> str:
    return finished.stderr.decode(errors="replace").strip()
