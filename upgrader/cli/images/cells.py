"""The cell that the command line specifies, from the archives or from a bundle of packages."""

from collections.abc import Collection

from msgspec import Struct

from upgrader.core.driver_build.driver_matrix import Cell
from upgrader.core.errors import ConfigurationError
from upgrader.images.drivers.builder.catalog import Cells
from upgrader.images.drivers.publish.build_matrix import Definitions
from upgrader.images.drivers.publish.bundle_registry import BundleTrust
from upgrader.images.drivers.publish.bundles import BundledCell
from upgrader.images.drivers.workspace import Site


class CellOptions(Struct, frozen=True, kw_only=True):
    """Options that select a cell; `recipe` and `os` may be empty; empty `modules` means all modules."""

    driver: str
    kernel: str
    recipe: str = ""
    os: str = ""
    modules: tuple[str, ...] = ()


def find_cell(
    site: Site, wish: CellOptions, bundle: str | None, insecure: Collection[str], judge: BundleTrust | None
) -> tuple[Definitions, Cell]:
    """The cell, from the archives or from `bundle`, a name in a registry. Raises the errors of the functions
    below.
    """
    if bundle is None:
        return find_archive_cell(site, wish)
    return find_bundle_cell(site, wish, bundle, insecure, judge)


def find_archive_cell(site: Site, wish: CellOptions) -> tuple[Cells, Cell]:
    """The cell, from the latest stored catalog of the archives.

    Raises:
        MissingPackageError: no archive has the kernel.
        ConfigurationError: no recipe has the driver, or several have it.
    """
    catalog = site.current_catalog()
    identity = site.find_identity(catalog, driver=wish.driver, kernel=wish.kernel, os=wish.os, recipe=wish.recipe)
    return site.matrix_cells(catalog), Cell(identity=identity, modules=wish.modules)


def find_bundle_cell(
    site: Site, wish: CellOptions, image: str, insecure: Collection[str], judge: BundleTrust | None
) -> tuple[BundledCell, Cell]:
    """The cell of a bundle, which must match the options.

    Raises:
        ConfigurationError: the bundle is for another cell, or is not a bundle.
        UnverifiedError: the bundle is not signed with the key of `judge`.
        RegistryError: the registry does not return the bundle.
    """
    bundled = site.pull_packages(image, insecure=insecure, judge=judge)
    identity = bundled.cell.identity
    named = [("driver", wish.driver), ("kernel", wish.kernel), ("recipe", wish.recipe), ("os", wish.os)]
    odd = [
        f"{name} {getattr(identity, name)}, not {expected}"
        for name, expected in named
        if expected not in {"", getattr(identity, name)}
    ]
    if odd or wish.modules:
        odd += ["all packed modules: omit --modules"] if wish.modules else []
        raise ConfigurationError(f"{image} contains {'; '.join(odd)}")
    return bundled, bundled.cell
