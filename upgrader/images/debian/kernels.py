"""From the packages of an archive to its kernels: each with all that is needed to build for it and to boot it. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from upgrader.images.debian import names, versions
from upgrader.images.debian.values import Incomplete, Kernel, Package, code_name

PARTS = (
    "linux-headers-",
    "linux-image-",
    "linux-kbuild-",
    "linux-compiler-",
    "linux-binary-",
    "linux-modules-",
    "linux-base-",
)
"""How the names of packages begin that kernels are made of."""

_HEADERS, _IMAGE = PARTS[:2]
_FLAVOUR = r"(?:cloud-|rt-)?"
_COMPILER = re.compile(r"(gcc-[0-9]+)(?:-for-host)?")
_DEPENDENCY = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9+.-]+)(?::[a-z]+)?(?:\s*\((?P<operator><<|<=|=|>=|>>)\s*(?P<version>[^)\s]+)\))?"
)


class Dependency(Struct, frozen=True, kw_only=True):
    """A package that is needed: the first of what an archive gives as alternatives."""

    name: str
    operator: str = ""
    version: str = ""

    def met_by(self, package: Package) -> bool:
        """Whether that package will do."""
        if package.name != self.name:
            return False
        return not self.operator or versions.satisfies(package.version, self.operator, self.version)


class Described(Struct, frozen=True, kw_only=True):
    """A package and what it depends on."""

    package: Package
    depends: tuple[Dependency, ...]


def dependencies(text: str) -> tuple[Dependency, ...]:
    """The field Depends; what cannot be read is left out, and then lacks where it is looked for.

    Raises:
        HostileNameError: a version that is none: without it any other would do.
    """
    found = (_DEPENDENCY.match(one.strip()) for one in text.split(","))
    return tuple(
        Dependency(
            name=one["name"],
            operator=one["operator"] or "",
            version=names.version(one["version"]) if one["version"] else "",
        )
        for one in found
        if one
    )


def kernels(described: Iterable[Described], arch: str) -> tuple[tuple[Kernel, ...], tuple[Incomplete, ...]]:
    """The kernels that are there whole, and those that lack something, each sorted."""
    by_os: dict[str, dict[str, list[Described]]] = defaultdict(lambda: defaultdict(list))
    for one in described:
        for os in {code_name(suite) for suite in one.package.suites}:
            by_os[os][one.package.name].append(one)
    whole: list[Kernel] = []
    lacking: list[Incomplete] = []
    for os, offered in by_os.items():
        for release in _releases(offered, arch):
            found = _Search(offered).kernel(release, os, arch)
            if isinstance(found, Kernel):
                whole.append(found)
            else:
                lacking.append(found)
    return tuple(sorted(whole)), tuple(sorted(lacking))


def _releases(offered: dict[str, list[Described]], arch: str) -> Iterator[str]:
    """Every release that has headers or an image; linux-headers-amd64 and linux-headers-6.12-amd64 only point."""
    number = r"[0-9]+\.[0-9]+[.-][0-9][a-z0-9+.-]*?"
    pattern = re.compile(rf"(?:{_HEADERS}|{_IMAGE})({number}-{_FLAVOUR}{re.escape(arch)})")
    found = (pattern.fullmatch(name) for name in offered)
    return iter(sorted({one[1] for one in found if one}))


class _Search:
    """Collects the packages of one kernel, and the names of those that are not there."""

    def __init__(self, offered: dict[str, list[Described]]) -> None:
        self._offered = offered
        self._missing: list[str] = []

    def kernel(self, release: str, os: str, arch: str) -> Kernel | Incomplete:
        headers = self._best(Dependency(name=_HEADERS + release), newest=True)
        built, compiler = self._headers(headers) if headers else ((), "")
        image = self._image(release, headers)
        if headers is None or not compiler or not image or self._missing:
            missing = self._missing or ["a compiler that it names"]
            return Incomplete(release=release, os=os, missing=tuple(dict.fromkeys(missing)))
        flavour = re.search(rf"{_FLAVOUR}{re.escape(arch)}$", release)
        return Kernel(
            release=names.release(release),
            os=os,
            arch=arch,
            flavour=flavour[0] if flavour else arch,
            compiler=compiler,
            headers=(headers.package, *built),
            image=image,
        )

    def _headers(self, headers: Described) -> tuple[tuple[Package, ...], str]:
        """What headers depend on, and the compiler."""
        packages: list[Package] = []
        compiler = ""
        for needed in headers.depends:
            if named := _COMPILER.fullmatch(needed.name):
                compiler = named[1]
            elif needed.name.startswith(PARTS) and not needed.name.startswith(_IMAGE):
                found = self._best(needed)
                packages += [found.package] if found else []
                for further in found.depends if found and needed.name.startswith("linux-compiler-") else ():
                    named = _COMPILER.fullmatch(further.name)
                    compiler = named[1] if named else compiler
        return tuple(packages), compiler

    def _image(self, release: str, headers: Described | None) -> tuple[Package, ...]:
        """The kernel of the headers' very version; the signed one before the unsigned."""
        exact = ("=", headers.package.version) if headers else ("", "")
        for name in (_IMAGE + release, f"{_IMAGE}{release}-unsigned"):
            wanted = Dependency(name=name, operator=exact[0], version=exact[1])
            if (image := self._best(wanted, newest=True, must=False)) is not None:
                parts = [self._best(one) for one in image.depends if one.name.startswith(PARTS) and release in one.name]
                return (image.package, *(one.package for one in parts if one))
        self._missing.append(_IMAGE + release)
        return ()

    def _best(self, wanted: Dependency, *, newest: bool = False, must: bool = True) -> Described | None:
        """The package that meets a dependency.

        Of several the oldest that will do: the helpers of a kernel (kbuild) are published anew with every other
        kernel, and each time would make another build key for a kernel that has not changed.
        """
        found = [one for one in self._offered.get(wanted.name, ()) if wanted.met_by(one.package)]
        if not found:
            self._missing += [wanted.name] if must else []
            return None
        choose = max if newest else min
        return choose(found, key=lambda one: versions.sort_key(one.package.version))
