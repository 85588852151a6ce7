"""Packages, kernels, and a whole discovery as values that can be saved, loaded and compared."""

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Input
from upgrader.core.node_protocol.driver_services import DriverService, fits_driver
from upgrader.images.debian import names, versions
from upgrader.images.debian.errors import MissingPackageError

_SHOWN = 8


class Package(Struct, frozen=True, kw_only=True, order=True):
    """A binary package as a signed index describes it.

    `archive` is debian or debian-security, `path` is relative to that archive's base, `size` is in bytes, and `suites`
    are the suites that contain it. Packages with the same digest are the same package.

    Raises:
        HostileNameError: a name, version, path or digest is invalid.
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
        names.check_package(self.name)
        names.check_version(self.version)
        names.check_arch(self.arch)
        names.check_sha256(self.sha256)
        names.check_suite(self.archive)
        names.check_path(self.path)
        for suite in self.suites:
            names.check_suite(suite)

    @property
    def file(self) -> str:
        """The file name, for example linux-kbuild-6.1_6.1.176-1_amd64.deb."""
        return self.path.rpartition("/")[2]

    @property
    def build_input(self) -> Input:
        """The package as an input of a build key."""
        return Input(kind="package", name=self.name, version=self.version, sha256=self.sha256)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class DebianKernel(Struct, frozen=True, kw_only=True, order=True):
    """A kernel to build for and to boot.

    Args:
        release: as in `uname -r`.
        os: code name of its distribution (bookworm, trixie, sid).
        flavour: amd64, cloud-amd64 or rt-amd64.
        compiler: the package of the compiler that built it, for example gcc-12.
        headers: the pinned packages that a module is compiled against: the headers, their common part, kbuild, and the
            kernel's compiler package if there is one. They unpack to `/` in any order.
        image: the packages of the kernel and its modules for the boot check: one package, or several since
            Linux 6.18. `/boot/vmlinuz-<release>` and `/lib/modules/<release>` come from all of them together.
        in_archive: false if the archive has dropped the kernel; then the store has its packages.
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
        names.check_release(self.release)
        names.check_suite(self.os)
        names.check_package(self.compiler)
        names.check_arch(self.arch)

    @property
    def packages(self) -> tuple[Package, ...]:
        """All packages of the kernel."""
        return tuple(dict.fromkeys((*self.headers, *self.image)))


class IncompleteKernel(Struct, frozen=True, kw_only=True, order=True):
    """A kernel that cannot be built for (`headers-missing`). `missing` names the packages that it lacks."""

    release: str
    os: str
    missing: tuple[str, ...]


class ArchiveDiscovery(Struct, frozen=True, kw_only=True):
    """The contents of the archives: kernels, incomplete kernels, and every version of the requested packages.

    `indices` has the SHA-256 of the signed InRelease (or Release) of each suite.
    """

    kernels: tuple[DebianKernel, ...] = ()
    incomplete: tuple[IncompleteKernel, ...] = ()
    packages: tuple[Package, ...] = ()
    indices: dict[str, str] = {}

    def find_kernel(self, release: str) -> DebianKernel:
        """The kernel with this release.

        Raises:
            HostileNameError: the text is not a release.
            MissingPackageError: no archive has the kernel, or all of its packages (headers-missing).
        """
        names.check_release(release)
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
            resolution=f"Similar kernels: {', '.join(near)}." if near else "",
        )

    def driver_versions(self, name: str) -> tuple[str, ...]:
        """Upstream versions of a package (535.261.03), oldest first."""
        upstream = {versions.upstream_version(package.version) for package in self.packages if package.name == name}
        return tuple(sorted(upstream, key=versions.sort_key))

    def driver_source(self, wanted: tuple[str, ...], driver: str, os: str = "") -> tuple[Package, ...]:
        """One package per name of `wanted` in the version `driver`: an upstream version (550.163.01) or a complete one.

        Revisions of the distribution `os` have priority, then revisions that are not backports, then the newest.

        Raises:
            MissingPackageError: a package does not have that version; the error names the available versions.
        """
        names.check_version(driver)
        return tuple(self._find_driver_package(names.check_package(name), driver, os) for name in wanted)

    def service_package(self, service: DriverService, name: str, driver: str, os: str = "") -> Package:
        """The package of a service in a version that fits the driver; the driver's own version has priority.

        Raises:
            MissingPackageError: no archive has such a version; the error names the available versions.
        """
        names.check_version(driver)
        own = versions.upstream_version(driver)
        fitting = [
            package
            for package in self.packages
            if package.name == names.check_package(name)
            and fits_driver(service, versions.upstream_version(package.version), own)
        ]
        if not fitting:
            others = ", ".join(self.driver_versions(name)) or "none"
            raise MissingPackageError(
                f"no archive has {name} in a version for driver {own}",
                name=name,
                details=f"available versions: {others}",
            )
        same = [package for package in fitting if versions.upstream_version(package.version) == own]
        return max(same or fitting, key=lambda package: _preference_key(package, os))

    def _find_driver_package(self, name: str, driver: str, os: str) -> Package:
        candidates = [
            package
            for package in self.packages
            if package.name == name and driver in {package.version, versions.upstream_version(package.version)}
        ]
        if not candidates:
            others = ", ".join(self.driver_versions(name)) or "none"
            raise MissingPackageError(
                f"no archive has {name} {driver}", name=name, details=f"available versions: {others}"
            )
        return max(candidates, key=lambda package: _preference_key(package, os))


def _preference_key(package: Package, os: str) -> tuple[bool, bool, object]:
    same_os = any(code_name(suite) == os for suite in package.suites)
    backport = all(suite.endswith("-backports") for suite in package.suites)
    return same_os, not backport, versions.sort_key(package.version)


def code_name(suite: str) -> str:
    """The distribution of a suite: trixie for trixie-security."""
    return suite.partition("-")[0]
