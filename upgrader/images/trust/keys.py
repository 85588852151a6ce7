"""Keys from files. An invalid key is rejected before anything is built, signed or requested."""

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.images.trust.values import PublicKey, SigningKey

PASSWORD = "COSIGN_PASSWORD"  # noqa: S105 - the name of the variable
"""The environment variable is the only source, since all users of a machine can read command lines."""

_PUBLIC = re.compile(r"-----BEGIN PUBLIC KEY-----\s+(?P<body>[A-Za-z0-9+/=\s]+?)\s+-----END PUBLIC KEY-----\s*")
_PRIVATE = re.compile(r"-----BEGIN ENCRYPTED (?:SIGSTORE|COSIGN) PRIVATE KEY-----\s")
_MAKE = "`cosign generate-key-pair` creates a pair: cosign.key signs, cosign.pub verifies."


def public_key(path: Path) -> PublicKey:
    """The public key in a file.

    Raises:
        ConfigurationError: the file does not exist or is not a public key.
    """
    return parse_public_key(_read_key(path), str(path))


def parse_public_key(text: str, where: str) -> PublicKey:
    """A public key from its PEM. `where` describes its source in messages.

    Raises:
        ConfigurationError: the text is not a public key.
    """
    match = _PUBLIC.fullmatch(text)
    if match is None:
        private = "PRIVATE KEY" in text
        raise ConfigurationError(
            f"{where} is not a public key",
            details="It contains a private key, which verification does not need."
            if private
            else "It contains no PEM of a public key.",
            resolution=f"Use the public key. {_MAKE}",
        )
    try:
        der = base64.b64decode("".join(match["body"].split()), validate=True)
    except binascii.Error as error:
        raise ConfigurationError(f"{where} is not a public key", details=str(error), resolution=_MAKE) from error
    return PublicKey(pem=text, hint=base64.b64encode(hashlib.sha256(der).digest()).decode())


def signing_key(path: Path, environment: Mapping[str, str] = os.environ) -> SigningKey:
    """The private key in a file, with its password from the environment.

    Raises:
        ConfigurationError: the file does not exist or is not a signing key, or there is no password.
    """
    if _PRIVATE.match(_read_key(path)) is None:
        raise ConfigurationError(
            f"{path} is not a signing key of cosign",
            details="Its first line is not that of an encrypted Sigstore key.",
            resolution=f"{_MAKE} `cosign import-key-pair --key FILE` encrypts an existing key.",
        )
    password = environment.get(PASSWORD)
    if password is None:
        raise ConfigurationError(
            f"the password of {path} is missing", resolution=f"Set {PASSWORD} in the environment; it may be empty."
        )
    return SigningKey(path=path, password=password)


def _read_key(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise ConfigurationError(f"the key {path} cannot be read", details=str(error), resolution=_MAKE) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not a key", details="It is not text.", resolution=_MAKE) from error
