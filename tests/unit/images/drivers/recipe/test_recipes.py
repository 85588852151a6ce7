"""The recipes and the matrix of this checkout, and what is said of those that cannot be used."""

import pytest

from tests.support.repository import ROOT
from upgrader.core.errors import ConfigurationError
from upgrader.images.drivers.recipe.recipes import read_matrix, read_recipe, read_recipes

GOOD = 'vendor = "v"\nversion = "1"\nmake = []\nmodules = [{name = "m"}]\n'


def test_the_recipes_of_this_checkout_can_be_used():
    found = read_recipes(ROOT / "driver-images")
    assert {name: (one.recipe.vendor, one.recipe.flavour) for name, one in found.items()} == {
        "fakebridge": ("sim", ""),
        "nvidia": ("nvidia", "proprietary"),
        "nvidia-open": ("nvidia", "open"),
        "sim": ("sim", ""),
    }
    modules = {name: one.recipe.load_order([]) for name, one in found.items()}
    assert modules["nvidia"] == modules["nvidia-open"]
    assert modules["nvidia"] == ("nvidia", "nvidia-modeset", "nvidia-drm", "nvidia-uvm", "nvidia-peermem")
    services = {name: [service.name for service in one.recipe.services] for name, one in found.items()}
    assert services == {"fakebridge": [], "nvidia": ["persistenced"], "nvidia-open": ["persistenced"], "sim": []}


def test_the_matrix_of_this_checkout_names_recipes_and_suites_that_there_are():
    matrix = read_matrix(ROOT / "driver-images")
    recipes = read_recipes(ROOT / "driver-images")
    assert {one.recipe for one in matrix.cells} <= set(recipes)
    assert {suite.partition("-")[0] for suite in matrix.suites} == {one.os for one in matrix.distributions}


def test_no_archive_is_named_in_any_recipe():
    for path in (ROOT / "driver-images").rglob("*"):
        if path.is_file():
            assert "://" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vendor = ", "Invalid value"),
        ('vendor = "v"', "missing required field"),
        (GOOD + "colour = 1", "unknown field `colour`"),
        (
            GOOD + 'patches = [{file = "a.patch", kernels = ".*"}]',
            "patches that do not exist: a.patch",
        ),
    ],
)
def test_a_recipe_that_cannot_be_used_names_its_file_and_what_is_wrong(tmp_path, text, words):
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_recipe(tmp_path)
    assert words in str(caught.value)
    assert str(tmp_path / "recipe.toml") in str(caught.value)


def test_a_missing_matrix_is_told(tmp_path):
    with pytest.raises(ConfigurationError, match=r"matrix.toml cannot be read"):
        read_matrix(tmp_path)
