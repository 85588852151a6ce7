"""What a name, version or path from an archive may look like, before it reaches a command line or becomes a path.

Debian policy, sections 5.6.1 (names), 5.6.7 (architectures) and 5.6.12 (versions); kernel releases are what stands
after `linux-image-` in a package's name. None of these can begin with `-`, be `..` or hold a separator.
"""

import re

from upgrader.core.errors import ConfigurationError

_LONGEST = 128
_RELEASE_LONGEST = 64  # struct utsname
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_VERSION = re.compile(r"(?:[0-9]+:)?[0-9][A-Za-z0-9.+~-]*")
_RELEASE = re.compile(r"[0-9][a-z0-9+.-]*")
_SUITE = re.compile(r"[a-z][a-z0-9.-]*")
_ARCH = re.compile(r"[a-z][a-z0-9-]*")
_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~_:-]*(?:/[A-Za-z0-9][A-Za-z0-9.+~_:-]*)+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class HostileNameError(ConfigurationError):
    """A name, version, path or digest has characters that Debian's policy does not allow; nothing is done with it."""


def package(text: str) -> str:
    """The name of a binary package, as linux-headers-6.12.107+deb13-amd64."""
    return matching(text, _PACKAGE, "the name of a Debian package")


def version(text: str) -> str:
    """A package's version, as 535.261.03-1~deb12u1."""
    return matching(text, _VERSION, "a Debian version")


def release(text: str) -> str:
    """A kernel's release as `uname -r` gives it, as 6.1.0-50-amd64."""
    return matching(text, _RELEASE, "the release of a Debian kernel", _RELEASE_LONGEST)


def suite(text: str) -> str:
    """A suite, as bookworm-security."""
    return matching(text, _SUITE, "a suite of a Debian archive")


def component(text: str) -> str:
    """A component, as non-free-firmware."""
    return matching(text, _SUITE, "a component of a Debian archive")


def arch(text: str) -> str:
    """An architecture, as amd64; or all."""
    return matching(text, _ARCH, "a Debian architecture")


def path(text: str) -> str:
    """Where a package lies below its archive's base, as pool/main/l/linux/linux-kbuild-6.1_6.1.176-1_amd64.deb."""
    return matching(text, _PATH, "a path of a Debian archive", 4 * _LONGEST)


def sha256(text: str) -> str:
    """64 hex digits."""
    return matching(text, _SHA256, "a SHA-256 in hex digits")


def matching(text: str, pattern: re.Pattern[str], what: str, longest: int = _LONGEST) -> str:
    """`text`, where all of it matches.

    Raises:
        HostileNameError: it does not, or is too long.
    """
    if len(text) > longest or not pattern.fullmatch(text):
        raise HostileNameError(
            f"{text[:longest]!r} is not {what}",
            resolution=f"Allowed is {pattern.pattern}, up to {longest} characters.",
        )
    return text
