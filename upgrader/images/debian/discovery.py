"""Asks the archives which kernels there are, and compares with what they had before."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.images.debian import names
from upgrader.images.debian.apt import Apt, Index
from upgrader.images.debian.archives import Archives, archives
from upgrader.images.debian.errors import UntrustedArchiveError
from upgrader.images.debian.kernels import PARTS, Described, dependencies, kernels
from upgrader.images.debian.stanzas import Fields, stanzas
from upgrader.images.debian.values import Discovery, Kernel, Package
from upgrader.process.places import cache_root


class News(Struct, frozen=True, kw_only=True):
    """What two discoveries differ in. `packages` are versions that were asked for by name and are new."""

    appeared: tuple[Kernel, ...] = ()
    changed: tuple[Kernel, ...] = ()
    """The same release, made of other packages."""
    gone: tuple[Kernel, ...] = ()
    packages: tuple[Package, ...] = ()


def discover(
    suites: Sequence[str],
    components: Sequence[str],
    packages: Collection[str] = (),
    *,
    source: Archives | None = None,
    folder: Path | None = None,
    arch: str = "amd64",
) -> Discovery:
    """What the archives have now: all kernels of the suites, and every version of `packages` (drivers, libraries).

    One suite that cannot be read or trusted fails all of it: where one distribution must not hold up another, ask for
    each on its own.

    Args:
        suites: bookworm, bookworm-security, ...; a kernel's parts are looked for in all that are named alike.
        components: main, contrib, non-free, ...
        packages: names of further packages to know of.
        source: where to ask; default is this machine's archives.
        folder: apt's state, kept for the next time; default lies in the user's cache directory.
        arch: Debian's name of an architecture.

    Raises:
        UntrustedArchiveError: an index was not what the keyring has signed.
        UnreachableArchiveError: an archive did not answer.
        ConfigurationError: no such suite, component, archive or name.
    """
    apt = Apt(folder or cache_root() / "apt", source or archives(), suites, components, arch=arch)
    further = frozenset(names.package(one) for one in packages)
    with apt.updated():
        return read(apt, further)


def read(apt: Apt, further: Collection[str]) -> Discovery:
    """What the lists of an `apt` say, inside its `updated`."""
    found: dict[tuple[str, str, str], Described] = {}
    for index in apt.indices():
        for fields in stanzas(index, _wanted(further)):
            one = described(fields, apt.archives.of(index.suite), index)
            _add(found, one)
    whole, lacking = kernels((one for one in found.values() if one.package.name not in further), apt.arch)
    extra = sorted(one.package for one in found.values() if one.package.name in further)
    return Discovery(kernels=whole, incomplete=lacking, packages=tuple(extra), indices=apt.signed())


def described(fields: Fields, archive: str, index: Index) -> Described:
    """A stanza as a value.

    Raises:
        UntrustedArchiveError: a field that a package must have is missing, or no number.
        HostileNameError: a field holds what Debian's policy does not allow.
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
    depends = ", ".join(fields[one] for one in ("Pre-Depends", "Depends") if one in fields)
    return Described(package=package, depends=dependencies(depends))


def _wanted(further: Collection[str]) -> Callable[[str], bool]:
    return lambda name: name in further or (name.startswith(PARTS) and not name.endswith("-dbg"))


def _add(found: dict[tuple[str, str, str], Described], one: Described) -> None:
    """The same package in a second suite is one package in two suites; that of the archive that keeps it longer."""
    key = (one.package.name, one.package.version, one.package.sha256)
    if (known := found.get(key)) is not None:
        suites = tuple(sorted({*known.package.suites, *one.package.suites}))
        nearer = min(known, one, key=lambda each: (each.package.archive, each.package.path))
        one = msgspec.structs.replace(nearer, package=msgspec.structs.replace(nearer.package, suites=suites))
    found[key] = one


def carried(before: Discovery, now: Discovery, held: Callable[[Package], bool]) -> Discovery:
    """`now`, with what it has lost since `before` as far as the store has it (`held`).

    A kernel that vanished stays, marked so. A kernel whose own headers are the same keeps the helpers that it was built
    with: another kbuild alone makes no other build key.
    """
    earlier = {(one.release, one.os): one for one in before.kernels}
    kept = [_kept(earlier.get((one.release, one.os)), one, held) for one in now.kernels]
    there = {(one.release, one.os) for one in now.kernels}
    gone = [one for key, one in earlier.items() if key not in there and all(map(held, one.packages))]
    kept += [msgspec.structs.replace(one, in_archive=False) for one in gone]
    whole = {(one.release, one.os) for one in kept}
    known = {one.sha256 for one in now.packages}
    return Discovery(
        kernels=tuple(sorted(kept)),
        incomplete=tuple(one for one in now.incomplete if (one.release, one.os) not in whole),
        packages=tuple(
            sorted([*now.packages, *(one for one in before.packages if one.sha256 not in known and held(one))])
        ),
        indices=now.indices,
    )


def _kept(before: Kernel | None, now: Kernel, held: Callable[[Package], bool]) -> Kernel:
    same = before is not None and before.headers[0].sha256 == now.headers[0].sha256
    if before is None or not same or not all(map(held, before.packages)):
        return now
    return msgspec.structs.replace(before, in_archive=True)


def news(before: Discovery, now: Discovery) -> News:
    """What was announced since last time, and what went away. Where a package lies makes no difference."""
    earlier = {(one.release, one.os): one for one in before.kernels if one.in_archive}
    later = {(one.release, one.os): one for one in now.kernels if one.in_archive}
    both = earlier.keys() & later.keys()
    known = {one.sha256 for one in before.packages}
    return News(
        appeared=tuple(later[key] for key in sorted(later.keys() - earlier.keys())),
        changed=tuple(later[key] for key in sorted(both) if _digests(earlier[key]) != _digests(later[key])),
        gone=tuple(earlier[key] for key in sorted(earlier.keys() - later.keys())),
        packages=tuple(one for one in now.packages if one.sha256 not in known),
    )


def _digests(kernel: Kernel) -> set[str]:
    return {one.sha256 for one in kernel.packages}
