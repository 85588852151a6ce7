"""A definition with all of its packages as one OCI layout: what a builder needs that no archive is reachable from."""

from collections.abc import Mapping
from pathlib import Path

from upgrader.core.driver_matrix import Cell
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.carrying import pack, unpack
from upgrader.images.debian.store import PackageStore
from upgrader.images.drivers.assembly import programs_input
from upgrader.images.drivers.definition import Definition, decode, encode
from upgrader.images.drivers.recipes import RecipeFolder
from upgrader.images.layout import Layout

DEFINITION = "application/vnd.gpu-upgrader.build-definition.v1+json"


def bundle(definition: Definition, store: PackageStore, folder: Path) -> Layout:
    """Make the layout in a folder of its own; packages that the store lacks are fetched.

    Raises:
        ArchiveError: a package cannot be had.
    """
    return pack(definition.packages, store, folder, beside={DEFINITION: encode(definition)})


def open_bundle(layout: Layout, store: PackageStore) -> Definition:
    """Put the packages into the store, each compared with its digest, and read the definition.

    Raises:
        ConfigurationError: the layout is no bundle, or a package of the definition is not in it.
        ArchiveError: a package is not what its digest says, or the disk is full.
    """
    found = [one for one in layout.blobs if one.media_type == DEFINITION]
    if len(found) != 1:
        raise ConfigurationError(f"{layout.folder} has no build definition", resolution=_PACK)
    definition = decode(layout.path(found[0]).read_bytes())
    brought = {one.sha256 for one in unpack(layout, store)}
    if missing := [str(one) for one in definition.packages if one.sha256 not in brought]:
        raise ConfigurationError(f"{layout.folder} lacks packages of its definition: {', '.join(missing)}")
    return definition


class Bundled:
    """The one cell of a bundle, for a Round.

    Args:
        definition: of the bundle.
        recipes: that are here.
        root: driver-images/.
    """

    def __init__(self, definition: Definition, recipes: Mapping[str, RecipeFolder], root: Path) -> None:
        self._definition = definition
        self.recipes = recipes
        self._programs = programs_input(root)

    @property
    def cell(self) -> Cell:
        """What the bundle is for."""
        return Cell(identity=self._definition.identity)

    def definition(self, cell: Cell) -> Definition:
        """The definition, if it is of this cell and of the recipes that are here: else its key would tell a lie.

        Raises:
            ConfigurationError: with what differs.
        """
        definition = self._definition
        if definition.identity != cell.identity:
            raise ConfigurationError(f"the packages are of {definition.identity}, not of {cell.identity}")
        recipe = self.recipes.get(definition.identity.recipe)
        if recipe is None or not {recipe.input, self._programs} <= set(definition.inputs):
            raise ConfigurationError(
                f"the packages of {cell.identity} were packed with another recipe than this builder has",
                resolution="Run `upgrader images pack` of the release that the builder image is of.",
            )
        return definition


_PACK = "Make it by `upgrader images pack`."
