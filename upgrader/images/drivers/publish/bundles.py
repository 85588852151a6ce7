"""A definition with all its packages as one OCI layout, for builders without access to an archive."""

from collections.abc import Mapping
from pathlib import Path

from upgrader.core.driver_build.driver_matrix import Cell
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.carrying import pack_packages, unpack_packages
from upgrader.images.debian.errors import ArchiveError
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import ArchiveDiscovery
from upgrader.images.drivers.builder.assembly import ASSEMBLER, assembler_input, programs_input
from upgrader.images.drivers.recipe.definition import (
    BuildDefinition,
    decode_definition,
    define_image,
    encode_definition,
)
from upgrader.images.drivers.recipe.recipes import RecipeFolder
from upgrader.images.layout import Layout

DEFINITION = "application/vnd.gpu-upgrader.build-definition.v1+json"


def pack_bundle(definition: BuildDefinition, store: PackageStore, folder: Path) -> Layout:
    """Create the layout in its own folder. Packages that the store lacks are fetched.

    Raises:
        ArchiveError: a package is not available.
    """
    return pack_packages(definition.packages, store, folder, beside={DEFINITION: encode_definition(definition)})


def open_bundle(layout: Layout, store: PackageStore) -> BuildDefinition:
    """Add the packages to the store, each compared with its digest, and read the definition.

    Raises:
        ConfigurationError: the layout is not a bundle, or lacks a package of the definition.
        ArchiveError: a package differs from its digest, or the disk is full.
    """
    layers = [layer for layer in layout.blobs if layer.media_type == DEFINITION]
    if len(layers) != 1:
        raise ConfigurationError(f"{layout.folder} has no build definition", resolution=_PACK)
    definition = decode_definition(layout.blob_path(layers[0]).read_bytes())
    brought = {package.sha256 for package in unpack_packages(layout, store)}
    if missing := [str(package) for package in definition.packages if package.sha256 not in brought]:
        raise ConfigurationError(f"{layout.folder} lacks packages of its definition: {', '.join(missing)}")
    return definition


class BundledCell:
    """The single cell of a bundle, for a Round. The bundle's own definition is not trusted.

    Args:
        definition: of the bundle.
        recipes: of this builder.
        root: driver-images/.
        signer: fingerprint of the certificate for modules on this builder; empty if modules are not signed.
    """

    def __init__(
        self, definition: BuildDefinition, recipes: Mapping[str, RecipeFolder], root: Path, *, signer: str = ""
    ) -> None:
        self._definition = definition
        self.recipes = recipes
        self._signer = signer
        self._builder = (programs_input(root), assembler_input())

    @property
    def cell(self) -> Cell:
        """The cell of the bundle."""
        return Cell(identity=self._definition.identity)

    def define_cell(self, cell: Cell) -> BuildDefinition:
        """The definition that this builder creates from the bundle's packages, if the bundle's is equal.

        Raises:
            ConfigurationError: they differ, so that the build key would be wrong; the error names the differences.
        """
        definition = self._definition
        if definition.identity != cell.identity:
            raise ConfigurationError(f"the packages are of {definition.identity}, not of {cell.identity}")
        if definition.signer != self._signer:
            raise ConfigurationError(
                f"the packages of {cell.identity} are for modules signed by {definition.signer or 'no key'}, "
                f"and this builder signs them with {self._signer or 'no key'}",
                resolution="Run `upgrader images pack` with the --module-certificate of the builder, or without it.",
            )
        own = self._define_again(definition)
        differences = [
            name
            for name in BuildDefinition.__struct_fields__
            if _compared_fact(own, name) != _compared_fact(definition, name)
        ]
        if differences:
            differing = sorted(set(own.inputs) ^ set(definition.inputs))
            raise ConfigurationError(
                f"the packages of {cell.identity} do not match this builder's recipe: {', '.join(differences)}",
                details="\n".join(f"{item.kind} {item.name} {item.version}: {item.sha256}" for item in differing),
                resolution=_AGAIN,
            )
        return own

    def _define_again(self, packed: BuildDefinition) -> BuildDefinition:
        """The definition that `define_image` creates if the archives have only the bundle's packages."""
        recipe = self.recipes.get(packed.identity.recipe)
        if recipe is None:
            raise ConfigurationError(f"this builder has no recipe {packed.identity.recipe}", resolution=_AGAIN)
        try:
            return define_image(
                recipe,
                driver=packed.identity.driver,
                kernel=packed.kernel,
                discovery=ArchiveDiscovery(packages=(*packed.source, *packed.user_space, *packed.services)),
                toolchain=packed.toolchain,
                builder=self._builder,
                modules=packed.modules,
                signer=packed.signer,
            )
        except ArchiveError as error:
            raise ConfigurationError(
                f"the packages of {packed.identity} lack packages that this builder's recipe requires",
                details=str(error),
                resolution=_AGAIN,
            ) from error


def _compared_fact(definition: BuildDefinition, name: str) -> object:
    """A fact that must be equal on both machines. The version of buildah belongs to the machine that assembles the
    image.
    """
    if name != "inputs":
        return getattr(definition, name)
    return tuple(sorted(item for item in definition.inputs if (item.kind, item.name) != ("option", ASSEMBLER)))


_PACK = "Create it with `upgrader images pack`."
_AGAIN = "Run `upgrader images pack` of the same release as the builder image."
