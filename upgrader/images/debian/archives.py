"""Where packages come from: the archives of this machine's own apt, or UPGRADER_DEBIAN_MIRROR."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ConfigurationError
from upgrader.images.debian import names
from upgrader.process import run

MIRROR = "UPGRADER_DEBIAN_MIRROR"
"""An address (http:, https:, file:, or the path of a folder) below which debian/ and debian-security/ lie."""

KEYRING = "UPGRADER_DEBIAN_KEYRING"
"""The keys that sign the archives, where it is not the distribution's own keyring."""

FROZEN = "UPGRADER_DEBIAN_FROZEN"
"""1 for a mirror that is a copy of some day: its indices may be past their dates. Signatures and hashes are checked."""

DISTRIBUTION_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEBIAN, SECURITY = "debian", "debian-security"
_LABELS = {"Debian": DEBIAN, "Debian-Security": SECURITY}
_ADDRESS = re.compile(r"(?:https?|file|mirror|mirror\+file):[^\s\"\[\]]+")
_LOGIN = re.compile(r"(?:https?|mirror):/*[^/]*@")
_NO_ARCHIVE = (
    f"Run `apt-get update`, or set {MIRROR} to an address or a folder below which {DEBIAN}/ and {SECURITY}/ lie."
)


class Archives(Struct, frozen=True, kw_only=True):
    """Base addresses by archive (debian, debian-security), each ending in `/`, and the keys that their indices need.

    `frozen`: a copy of some day, whose indices may be past their dates; an attacker could show it for good.

    Raises:
        ConfigurationError: an address or the keyring cannot be used.
    """

    bases: dict[str, str]
    keyring: Path
    frozen: bool = False

    def __post_init__(self) -> None:
        for base in self.bases.values():
            if _LOGIN.search(base):
                raise ConfigurationError(  # which does not show it
                    "the address of an archive holds a user or password: command lines and files would show it",
                    resolution="Write them into a file in /etc/apt/auth.conf.d (see apt_auth.conf), not here.",
                )
            if not _ADDRESS.fullmatch(base) or not base.endswith("/"):
                raise ConfigurationError(f"{base!r} is no address of an archive", resolution=_NO_ARCHIVE)
        if not self.keyring.is_absolute() or not self.keyring.is_file():
            raise ConfigurationError(
                f"there is no keyring {self.keyring} to check archives with",
                resolution=f"Install debian-archive-keyring, or set {KEYRING} to the absolute path of another.",
            )

    def of(self, suite: str) -> str:
        """Which archive has a suite."""
        return SECURITY if names.suite(suite).endswith("-security") else DEBIAN

    def base(self, archive: str) -> str:
        """The address of an archive.

        Raises:
            ConfigurationError: this machine has none of that name.
        """
        if archive not in self.bases:
            raise ConfigurationError(f"apt on this machine knows of no archive {archive}", resolution=_NO_ARCHIVE)
        return self.bases[archive]


def archives(environment: Mapping[str, str] = os.environ) -> Archives:
    """Those of UPGRADER_DEBIAN_MIRROR, or of this machine's apt.

    Raises:
        ConfigurationError: there are none, or they cannot be used.
    """
    keyring = Path(environment.get(KEYRING) or DISTRIBUTION_KEYRING)
    mirror = environment.get(MIRROR, "").rstrip("/")
    if mirror.startswith("/"):
        mirror = f"file:{mirror}"
    bases = {name: f"{mirror}/{name}/" for name in (DEBIAN, SECURITY)} if mirror else _of_apt()
    return Archives(bases=bases, keyring=keyring, frozen=environment.get(FROZEN, "") == "1")


def _of_apt() -> dict[str, str]:
    words = ["apt-get", "indextargets", "--format", "$(LABEL)\t$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    listed = run(words, timeout=60, check=False)
    found: dict[str, str] = {}
    for line in listed.text.splitlines():
        label, _, base = line.partition("\t")
        if label in _LABELS:
            found.setdefault(_LABELS[label], base)
    if listed.code != 0 or not found:
        raise ConfigurationError("apt on this machine knows of no Debian archive", resolution=_NO_ARCHIVE)
    return found
