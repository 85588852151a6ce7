"""What the archives have, as far as the recipes ask for it: kernels, drivers and toolchains. Kept between two looks."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Identity, Input
from upgrader.core.driver_build.driver_matrix import Cell, KernelFacts, Matrix, RecipeFacts, Unmatched, cells
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.apt import Apt
from upgrader.images.debian.archives import Archives
from upgrader.images.debian.discovery import News, carried, discover, news
from upgrader.images.debian.errors import MissingPackageError
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import Discovery, Kernel, code_name
from upgrader.images.debian.versions import sort_key, upstream
from upgrader.images.drivers.builder.assembly import assembler_input, programs_input
from upgrader.images.drivers.recipe import toolchain
from upgrader.images.drivers.recipe.definition import Definition, define
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.images.drivers.recipe.toolchain import Toolchain
from upgrader.process.places import Progress, write_whole

FILE = "catalog.json"
_TOOLS = ("main",)
"""Compilers are in Debian proper."""


class Catalog(Struct, frozen=True, kw_only=True):
    """A discovery, and the toolchains for its kernels. A kernel whose compiler is in no archive has none.

    `names` are the packages that the archives were asked for beside kernels.
    """

    discovery: Discovery
    toolchains: tuple[Toolchain, ...]
    names: tuple[str, ...] = ()

    def answers(self, recipes: Mapping[str, RecipeFolder]) -> bool:
        """Whether it was asked for all that these recipes are made of; of any other package it knows nothing."""
        return set(self.names) >= set(_names(recipes))

    def kernel(self, release: str, os: str = "") -> Kernel:
        """A kernel; of several distributions' the one of `os`.

        Raises:
            MissingPackageError: no archive has it.
        """
        same = [one for one in self.discovery.kernels if one.release == release and os in {"", one.os}]
        if same:
            return same[0]
        other = self.discovery.kernel(release)
        raise MissingPackageError(
            f"no archive of {os} has the kernel {release}; {other.os} has it", name=f"linux-headers-{release}"
        )

    def toolchain(self, kernel: Kernel) -> Toolchain:
        """The toolchain of a kernel.

        Raises:
            MissingPackageError: its compiler is in no archive.
        """
        for one in self.toolchains:
            if (one.os, one.compiler) == (kernel.os, kernel.compiler):
                return one
        raise MissingPackageError(f"no archive of {kernel.os} has {kernel.compiler}", name=kernel.compiler)

    def drivers(self, recipe: RecipeFolder, os: str) -> tuple[str, ...]:
        """The versions of a recipe's driver that a distribution has, oldest first."""
        if recipe.recipe.versions:
            return recipe.recipe.versions
        name = recipe.recipe.package
        named = (one for one in self.discovery.packages if one.name == name)
        found = {upstream(one.version) for one in named if os in map(code_name, one.suites)}
        return tuple(sorted(found, key=sort_key))

    def save(self, folder: Path) -> None:
        """Keep it for `load`."""
        write_whole(folder / FILE, msgspec.json.format(msgspec.json.encode(self)) + b"\n")


def load(folder: Path) -> Catalog | None:
    """The catalog that was kept last; None where none was.

    Raises:
        ConfigurationError: the file is something else.
    """
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Catalog)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(
            f"{folder / FILE} cannot be read", details=str(error), resolution="Delete it; the archives are asked again."
        ) from error


def look(
    matrix: Matrix,
    recipes: Mapping[str, RecipeFolder],
    *,
    source: Archives,
    packages: PackageStore,
    folder: Path,
    progress: Progress,
) -> tuple[Catalog, News]:
    """Ask the archives, keep the answer in `folder`, and say what is new. What they lost stays while its packages do.

    Raises:
        UntrustedArchiveError, UnreachableArchiveError: as they say; nothing is decided then.
        ConfigurationError: the matrix names what no archive has.
    """
    progress("asking the archives")
    names = _names(recipes)
    now = discover(matrix.suites, matrix.components, names, source=source, folder=folder / "apt")
    earlier = load(folder)
    before = earlier.discovery if earlier else Discovery()
    kept = carried(before, now, packages.holds)
    chains: list[Toolchain] = []
    for one in matrix.distributions:
        wanted = sorted({kernel.compiler for kernel in kept.kernels if kernel.os == one.os})
        if wanted:
            progress(f"{one.os}: choosing the toolchain of {', '.join(wanted)}")
            apt = Apt(folder / "apt", source, one.suites, _TOOLS)
            apt.update()
            chains += _toolchains(apt, one.os, wanted, kept)
    catalog = Catalog(discovery=kept, toolchains=tuple(chains), names=tuple(names))
    catalog.save(folder)
    return catalog, news(before, kept)


def _names(recipes: Mapping[str, RecipeFolder]) -> list[str]:
    return sorted({name for one in recipes.values() for name in one.recipe.packages})


def _toolchains(apt: Apt, os: str, compilers: Sequence[str], discovery: Discovery) -> list[Toolchain]:
    """A compiler that cannot be had is left out; the cells that need it say so."""
    headers = [package for kernel in discovery.kernels if kernel.os == os for package in kernel.headers]
    kbuild = toolchain.newest_kbuild(headers)[:1]
    found: list[Toolchain] = []
    for compiler in compilers:
        try:
            found.append(toolchain.resolve(apt, os, compiler, kbuild))
        except MissingPackageError:
            continue
    return found


class Cells:
    """The cells of a matrix over a catalog, and their definitions."""

    def __init__(
        self, catalog: Catalog, matrix: Matrix, recipes: Mapping[str, RecipeFolder], root: Path, *, signer: str = ""
    ) -> None:
        self.catalog = catalog
        self.recipes = recipes
        self._matrix = matrix
        self._signer = signer
        self._programs = programs_input(root)

    @cached_property
    def _assembler(self) -> Input:
        """Asked for late: who only lists cells needs no buildah."""
        return assembler_input()

    def wanted(self) -> tuple[tuple[Cell, ...], tuple[Unmatched, ...]]:
        """The cells of the matrix, and the selectors that select nothing.

        Raises:
            ConfigurationError: a recipe that is not there.
        """
        order = sorted(self.catalog.discovery.kernels, key=lambda one: sort_key(one.release))
        kernels = [KernelFacts(release=one.release, os=one.os, arch=one.arch) for one in order]
        systems = [one.os for one in self._matrix.distributions]
        facts = {
            name: RecipeFacts(
                vendor=one.recipe.vendor,
                flavour=one.recipe.flavour,
                drivers={os: self.catalog.drivers(one, os) for os in systems},
            )
            for name, one in self.recipes.items()
        }
        try:
            return cells(self._matrix, facts, kernels)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    def definition(self, cell: Cell) -> Definition:
        """All inputs of a cell, pinned.

        Raises:
            ArchiveError: something that it is made of is in no archive.
            ConfigurationError: the recipe has no such driver or module.
        """
        return self.define(cell.identity, cell.modules)

    def define(self, identity: Identity, modules: Sequence[str] = ()) -> Definition:
        """As `definition`."""
        kernel = self.catalog.kernel(identity.kernel, identity.os)
        return define(
            self.recipes[identity.recipe],
            driver=identity.driver,
            kernel=kernel,
            discovery=self.catalog.discovery,
            toolchain=self.catalog.toolchain(kernel),
            builder=(self._programs, self._assembler),
            modules=modules,
            signer=self._signer,
        )
