import tomllib

import pytest

from tests.support.repository import ROOT
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.vendors import RECIPES, VENDORS, DriverChoice, Recipe, choose

OPEN = DriverChoice(vendor="nvidia", recipe="nvidia-open", flavour="open")
CLOSED = DriverChoice(vendor="nvidia", recipe="nvidia", flavour="proprietary")

CHOSEN = {
    # What a stack asks for that names neither never changes: it is part of its revision.
    ("sim", "", ""): DriverChoice(vendor="sim"),
    ("nvidia", "", ""): OPEN,
    ("nvidia", "", "open"): OPEN,
    ("nvidia", "", "proprietary"): CLOSED,
    ("nvidia", "nvidia", ""): CLOSED,
    ("nvidia", "nvidia", "proprietary"): CLOSED,
    ("sim", "sim", ""): DriverChoice(vendor="sim", recipe="sim"),
    ("sim", "nvidia-open", ""): OPEN,
    ("sim", "nvidia", "proprietary"): CLOSED,
}


@pytest.mark.parametrize(("asked", "chosen"), CHOSEN.items())
def test_the_driver_is_chosen_apart_from_the_vendor(asked, chosen):
    assert choose(*asked) == chosen


REFUSED = {
    ("nvidia", "sim", ""): "vendor nvidia does not run on recipe sim, but on nvidia-open or nvidia",
    ("sim", "", "open"): "vendor sim has no driver of flavour open: name a recipe",
    ("nvidia", "nvidia-open", "proprietary"): "recipe nvidia-open makes flavour open, and flavour proprietary is asked",
    ("sim", "sim", "open"): "recipe sim makes no flavours, and flavour open is asked for",
}


@pytest.mark.parametrize(("asked", "shown"), REFUSED.items())
def test_what_does_not_go_together_is_said(asked, shown):
    with pytest.raises(ConfigurationError, match=shown):
        choose(*asked)


def test_recipes_are_those_of_the_folders():
    folders = {}
    for file in (ROOT / "driver-images").glob("nvidia*/recipe.toml"):
        said = tomllib.loads(file.read_text())
        folders[file.parent.name] = Recipe(vendor=said["vendor"], flavour=said["flavour"])
    assert folders | {"sim": Recipe(vendor="sim")} == RECIPES
    assert (ROOT / "driver-images" / "sim").is_dir()


def test_every_vendor_runs_on_recipes_that_there_are():
    for one in VENDORS.values():
        assert set(one.recipes) <= RECIPES.keys()
        assert one.recipe in {"", *one.recipes}
