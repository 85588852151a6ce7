"""A definition with all of its packages as one OCI layout: what a builder needs that no archive is reachable from."""

from collections.abc import Mapping
from pathlib import Path

from upgrader.core.driver_build.driver_matrix import Cell
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.carrying import pack, unpack
from upgrader.images.debian.errors import ArchiveError
from upgrader.images.debian.store import PackageStore
from upgrader.images.debian.values import Discovery
from upgrader.images.drivers.builder.assembly import ASSEMBLER, assembler_input, programs_input
from upgrader.images.drivers.recipe.definition import Definition, decode, define, encode
from upgrader.images.drivers.recipe.recipes import RecipeFolder
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
    """The one cell of a bundle, for a Round. Nothing that the bundle says of itself is taken as it stands.

    Args:
        definition: of the bundle.
        recipes: that are here.
        root: driver-images/.
        signer: fingerprint of the certificate that modules are signed with here; empty where they are not signed.
    """

    def __init__(
        self, definition: Definition, recipes: Mapping[str, RecipeFolder], root: Path, *, signer: str = ""
    ) -> None:
        self._definition = definition
        self.recipes = recipes
        self._signer = signer
        self._builder = (programs_input(root), assembler_input())

    @property
    def cell(self) -> Cell:
        """What the bundle is for."""
        return Cell(identity=self._definition.identity)

    def definition(self, cell: Cell) -> Definition:
        """The definition as this builder makes it of the bundle's packages, if the bundle says the same.

        Raises:
            ConfigurationError: with what differs: its build key would tell a lie.
        """
        said = self._definition
        if said.identity != cell.identity:
            raise ConfigurationError(f"the packages are of {said.identity}, not of {cell.identity}")
        if said.signer != self._signer:
            raise ConfigurationError(
                f"the packages of {cell.identity} are for modules signed by {said.signer or 'nobody'}, "
                f"and this builder signs them as {self._signer or 'nobody'}",
                resolution="Run `upgrader images pack` with the --module-certificate of the builder, or with none.",
            )
        own = self._defined(said)
        odd = [name for name in Definition.__struct_fields__ if _fact(own, name) != _fact(said, name)]
        if odd:
            differing = sorted(set(own.inputs) ^ set(said.inputs))
            raise ConfigurationError(
                f"the packages of {cell.identity} are not what this builder's recipe asks for: {', '.join(odd)}",
                details="\n".join(f"{one.kind} {one.name} {one.version}: {one.sha256}" for one in differing),
                resolution=_AGAIN,
            )
        return own

    def _defined(self, said: Definition) -> Definition:
        """What `define` makes where the archives have nothing but the bundle's packages."""
        recipe = self.recipes.get(said.identity.recipe)
        if recipe is None:
            raise ConfigurationError(f"this builder has no recipe {said.identity.recipe}", resolution=_AGAIN)
        try:
            return define(
                recipe,
                driver=said.identity.driver,
                kernel=said.kernel,
                discovery=Discovery(packages=(*said.source, *said.user_space)),
                toolchain=said.toolchain,
                builder=self._builder,
                modules=said.modules,
                signer=said.signer,
            )
        except ArchiveError as error:
            raise ConfigurationError(
                f"the packages of {said.identity} are not all that this builder's recipe asks for",
                details=str(error),
                resolution=_AGAIN,
            ) from error


def _fact(definition: Definition, name: str) -> object:
    """What has to be the same here and where the bundle was packed; buildah is of the machine that assembles."""
    if name != "inputs":
        return getattr(definition, name)
    return tuple(sorted(one for one in definition.inputs if (one.kind, one.name) != ("option", ASSEMBLER)))


_PACK = "Make it by `upgrader images pack`."
_AGAIN = "Run `upgrader images pack` of the release that the builder image is of."
