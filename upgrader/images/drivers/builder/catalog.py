"""The contents of the archives as far as recipes need them: kernels, drivers and toolchains. Cached between updates."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Identity, Input
from upgrader.core.driver_build.driver_matrix import (
    Cell,
    KernelFacts,
    Matrix,
    RecipeFacts,
    UnmatchedSelector,
    select_cells,
)
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.apt import Apt
from upgrader.images.debian.archives import Archives
from upgrader.images.debian.discovery import News, carry_over, compare_discoveries, discover_kernels
from upgrader.images.debian.errors import MissingPackageError
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import ArchiveDiscovery, DebianKernel, code_name
from upgrader.images.debian.versions import sort_key, upstream_version
from upgrader.images.drivers.builder.assembly import assembler_input, programs_input
from upgrader.images.drivers.recipe import toolchain
from upgrader.images.drivers.recipe.definition import BuildDefinition, define_image
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.images.drivers.recipe.toolchain import Toolchain
from upgrader.process.places import Progress, write_atomically

FILE = "catalog.json"
_TOOLS = ("main",)
"""Debian's component with the compilers."""


class Catalog(Struct, frozen=True, kw_only=True):
    """A discovery, and the toolchains for its kernels. A kernel whose compiler is in no archive has none.

    `names` are the requested packages in addition to kernels.
    """

    discovery: ArchiveDiscovery
    toolchains: tuple[Toolchain, ...]
    names: tuple[str, ...] = ()

    def covers_recipes(self, recipes: Mapping[str, RecipeFolder]) -> bool:
        """Whether the catalog was requested for all packages of these recipes."""
        return set(self.names) >= set(_package_names(recipes))

    def find_kernel(self, release: str, os: str = "") -> DebianKernel:
        """A kernel. If several distributions have it, that of `os`.

        Raises:
            MissingPackageError: no archive has the kernel.
        """
        same = [kernel for kernel in self.discovery.kernels if kernel.release == release and os in {"", kernel.os}]
        if same:
            return same[0]
        other = self.discovery.find_kernel(release)
        raise MissingPackageError(
            f"no archive of {os} has the kernel {release}; {other.os} has it", name=f"linux-headers-{release}"
        )

    def find_toolchain(self, kernel: DebianKernel) -> Toolchain:
        """The toolchain of a kernel.

        Raises:
            MissingPackageError: no archive has its compiler.
        """
        for candidate in self.toolchains:
            if (candidate.os, candidate.compiler) == (kernel.os, kernel.compiler):
                return candidate
        raise MissingPackageError(f"no archive of {kernel.os} has {kernel.compiler}", name=kernel.compiler)

    def driver_versions(self, recipe: RecipeFolder, os: str) -> tuple[str, ...]:
        """The versions of a recipe's driver in a distribution, oldest first."""
        if recipe.recipe.versions:
            return recipe.recipe.versions
        name = recipe.recipe.package
        named = (package for package in self.discovery.packages if package.name == name)
        versions = {upstream_version(package.version) for package in named if os in map(code_name, package.suites)}
        return tuple(sorted(versions, key=sort_key))

    def save(self, folder: Path) -> None:
        """Write the catalog for `load_catalog`."""
        write_atomically(folder / FILE, msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def load_catalog(folder: Path) -> Catalog | None:
    """The last saved catalog; None if there is none.

    Raises:
        ConfigurationError: the file is invalid.
    """
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Catalog)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(
            f"{folder / FILE} cannot be read",
            details=str(error),
            resolution="Delete it; the archives are then read again.",
        ) from error


def update_catalog(
    matrix: Matrix,
    recipes: Mapping[str, RecipeFolder],
    *,
    source: Archives,
    packages: PackageStore,
    folder: Path,
    progress: Progress,
) -> tuple[Catalog, News]:
    """Read the archives, save the catalog in `folder`, and return it with the changes. Lost packages stay if the store
    has them.

    Raises:
        UntrustedArchiveError, UnreachableArchiveError: the archives cannot be read; the catalog is unchanged.
        ConfigurationError: the matrix names a suite or component that no archive has.
    """
    progress("reading the archives")
    names = _package_names(recipes)
    now = discover_kernels(matrix.suites, matrix.components, names, source=source, folder=folder / "apt")
    earlier = load_catalog(folder)
    before = earlier.discovery if earlier else ArchiveDiscovery()
    kept = carry_over(before, now, packages.has_package)
    chains: list[Toolchain] = []
    for distribution in matrix.distributions:
        compilers = sorted({kernel.compiler for kernel in kept.kernels if kernel.os == distribution.os})
        if compilers:
            progress(f"{distribution.os}: resolving the toolchain of {', '.join(compilers)}")
            apt = Apt(folder / "apt", source, distribution.suites, _TOOLS)
            apt.update_lists()
            chains += _resolve_toolchains(apt, distribution.os, compilers, kept)
    catalog = Catalog(discovery=kept, toolchains=tuple(chains), names=tuple(names))
    catalog.save(folder)
    return catalog, compare_discoveries(before, kept)


def _package_names(recipes: Mapping[str, RecipeFolder]) -> list[str]:
    return sorted({name for folder in recipes.values() for name in folder.recipe.packages})


def _resolve_toolchains(apt: Apt, os: str, compilers: Sequence[str], discovery: ArchiveDiscovery) -> list[Toolchain]:
    """The toolchains. A missing compiler is left out, and the cells that need it fail."""
    headers = [package for kernel in discovery.kernels if kernel.os == os for package in kernel.headers]
    kbuild = toolchain.newest_kbuild(headers)[:1]
    toolchains: list[Toolchain] = []
    for compiler in compilers:
        try:
            toolchains.append(toolchain.resolve_toolchain(apt, os, compiler, kbuild))
        except MissingPackageError:
            continue
    return toolchains


class Cells:
    """The cells of a matrix and a catalog, and their definitions."""

    def __init__(
        self, catalog: Catalog, matrix: Matrix, recipes: Mapping[str, RecipeFolder], root: Path, *, signer: str = ""
    ) -> None:
        self.catalog = catalog
        self.recipes = recipes
        self._matrix = matrix
        self._signer = signer
        self._programs = programs_input(root)

    @cached_property
    def _assembler_input(self) -> Input:
        """Determined on demand, since a list of cells does not need buildah."""
        return assembler_input()

    def list_cells(self) -> tuple[tuple[Cell, ...], tuple[UnmatchedSelector, ...]]:
        """The cells of the matrix, and the selectors without a match.

        Raises:
            ConfigurationError: a recipe does not exist.
        """
        order = sorted(self.catalog.discovery.kernels, key=lambda kernel: sort_key(kernel.release))
        kernels = [KernelFacts(release=kernel.release, os=kernel.os, arch=kernel.arch) for kernel in order]
        systems = [distribution.os for distribution in self._matrix.distributions]
        facts = {
            name: RecipeFacts(
                vendor=folder.recipe.vendor,
                flavour=folder.recipe.flavour,
                drivers={os: self.catalog.driver_versions(folder, os) for os in systems},
            )
            for name, folder in self.recipes.items()
        }
        try:
            return select_cells(self._matrix, facts, kernels)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    def define_cell(self, cell: Cell) -> BuildDefinition:
        """All inputs of a cell, pinned.

        Raises:
            ArchiveError: no archive has one of the inputs.
            ConfigurationError: the recipe does not have the driver or a module.
        """
        return self.define_identity(cell.identity, cell.modules)

    def define_identity(self, identity: Identity, modules: Sequence[str] = ()) -> BuildDefinition:
        """As `define_cell`, for an identity."""
        kernel = self.catalog.find_kernel(identity.kernel, identity.os)
        return define_image(
            self.recipes[identity.recipe],
            driver=identity.driver,
            kernel=kernel,
            discovery=self.catalog.discovery,
            toolchain=self.catalog.find_toolchain(kernel),
            builder=(self._programs, self._assembler_input),
            modules=modules,
            signer=self._signer,
        )
