"""Finds the kernels in the packages of an archive, each with everything to build for it and to boot it. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from upgrader.images.debian import names, versions
from upgrader.images.debian.values import DebianKernel, IncompleteKernel, Package, code_name

PARTS = (
    "linux-headers-",
    "linux-image-",
    "linux-kbuild-",
    "linux-compiler-",
    "linux-binary-",
    "linux-modules-",
    "linux-base-",
)
"""Prefixes of the names of packages that belong to a kernel."""

_HEADERS, _IMAGE = PARTS[:2]
_FLAVOUR = r"(?:cloud-|rt-)?"
_COMPILER = re.compile(r"(gcc-[0-9]+)(?:-for-host)?")
_DEPENDENCY = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9+.-]+)(?::[a-z]+)?(?:\s*\((?P<operator><<|<=|=|>=|>>)\s*(?P<version>[^)\s]+)\))?"
)


class Dependency(Struct, frozen=True, kw_only=True):
    """A required package: the first of the alternatives in a dependency."""

    name: str
    operator: str = ""
    version: str = ""

    def is_met_by(self, package: Package) -> bool:
        """Whether a package satisfies the dependency."""
        if package.name != self.name:
            return False
        return not self.operator or versions.satisfies_dependency(package.version, self.operator, self.version)


class DescribedPackage(Struct, frozen=True, kw_only=True):
    """A package and its dependencies."""

    package: Package
    depends: tuple[Dependency, ...]


def parse_dependencies(text: str) -> tuple[Dependency, ...]:
    """The field Depends. Unreadable entries are left out, and count as missing where they are needed.

    Raises:
        HostileNameError: a version is invalid: without it, any version would satisfy the dependency.
    """
    matches = (_DEPENDENCY.match(field.strip()) for field in text.split(","))
    return tuple(
        Dependency(
            name=match["name"],
            operator=match["operator"] or "",
            version=names.check_version(match["version"]) if match["version"] else "",
        )
        for match in matches
        if match
    )


def find_kernels(
    described: Iterable[DescribedPackage], arch: str
) -> tuple[tuple[DebianKernel, ...], tuple[IncompleteKernel, ...]]:
    """The complete kernels, and those that lack a package, each sorted."""
    by_os: dict[str, dict[str, list[DescribedPackage]]] = defaultdict(lambda: defaultdict(list))
    for candidate in described:
        for os in {code_name(suite) for suite in candidate.package.suites}:
            by_os[os][candidate.package.name].append(candidate)
    whole: list[DebianKernel] = []
    lacking: list[IncompleteKernel] = []
    for os, offered in by_os.items():
        for release in _find_releases(offered, arch):
            kernel = _Search(offered).find_kernel(release, os, arch)
            if isinstance(kernel, DebianKernel):
                whole.append(kernel)
            else:
                lacking.append(kernel)
    return tuple(sorted(whole)), tuple(sorted(lacking))


def _find_releases(offered: dict[str, list[DescribedPackage]], arch: str) -> Iterator[str]:
    """Every release that has headers or an image. Metapackages such as linux-headers-amd64 do not count."""
    number = r"[0-9]+\.[0-9]+[.-][0-9][a-z0-9+.-]*?"
    pattern = re.compile(rf"(?:{_HEADERS}|{_IMAGE})({number}-{_FLAVOUR}{re.escape(arch)})")
    matches = (pattern.fullmatch(name) for name in offered)
    return iter(sorted({match[1] for match in matches if match}))


class _Search:
    """Collects the packages of one kernel, and the names of those that are missing."""

    def __init__(self, offered: dict[str, list[DescribedPackage]]) -> None:
        self._offered = offered
        self._missing: list[str] = []

    def find_kernel(self, release: str, os: str, arch: str) -> DebianKernel | IncompleteKernel:
        headers = self._best_match(Dependency(name=_HEADERS + release), newest=True)
        built, compiler = self._find_headers(headers) if headers else ((), "")
        image = self._find_image(release, headers)
        if headers is None or not compiler or not image or self._missing:
            missing = self._missing or ["the compiler that it names"]
            return IncompleteKernel(release=release, os=os, missing=tuple(dict.fromkeys(missing)))
        flavour = re.search(rf"{_FLAVOUR}{re.escape(arch)}$", release)
        return DebianKernel(
            release=names.check_release(release),
            os=os,
            arch=arch,
            flavour=flavour[0] if flavour else arch,
            compiler=compiler,
            headers=(headers.package, *built),
            image=image,
        )

    def _find_headers(self, headers: DescribedPackage) -> tuple[tuple[Package, ...], str]:
        """The packages that the headers depend on, and the compiler."""
        packages: list[Package] = []
        compiler = ""
        for needed in headers.depends:
            if named := _COMPILER.fullmatch(needed.name):
                compiler = named[1]
            elif needed.name.startswith(PARTS) and not needed.name.startswith(_IMAGE):
                described = self._best_match(needed)
                packages += [described.package] if described else []
                for further in described.depends if described and needed.name.startswith("linux-compiler-") else ():
                    named = _COMPILER.fullmatch(further.name)
                    compiler = named[1] if named else compiler
        return tuple(packages), compiler

    def _find_image(self, release: str, headers: DescribedPackage | None) -> tuple[Package, ...]:
        """The kernel image with exactly the headers' version. The signed image has priority over the unsigned."""
        exact = ("=", headers.package.version) if headers else ("", "")
        for name in (_IMAGE + release, f"{_IMAGE}{release}-unsigned"):
            wanted = Dependency(name=name, operator=exact[0], version=exact[1])
            if (image := self._best_match(wanted, newest=True, must=False)) is not None:
                parts = [
                    self._best_match(dependency)
                    for dependency in image.depends
                    if dependency.name.startswith(PARTS) and release in dependency.name
                ]
                return (image.package, *(part.package for part in parts if part))
        self._missing.append(_IMAGE + release)
        return ()

    def _best_match(self, wanted: Dependency, *, newest: bool = False, must: bool = True) -> DescribedPackage | None:
        """The package that satisfies a dependency.

        Of several candidates the oldest is taken: the helpers of a kernel (kbuild) are published with every other
        kernel, and each new one would change the build key of a kernel that has not changed.
        """
        offered = self._offered.get(wanted.name, ())
        candidates = [candidate for candidate in offered if wanted.is_met_by(candidate.package)]
        if not candidates:
            self._missing += [wanted.name] if must else []
            return None
        choose = max if newest else min
        return choose(candidates, key=lambda candidate: versions.sort_key(candidate.package.version))
