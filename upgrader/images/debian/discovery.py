"""Discovers the kernels of the archives, and compares them with an earlier discovery."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.images.debian import names
from upgrader.images.debian.apt import Apt, Index
from upgrader.images.debian.archives import Archives, configured_archives
from upgrader.images.debian.errors import UntrustedArchiveError
from upgrader.images.debian.kernels import PARTS, DescribedPackage, find_kernels, parse_dependencies
from upgrader.images.debian.stanzas import Fields, read_stanzas
from upgrader.images.debian.values import ArchiveDiscovery, DebianKernel, Package
from upgrader.process.places import cache_root


class News(Struct, frozen=True, kw_only=True):
    """The differences between two discoveries. `packages` are new versions of packages that were requested by name."""

    appeared: tuple[DebianKernel, ...] = ()
    changed: tuple[DebianKernel, ...] = ()
    """The same release with other packages."""
    gone: tuple[DebianKernel, ...] = ()
    packages: tuple[Package, ...] = ()


def discover_kernels(
    suites: Sequence[str],
    components: Sequence[str],
    packages: Collection[str] = (),
    *,
    source: Archives | None = None,
    folder: Path | None = None,
    arch: str = "amd64",
) -> ArchiveDiscovery:
    """The current contents of the archives: all kernels of the suites, and every version of `packages` (drivers,
    libraries).

    The discovery fails if a single suite cannot be read or verified. Discover distributions separately if they must not
    block each other.

    Args:
        suites: bookworm, bookworm-security, ...; a kernel's parts may be in any suite of the same distribution.
        components: main, contrib, non-free, ...
        packages: names of further packages to include.
        source: the archives; default are those of this machine.
        folder: apt's state, kept for the next discovery; default is in the user's cache directory.
        arch: Debian's name of an architecture.

    Raises:
        UntrustedArchiveError: an index is not signed by the keyring.
        UnreachableArchiveError: an archive did not answer.
        ConfigurationError: a suite, component, archive or name does not exist or is invalid.
    """
    apt = Apt(folder or cache_root() / "apt", source or configured_archives(), suites, components, arch=arch)
    further = frozenset(names.check_package(name) for name in packages)
    with apt.updated_lists():
        return read_lists(apt, further)


def read_lists(apt: Apt, further: Collection[str]) -> ArchiveDiscovery:
    """Read the lists of `apt`, inside its `updated_lists`."""
    by_key: dict[tuple[str, str, str], DescribedPackage] = {}
    for index in apt.verified_indices():
        for fields in read_stanzas(index, _name_filter(further)):
            described = parse_stanza(fields, apt.archives.archive_of(index.suite), index)
            _merge_package(by_key, described)
    whole, lacking = find_kernels(
        (described for described in by_key.values() if described.package.name not in further), apt.arch
    )
    extra = sorted(described.package for described in by_key.values() if described.package.name in further)
    return ArchiveDiscovery(kernels=whole, incomplete=lacking, packages=tuple(extra), indices=apt.signed_digests())


def parse_stanza(fields: Fields, archive: str, index: Index) -> DescribedPackage:
    """A stanza as a value.

    Raises:
        UntrustedArchiveError: a mandatory field is missing or not a number.
        HostileNameError: a field contains characters that Debian's policy does not allow.
    """
    try:
        package = Package(
            name=fields["Package"],
            version=fields["Version"],
            arch=fields["Architecture"],
            sha256=fields["SHA256"],
            size=int(fields["Size"]),
            archive=archive,
            path=fields["Filename"],
            suites=(index.suite,),
        )
    except (KeyError, ValueError) as error:
        name = fields.get("Package", "a package")
        raise UntrustedArchiveError(f"{index.suite} describes {name!r} without {error}") from error
    depends = ", ".join(fields[field_name] for field_name in ("Pre-Depends", "Depends") if field_name in fields)
    return DescribedPackage(package=package, depends=parse_dependencies(depends))


def _name_filter(further: Collection[str]) -> Callable[[str], bool]:
    return lambda name: name in further or (name.startswith(PARTS) and not name.endswith("-dbg"))


def _merge_package(by_key: dict[tuple[str, str, str], DescribedPackage], described: DescribedPackage) -> None:
    """Merge a package in a second suite into one entry with both suites, from the archive that keeps it longer."""
    key = (described.package.name, described.package.version, described.package.sha256)
    if (known := by_key.get(key)) is not None:
        suites = tuple(sorted({*known.package.suites, *described.package.suites}))
        nearer = min(known, described, key=lambda candidate: (candidate.package.archive, candidate.package.path))
        described = msgspec.structs.replace(nearer, package=msgspec.structs.replace(nearer.package, suites=suites))
    by_key[key] = described


def carry_over(before: ArchiveDiscovery, now: ArchiveDiscovery, held: Callable[[Package], bool]) -> ArchiveDiscovery:
    """`now`, with the kernels and packages that it lost since `before` if the store has them (`held`).

    A kernel that vanished stays and is marked. A kernel with unchanged headers keeps the helper packages that it was
    built with, so that a new kbuild package alone does not change the build key.
    """
    earlier = {(kernel.release, kernel.os): kernel for kernel in before.kernels}
    kept = [_keep_unchanged(earlier.get((kernel.release, kernel.os)), kernel, held) for kernel in now.kernels]
    there = {(kernel.release, kernel.os) for kernel in now.kernels}
    gone = [kernel for key, kernel in earlier.items() if key not in there and all(map(held, kernel.packages))]
    kept += [msgspec.structs.replace(kernel, in_archive=False) for kernel in gone]
    whole = {(kernel.release, kernel.os) for kernel in kept}
    known = {package.sha256 for package in now.packages}
    return ArchiveDiscovery(
        kernels=tuple(sorted(kept)),
        incomplete=tuple(kernel for kernel in now.incomplete if (kernel.release, kernel.os) not in whole),
        packages=tuple(
            sorted(
                [
                    *now.packages,
                    *(package for package in before.packages if package.sha256 not in known and held(package)),
                ]
            )
        ),
        indices=now.indices,
    )


def _keep_unchanged(before: DebianKernel | None, now: DebianKernel, held: Callable[[Package], bool]) -> DebianKernel:
    same = before is not None and before.headers[0].sha256 == now.headers[0].sha256
    if before is None or not same or not all(map(held, before.packages)):
        return now
    return msgspec.structs.replace(before, in_archive=True)


def compare_discoveries(before: ArchiveDiscovery, now: ArchiveDiscovery) -> News:
    """The differences since the last discovery. The location of a package is ignored."""
    earlier = {(kernel.release, kernel.os): kernel for kernel in before.kernels if kernel.in_archive}
    later = {(kernel.release, kernel.os): kernel for kernel in now.kernels if kernel.in_archive}
    both = earlier.keys() & later.keys()
    known = {package.sha256 for package in before.packages}
    return News(
        appeared=tuple(later[key] for key in sorted(later.keys() - earlier.keys())),
        changed=tuple(
            later[key] for key in sorted(both) if _package_digests(earlier[key]) != _package_digests(later[key])
        ),
        gone=tuple(earlier[key] for key in sorted(earlier.keys() - later.keys())),
        packages=tuple(package for package in now.packages if package.sha256 not in known),
    )


def _package_digests(kernel: DebianKernel) -> set[str]:
    return {package.sha256 for package in kernel.packages}
