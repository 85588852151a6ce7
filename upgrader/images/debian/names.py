"""Checks of names, versions and paths from an archive before they reach a command line or become a path.

Debian policy, sections 5.6.1 (names), 5.6.7 (architectures) and 5.6.12 (versions). Kernel releases follow
`linux-image-` in a package's name. None of these can begin with `-`, be `..` or contain a separator.
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
    """A name, version, path or digest has characters that Debian's policy does not allow. It is not used."""


def check_package(text: str) -> str:
    """The name of a binary package, for example linux-headers-6.12.107+deb13-amd64."""
    return check_text(text, _PACKAGE, "the name of a Debian package")


def check_version(text: str) -> str:
    """A package's version, for example 535.261.03-1~deb12u1."""
    return check_text(text, _VERSION, "a Debian version")


def check_release(text: str) -> str:
    """A kernel's release as in `uname -r`, for example 6.1.0-50-amd64."""
    return check_text(text, _RELEASE, "the release of a Debian kernel", _RELEASE_LONGEST)


def check_suite(text: str) -> str:
    """A suite, for example bookworm-security."""
    return check_text(text, _SUITE, "a suite of a Debian archive")


def check_component(text: str) -> str:
    """A component, for example non-free-firmware."""
    return check_text(text, _SUITE, "a component of a Debian archive")


def check_arch(text: str) -> str:
    """An architecture, for example amd64, or `all`."""
    return check_text(text, _ARCH, "a Debian architecture")


def check_path(text: str) -> str:
    """A package's path below its archive's base, for example pool/main/l/linux/linux-kbuild-6.1_6.1.176-1_amd64.deb."""
    return check_text(text, _PATH, "a path of a Debian archive", 4 * _LONGEST)


def check_sha256(text: str) -> str:
    """64 hex digits."""
    return check_text(text, _SHA256, "a SHA-256 in hex digits")


def check_text(text: str, pattern: re.Pattern[str], what: str, longest: int = _LONGEST) -> str:
    """Return `text` if all of it matches the pattern.

    Raises:
        HostileNameError: the text does not match, or is too long.
    """
    if len(text) > longest or not pattern.fullmatch(text):
        raise HostileNameError(
            f"{text[:longest]!r} is not {what}",
            resolution=f"The allowed pattern is {pattern.pattern}, up to {longest} characters.",
        )
    return text
