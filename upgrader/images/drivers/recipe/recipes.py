"""The recipes and the matrix of a checkout: driver-images/."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Input, digits
from upgrader.core.driver_build.driver_matrix import Matrix
from upgrader.core.driver_build.driver_recipes import Recipe
from upgrader.core.errors import ConfigurationError
from upgrader.images import store
from upgrader.images.product import checkout

FILE = "recipe.toml"
MATRIX = "matrix.toml"

_Decoded = TypeVar("_Decoded")


class RecipeFolder(Struct, frozen=True, kw_only=True):
    """A recipe with its folder: `recipe` is what recipe.toml says."""

    name: str
    folder: Path
    recipe: Recipe

    @property
    def input(self) -> Input:
        """As a part of a build key: all files of the folder."""
        facts = [part.hex() for part in store.contents(self.folder)]
        return Input(kind="recipe", name=self.name, version="", sha256=digits(facts, 64))


def recipes_root() -> Path:
    """driver-images/ of this checkout.

    Raises:
        ConfigurationError: this is no checkout.
    """
    return checkout() / "driver-images"


def read_recipe(folder: Path) -> RecipeFolder:
    """The recipe in a folder.

    Raises:
        ConfigurationError: there is none, or it cannot be used; says where.
    """
    recipe = _decoded(folder / FILE, Recipe)
    missing = [one.file for one in recipe.patches if not (folder / one.file).is_file()]
    if missing:
        raise ConfigurationError(f"{folder / FILE} names patches that are not there: {', '.join(missing)}")
    return RecipeFolder(name=folder.name, folder=folder, recipe=recipe)


def read_recipes(root: Path) -> Mapping[str, RecipeFolder]:
    """All recipes of a folder, by name."""
    folders = sorted(path.parent for path in root.glob(f"*/{FILE}"))
    return {folder.name: read_recipe(folder) for folder in folders}


def read_matrix(root: Path) -> Matrix:
    """The matrix of a folder.

    Raises:
        ConfigurationError: there is none, or it cannot be used; says where.
    """
    return _decoded(root / MATRIX, Matrix)


def _decoded(path: Path, kind: type[_Decoded]) -> _Decoded:
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), kind)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", details=str(error.strerror)) from error
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"{path} cannot be used", details=str(error)) from error
