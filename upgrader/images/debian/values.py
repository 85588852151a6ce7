"""What is known of archives: packages, kernels, and a whole discovery that can be saved, loaded and compared."""

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Input
from upgrader.images.debian import names, versions
from upgrader.images.debian.errors import MissingPackageError

_SHOWN = 8


class Package(Struct, frozen=True, kw_only=True, order=True):
    """A binary package as a signed index describes it.

    `archive` is debian or debian-security, `path` where it lies below that archive's base; `size` in bytes; `suites`
    are those that have it. Two of the same digest are the same package.

    Raises:
        HostileNameError: made of something that is no name, version, path or digest.
    """

    name: str
    version: str
    arch: str
    sha256: str
    size: int
    archive: str
    path: str
    suites: tuple[str, ...]

    def __post_init__(self) -> None:
        names.package(self.name)
        names.version(self.version)
        names.arch(self.arch)
        names.sha256(self.sha256)
        names.suite(self.archive)
        names.path(self.path)
        for suite in self.suites:
            names.suite(suite)

    @property
    def file(self) -> str:
        """Its own file name, as linux-kbuild-6.1_6.1.176-1_amd64.deb."""
        return self.path.rpartition("/")[2]

    @property
    def input(self) -> Input:
        """As a part of a build key."""
        return Input(kind="package", name=self.name, version=self.version, sha256=self.sha256)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Kernel(Struct, frozen=True, kw_only=True, order=True):
    """A kernel that can be built for and booted.

    Args:
        release: as `uname -r` gives it.
        os: code name of the distribution that it belongs to (bookworm, trixie, sid).
        flavour: amd64, cloud-amd64 or rt-amd64.
        compiler: the package of the compiler that it was built with, as gcc-12.
        headers: all that a module is compiled against, pinned: its headers, their common part, kbuild, and the
            compiler's package of the kernel where there is one. They unpack to `/`, in any order.
        image: the kernel itself and its modules, for the boot check: one package, more from
            Linux 6.18 on. Read `/boot/vmlinuz-<release>` and `/lib/modules/<release>` of all of them together.
        in_archive: false when the archive has dropped it; its packages are in the store then.
    """

    release: str
    os: str
    arch: str
    flavour: str
    compiler: str
    headers: tuple[Package, ...]
    image: tuple[Package, ...]
    in_archive: bool = True

    def __post_init__(self) -> None:
        names.release(self.release)
        names.suite(self.os)
        names.package(self.compiler)
        names.arch(self.arch)

    @property
    def packages(self) -> tuple[Package, ...]:
        """All of it, for the store."""
        return tuple(dict.fromkeys((*self.headers, *self.image)))


class Incomplete(Struct, frozen=True, kw_only=True, order=True):
    """A kernel of an archive that nothing can be built for (`headers-missing`): `missing` names what it lacks."""

    release: str
    os: str
    missing: tuple[str, ...]


class Discovery(Struct, frozen=True, kw_only=True):
    """What the archives had: kernels, those that lack something, and every version of the packages that were asked for.

    `indices` has the SHA-256 of each suite's signed InRelease (or Release) that all this was read from.
    """

    kernels: tuple[Kernel, ...] = ()
    incomplete: tuple[Incomplete, ...] = ()
    packages: tuple[Package, ...] = ()
    indices: dict[str, str] = {}

    def kernel(self, release: str) -> Kernel:
        """The kernel of this release.

        Raises:
            HostileNameError: it is no release.
            MissingPackageError: no archive has it, or not all of it; it is filed as headers-missing.
        """
        names.release(release)
        for kernel in self.kernels:
            if kernel.release == release:
                return kernel
        name = f"linux-headers-{release}"
        for lacking in self.incomplete:
            if lacking.release == release:
                missing = ", ".join(lacking.missing)
                raise MissingPackageError(f"kernel {release} lacks {missing} in its archive", name=name)
        near = sorted(kernel.release for kernel in self.kernels if kernel.release[:3] == release[:3])[-_SHOWN:]
        raise MissingPackageError(
            f"no archive has the kernel {release}",
            name=name,
            details=f"searched: {', '.join(sorted(self.indices)) or 'nothing'}",
            resolution=f"Near it are: {', '.join(near)}." if near else "",
        )

    def drivers(self, name: str) -> tuple[str, ...]:
        """Upstream versions of a package (535.261.03), oldest first."""
        found = {versions.upstream(one.version) for one in self.packages if one.name == name}
        return tuple(sorted(found, key=versions.sort_key))

    def driver_source(self, wanted: tuple[str, ...], driver: str, os: str = "") -> tuple[Package, ...]:
        """One package per name of `wanted` in the version `driver`: an upstream version (550.163.01) or a whole one.

        Of several revisions those of the distribution `os` come first, then those that are no backport, then the
        newest.

        Raises:
            MissingPackageError: one of them is not in that version; the versions that it has are named.
        """
        names.version(driver)
        return tuple(self._of_driver(names.package(name), driver, os) for name in wanted)

    def _of_driver(self, name: str, driver: str, os: str) -> Package:
        found = [
            one for one in self.packages if one.name == name and driver in {one.version, versions.upstream(one.version)}
        ]
        if not found:
            others = ", ".join(self.drivers(name)) or "none at all"
            raise MissingPackageError(f"no archive has {name} {driver}", name=name, details=f"versions there: {others}")
        return max(found, key=lambda one: _preference(one, os))


def _preference(package: Package, os: str) -> tuple[bool, bool, object]:
    ours = any(code_name(suite) == os for suite in package.suites)
    backport = all(suite.endswith("-backports") for suite in package.suites)
    return ours, not backport, versions.sort_key(package.version)


def code_name(suite: str) -> str:
    """The distribution that a suite belongs to: trixie for trixie-security."""
    return suite.partition("-")[0]
