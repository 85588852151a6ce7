"""The archives to get packages from: those of this machine's apt configuration, or UPGRADER_DEBIAN_MIRROR."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ConfigurationError
from upgrader.images.debian import names
from upgrader.process import run

MIRROR = "UPGRADER_DEBIAN_MIRROR"
"""An address (http:, https:, file:, or the path of a folder) that contains debian/ and debian-security/."""

KEYRING = "UPGRADER_DEBIAN_KEYRING"
"""The keys that sign the archives, if not those of the distribution's keyring."""

FROZEN = "UPGRADER_DEBIAN_FROZEN"
"""1 for a mirror that is a snapshot: its indices may be past their dates. Signatures and hashes are still verified."""

DISTRIBUTION_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEBIAN, SECURITY = "debian", "debian-security"
_LABELS = {"Debian": DEBIAN, "Debian-Security": SECURITY}
_ADDRESS = re.compile(r"(?:https?|file|mirror|mirror\+file):[^\s\"\[\]]+")
_LOGIN = re.compile(r"(?:https?|mirror):/*[^/]*@")
_NO_ARCHIVE = (
    f"Run `apt-get update`, or set {MIRROR} to an address or a folder that contains {DEBIAN}/ and {SECURITY}/."
)


class Archives(Struct, frozen=True, kw_only=True):
    """Base addresses by archive (debian, debian-security), each with a final `/`, and the keyring that verifies them.

    `frozen`: a snapshot whose indices may be past their dates; an attacker could serve an old one indefinitely.

    Raises:
        ConfigurationError: an address or the keyring is invalid.
    """

    bases: dict[str, str]
    keyring: Path
    frozen: bool = False

    def __post_init__(self) -> None:
        for base in self.bases.values():
            if _LOGIN.search(base):
                raise ConfigurationError(  # without the address
                    "the address of an archive contains a user or password, which command lines and files would expose",
                    resolution="Put them into a file in /etc/apt/auth.conf.d (see apt_auth.conf).",
                )
            if not _ADDRESS.fullmatch(base) or not base.endswith("/"):
                raise ConfigurationError(f"{base!r} is not an address of an archive", resolution=_NO_ARCHIVE)
        if not self.keyring.is_absolute() or not self.keyring.is_file():
            raise ConfigurationError(
                f"the keyring {self.keyring} for the verification of archives does not exist",
                resolution=f"Install debian-archive-keyring, or set {KEYRING} to the absolute path of another keyring.",
            )

    def archive_of(self, suite: str) -> str:
        """The archive that has a suite."""
        return SECURITY if names.check_suite(suite).endswith("-security") else DEBIAN

    def base_url(self, archive: str) -> str:
        """The address of an archive.

        Raises:
            ConfigurationError: this machine is not configured with the archive.
        """
        if archive not in self.bases:
            raise ConfigurationError(f"apt on this machine has no archive {archive}", resolution=_NO_ARCHIVE)
        return self.bases[archive]


def configured_archives(environment: Mapping[str, str] = os.environ) -> Archives:
    """The archives of UPGRADER_DEBIAN_MIRROR, or else of this machine's apt.

    Raises:
        ConfigurationError: there are none, or they are invalid.
    """
    keyring = Path(environment.get(KEYRING) or DISTRIBUTION_KEYRING)
    mirror = environment.get(MIRROR, "").rstrip("/")
    if mirror.startswith("/"):
        mirror = f"file:{mirror}"
    bases = {name: f"{mirror}/{name}/" for name in (DEBIAN, SECURITY)} if mirror else _apt_archives()
    return Archives(bases=bases, keyring=keyring, frozen=environment.get(FROZEN, "") == "1")


def _apt_archives() -> dict[str, str]:
    words = ["apt-get", "indextargets", "--format", "$(LABEL)\t$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    listed = run(words, timeout=60, check=False)
    bases: dict[str, str] = {}
    for line in listed.text.splitlines():
        label, _, base = line.partition("\t")
        if label in _LABELS:
            bases.setdefault(_LABELS[label], base)
    if listed.code != 0 or not bases:
        raise ConfigurationError("apt on this machine is configured with no Debian archive", resolution=_NO_ARCHIVE)
    return bases
