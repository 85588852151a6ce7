"""The compiler that built a kernel, and the other tools that make needs: packages that apt selects."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Input, hash_facts
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian import names, versions
from upgrader.images.debian.apt import Apt
from upgrader.images.debian.discovery import parse_stanza
from upgrader.images.debian.errors import MissingPackageError, UntrustedArchiveError
from upgrader.images.debian.settings import ENGLISH
from upgrader.images.debian.stanzas import read_stanzas
from upgrader.images.debian.values import Package
from upgrader.process import run

TOOLS = (
    *("bash", "busybox-static", "coreutils", "dash", "diffutils", "findutils", "grep", "make", "mawk", "patch"),
    *("perl-base", "sed", "xz-utils"),
)
BUILD = "build"
"""The source folder in the sandbox."""

_PLACES = ("build", "dev", "proc", "tmp")
_SECONDS = 120.0
_OPTIONS = ("pkgCacheFile::Generate=true", "Acquire::ForceHash=sha256")
_PRINTING = ("--quiet=2", "--print-uris", "--no-install-recommends", *(f"--option={option}" for option in _OPTIONS))
_LINE = re.compile(r"'[^']+' (?P<name>[a-z0-9+.-]+)_\S+ \d+ SHA256:(?P<sha256>[0-9a-f]{64})$")


class Toolchain(Struct, frozen=True, kw_only=True):
    """A compiler of a distribution with its dependencies, pinned. The programs of the image come from these packages,
    too.

    Raises:
        HostileNameError: the distribution or the compiler is not a valid name.
        ConfigurationError: the compiler is not among the packages.
    """

    os: str
    compiler: str
    packages: tuple[Package, ...]

    def __post_init__(self) -> None:
        names.check_suite(self.os)
        names.check_package(self.compiler)
        if self.compiler not in {package.name for package in self.packages}:
            raise ConfigurationError(f"the toolchain {self.compiler} of {self.os} has no package {self.compiler}")

    @property
    def build_inputs(self) -> tuple[Input, ...]:
        """The toolchain as inputs of a build key: the compiler's version, and all packages as the base image."""
        version = next(package.version for package in self.packages if package.name == self.compiler)
        text = f"{self.compiler} {version}"
        whole = hash_facts(sorted(package.sha256 for package in self.packages), 64)
        return (
            Input(kind="compiler", name=self.compiler, version=version, sha256=hash_facts(text, 64)),
            Input(kind="base-image", name=f"toolchain-{self.os}-{self.compiler}", version="", sha256=whole),
        )


def resolve_toolchain(apt: Apt, os: str, compiler: str, kbuild: Sequence[str]) -> Toolchain:
    """The packages that apt would install for a compiler, from the lists that `apt` (of one distribution) verified
    last.

    `kbuild` are packages with programs that run during a module's build. Their libraries are included, they are not.

    Raises:
        MissingPackageError: the archive lacks the compiler or one of its dependencies.
        UntrustedArchiveError: apt selects a package that is not in its verified lists.
    """
    wanted = [names.check_package(name) for name in (compiler, *kbuild, *TOOLS)]
    settings = apt.folder / "apt.conf"
    words = ["apt-get", f"--config-file={settings}", *_PRINTING, "install", *wanted]
    asked = run(words, timeout=_SECONDS, env=ENGLISH, check=False)
    if asked.code != 0:
        output = asked.stderr.decode(errors="replace").strip()
        raise MissingPackageError(
            f"no archive of {os} has all dependencies of {compiler}", name=compiler, details=output
        )
    matches = (_LINE.match(line) for line in asked.text.splitlines())
    chosen = _chosen_packages(apt, {match["sha256"]: match["name"] for match in matches if match})
    own = tuple(sorted(package for package in chosen if not package.name.startswith("linux-")))
    return Toolchain(os=os, compiler=compiler, packages=own)


def _chosen_packages(apt: Apt, wanted: Mapping[str, str]) -> list[Package]:
    """The packages with these digests. The values of `wanted` are their names."""
    packages: dict[str, Package] = {}
    known = set(wanted.values())
    for index in apt.verified_indices():
        for fields in read_stanzas(index, known.__contains__):
            if fields.get("SHA256") in wanted:
                packages[fields["SHA256"]] = parse_stanza(fields, apt.archives.archive_of(index.suite), index).package
    if missing := [name for sha256, name in wanted.items() if sha256 not in packages]:
        raise UntrustedArchiveError(f"apt selects packages that are not in its verified lists: {', '.join(missing)}")
    return list(packages.values())


def newest_kbuild(packages: Sequence[Package]) -> tuple[str, ...]:
    """The names of the linux-kbuild packages, newest first. One of them has the libraries that all need."""
    kbuilds = {package.name: package for package in packages if package.name.startswith("linux-kbuild-")}
    ordered = sorted(kbuilds.values(), key=lambda package: versions.sort_key(package.version), reverse=True)
    return tuple(package.name for package in ordered)


def finish_tree(root: Path) -> None:
    """Do what the packages' scripts would do to a toolchain's tree, as far as make needs it."""
    awk = root / "usr/bin/awk"
    if not awk.exists():
        awk.symlink_to("mawk")
    for place in _PLACES:
        (root / place).mkdir(exist_ok=True)


def encode_toolchains(toolchains: Sequence[Toolchain]) -> bytes:
    """Toolchains as JSON, for a file."""
    return (
        msgspec.json.format(
            msgspec.json.encode(sorted(toolchains, key=lambda toolchain: (toolchain.os, toolchain.compiler)))
        )
        + b"\n"
    )


def decode_toolchains(data: bytes) -> tuple[Toolchain, ...]:
    """Decode the output of `encode_toolchains`.

    Raises:
        msgspec.DecodeError: the data have another form.
    """
    return msgspec.json.decode(data, type=tuple[Toolchain, ...])
