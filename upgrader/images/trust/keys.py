"""Keys from files: what is none is refused before anything is built, signed or asked."""

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
"""Of the environment, and the only way: command lines are seen by everybody on a machine."""

_PUBLIC = re.compile(r"-----BEGIN PUBLIC KEY-----\s+(?P<body>[A-Za-z0-9+/=\s]+?)\s+-----END PUBLIC KEY-----\s*")
_PRIVATE = re.compile(r"-----BEGIN ENCRYPTED (?:SIGSTORE|COSIGN) PRIVATE KEY-----\s")
_MAKE = "`cosign generate-key-pair` makes a pair: cosign.key signs, cosign.pub verifies."


def public_key(path: Path) -> PublicKey:
    """The key in a file.

    Raises:
        ConfigurationError: there is no file, or it holds something else.
    """
    return parse_public_key(_read(path), str(path))


def parse_public_key(text: str, where: str) -> PublicKey:
    """A key from its PEM; `where` it was found is for people.

    Raises:
        ConfigurationError: it is none.
    """
    found = _PUBLIC.fullmatch(text)
    if found is None:
        private = "PRIVATE KEY" in text
        raise ConfigurationError(
            f"{where} is no public key",
            details="It holds a private key, which nobody who verifies needs."
            if private
            else "It holds no PEM of one.",
            resolution=f"Give the public half. {_MAKE}",
        )
    try:
        der = base64.b64decode("".join(found["body"].split()), validate=True)
    except binascii.Error as error:
        raise ConfigurationError(f"{where} is no public key", details=str(error), resolution=_MAKE) from error
    return PublicKey(pem=text, hint=base64.b64encode(hashlib.sha256(der).digest()).decode())


def signing_key(path: Path, environment: Mapping[str, str] = os.environ) -> SigningKey:
    """The key in a file, with its password from the environment.

    Raises:
        ConfigurationError: there is no file, it holds something else, or there is no password.
    """
    if _PRIVATE.match(_read(path)) is None:
        raise ConfigurationError(
            f"{path} is no key that cosign signs with",
            details="Its first line is not that of an encrypted Sigstore key.",
            resolution=f"{_MAKE} `cosign import-key-pair --key FILE` encrypts one that you have.",
        )
    password = environment.get(PASSWORD)
    if password is None:
        raise ConfigurationError(
            f"the password of {path} is not known", resolution=f"Set {PASSWORD} in the environment; it may be empty."
        )
    return SigningKey(path=path, password=password)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError as error:
        raise ConfigurationError(f"the key {path} cannot be read", details=str(error), resolution=_MAKE) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no key", details="It is no text.", resolution=_MAKE) from error
