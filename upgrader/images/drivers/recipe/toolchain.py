"""The compiler that a kernel was built with, and all that make needs beside it: the packages, chosen by apt."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Input, digits
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian import names, versions
from upgrader.images.debian.apt import Apt
from upgrader.images.debian.discovery import described
from upgrader.images.debian.errors import MissingPackageError, UntrustedArchiveError
from upgrader.images.debian.settings import ENGLISH
from upgrader.images.debian.stanzas import stanzas
from upgrader.images.debian.values import Package
from upgrader.process import run

TOOLS = (
    *("bash", "busybox-static", "coreutils", "dash", "diffutils", "findutils", "grep", "make", "mawk", "patch"),
    *("perl-base", "sed", "xz-utils"),
)
BUILD = "build"
"""Where the source lies inside."""

_PLACES = ("build", "dev", "proc", "tmp")
_SECONDS = 120.0
_OPTIONS = ("pkgCacheFile::Generate=true", "Acquire::ForceHash=sha256")
_PRINTING = ("--quiet=2", "--print-uris", "--no-install-recommends", *(f"--option={one}" for one in _OPTIONS))
_LINE = re.compile(r"'[^']+' (?P<name>[a-z0-9+.-]+)_\S+ \d+ SHA256:(?P<sha256>[0-9a-f]{64})$")


class Toolchain(Struct, frozen=True, kw_only=True):
    """A compiler of a distribution with all that it needs, pinned; the programs of the image come from it too.

    Raises:
        HostileNameError: system or compiler are no names.
        ConfigurationError: the compiler itself is not among the packages.
    """

    os: str
    compiler: str
    packages: tuple[Package, ...]

    def __post_init__(self) -> None:
        names.suite(self.os)
        names.package(self.compiler)
        if self.compiler not in {one.name for one in self.packages}:
            raise ConfigurationError(f"the toolchain {self.compiler} of {self.os} has no package {self.compiler}")

    @property
    def inputs(self) -> tuple[Input, ...]:
        """As parts of a build key: the compiler by its version, and the whole as the base that is built on."""
        version = next(one.version for one in self.packages if one.name == self.compiler)
        text = f"{self.compiler} {version}"
        whole = digits(sorted(one.sha256 for one in self.packages), 64)
        return (
            Input(kind="compiler", name=self.compiler, version=version, sha256=digits(text, 64)),
            Input(kind="base-image", name=f"toolchain-{self.os}-{self.compiler}", version="", sha256=whole),
        )


def resolve(apt: Apt, os: str, compiler: str, kbuild: Sequence[str]) -> Toolchain:
    """What apt would install for a compiler, of the lists that `apt` (of one distribution) has verified last.

    `kbuild` are packages with programs that run while a module is built; their libraries are taken, not they.

    Raises:
        MissingPackageError: the archive has no such compiler, or not all that it needs.
        UntrustedArchiveError: apt names a package that its verified lists do not have.
    """
    wanted = [names.package(one) for one in (compiler, *kbuild, *TOOLS)]
    settings = apt.folder / "apt.conf"
    words = ["apt-get", f"--config-file={settings}", *_PRINTING, "install", *wanted]
    asked = run(words, timeout=_SECONDS, env=ENGLISH, check=False)
    if asked.code != 0:
        said = asked.stderr.decode(errors="replace").strip()
        raise MissingPackageError(f"no archive of {os} has all that {compiler} needs", name=compiler, details=said)
    found = (_LINE.match(line) for line in asked.text.splitlines())
    chosen = _chosen(apt, {one["sha256"]: one["name"] for one in found if one})
    own = tuple(sorted(one for one in chosen if not one.name.startswith("linux-")))
    return Toolchain(os=os, compiler=compiler, packages=own)


def _chosen(apt: Apt, wanted: Mapping[str, str]) -> list[Package]:
    """The packages of these digests; the values are their names."""
    found: dict[str, Package] = {}
    known = set(wanted.values())
    for index in apt.indices():
        for fields in stanzas(index, known.__contains__):
            if fields.get("SHA256") in wanted:
                found[fields["SHA256"]] = described(fields, apt.archives.of(index.suite), index).package
    if missing := [name for sha256, name in wanted.items() if sha256 not in found]:
        raise UntrustedArchiveError(f"apt names packages that its verified lists do not have: {', '.join(missing)}")
    return list(found.values())


def newest_kbuild(packages: Sequence[Package]) -> tuple[str, ...]:
    """The name of each linux-kbuild package, newest first: one brings the libraries that all need."""
    found = {one.name: one for one in packages if one.name.startswith("linux-kbuild-")}
    ordered = sorted(found.values(), key=lambda one: versions.sort_key(one.version), reverse=True)
    return tuple(one.name for one in ordered)


def finish(root: Path) -> None:
    """What the scripts of the packages would do to a toolchain's tree, as far as make needs it."""
    awk = root / "usr/bin/awk"
    if not awk.exists():
        awk.symlink_to("mawk")
    for place in _PLACES:
        (root / place).mkdir(exist_ok=True)


def encode(toolchains: Sequence[Toolchain]) -> bytes:
    """As JSON, for a file."""
    return msgspec.json.format(msgspec.json.encode(sorted(toolchains, key=lambda one: (one.os, one.compiler)))) + b"\n"


def decode(data: bytes) -> tuple[Toolchain, ...]:
    """What `encode` has made.

    Raises:
        msgspec.DecodeError: the data are something else.
    """
    return msgspec.json.decode(data, type=tuple[Toolchain, ...])
