"""The recipes and the matrix of a checkout: driver-images/."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from upgrader.core.driver_build.driver_builds import Input, hash_facts
from upgrader.core.driver_build.driver_matrix import Matrix
from upgrader.core.driver_build.driver_recipes import Recipe
from upgrader.core.errors import ConfigurationError
from upgrader.images import store
from upgrader.images.product import checkout_root

FILE = "recipe.toml"
MATRIX = "matrix.toml"

_Decoded = TypeVar("_Decoded")


class RecipeFolder(Struct, frozen=True, kw_only=True):
    """A recipe and its folder. `recipe` is the contents of recipe.toml."""

    name: str
    folder: Path
    recipe: Recipe

    @property
    def build_input(self) -> Input:
        """The recipe as an input of a build key: all files of the folder."""
        facts = [part.hex() for part in store.folder_contents(self.folder)]
        return Input(kind="recipe", name=self.name, version="", sha256=hash_facts(facts, 64))


def recipes_root() -> Path:
    """The path of driver-images/ in this checkout.

    Raises:
        ConfigurationError: this is not a checkout.
    """
    return checkout_root() / "driver-images"


def read_recipe(folder: Path) -> RecipeFolder:
    """The recipe in a folder.

    Raises:
        ConfigurationError: the file is missing or invalid; the error names the place.
    """
    recipe = _read_toml(folder / FILE, Recipe)
    missing = [patch.file for patch in recipe.patches if not (folder / patch.file).is_file()]
    if missing:
        raise ConfigurationError(f"{folder / FILE} names patches that do not exist: {', '.join(missing)}")
    return RecipeFolder(name=folder.name, folder=folder, recipe=recipe)


def read_recipes(root: Path) -> Mapping[str, RecipeFolder]:
    """All recipes in a folder, by name."""
    folders = sorted(path.parent for path in root.glob(f"*/{FILE}"))
    return {folder.name: read_recipe(folder) for folder in folders}


def read_matrix(root: Path) -> Matrix:
    """The matrix of a folder.

    Raises:
        ConfigurationError: the file is missing or invalid; the error names the place.
    """
    return _read_toml(root / MATRIX, Matrix)


def _read_toml(path: Path, kind: type[_Decoded]) -> _Decoded:
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), kind)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", details=str(error.strerror)) from error
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"{path} is invalid", details=str(error)) from error
