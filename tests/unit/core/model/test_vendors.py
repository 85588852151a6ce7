import tomllib

import pytest

from tests.support.repository import ROOT
from upgrader.core.errors import ConfigurationError
from upgrader.core.model.vendors import NVIDIA, DriverChoice, RecipeDriver, choose_driver
from upgrader.stack.vendors import find_vendor

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
    vendor, recipe, flavour = asked
    assert choose_driver(find_vendor(vendor).facts, recipe, flavour) == chosen


REFUSED = {
    ("nvidia", "sim", ""): "vendor nvidia does not support recipe sim; it supports nvidia-open or nvidia",
    ("sim", "", "open"): "vendor sim has no driver of flavour open: name a recipe",
    (
        "nvidia",
        "nvidia-open",
        "proprietary",
    ): "recipe nvidia-open builds flavour open, but flavour proprietary is specified",
    ("sim", "sim", "open"): "recipe sim builds no flavours, but flavour open is specified",
}


@pytest.mark.parametrize(("asked", "shown"), REFUSED.items())
def test_what_does_not_go_together_is_said(asked, shown):
    with pytest.raises(ConfigurationError, match=shown):
        choose_driver(find_vendor(asked[0]).facts, *asked[1:])


def test_recipes_are_those_of_the_folders():
    folders = {}
    for file in (ROOT / "driver-images").glob("nvidia*/recipe.toml"):
        said = tomllib.loads(file.read_text())
        folders[file.parent.name] = RecipeDriver(vendor=said["vendor"], flavour=said["flavour"])
    assert folders == NVIDIA.recipes
