"""Vendors and driver recipes, as far as rules use them; stack/vendors renders a vendor's operands.

A stack names a vendor, whose operands run on its nodes, and optionally a recipe, whose driver is loaded. They are
independent: the simulated vendor's operands run on a simulated driver, and on the real modules of any recipe.
"""

from collections.abc import Mapping

from msgspec import Struct

from upgrader.core.errors import ConfigurationError

NVIDIA, SIM = "nvidia", "sim"


class Recipe(Struct, frozen=True, kw_only=True):
    """The driver of a recipe (a folder of driver-images/): its vendor, and the flavour of its modules."""

    vendor: str
    flavour: str = ""


class VendorFacts(Struct, frozen=True, kw_only=True):
    """Facts on a vendor, for any source of its operands.

    `recipe` is that of a stack that names neither recipe nor flavour; empty: any image of the vendor's own driver.
    `present`: labels of node and GPU feature discovery with value `true` on nodes that have its devices.
    """

    recipe: str
    recipes: tuple[str, ...]
    present: tuple[str, ...] = ()


RECIPES: Mapping[str, Recipe] = {
    "nvidia": Recipe(vendor=NVIDIA, flavour="proprietary"),
    "nvidia-open": Recipe(vendor=NVIDIA, flavour="open"),
    "sim": Recipe(vendor=SIM),
}
"""Recipes that a stack may name; a test compares them with the folders."""

VENDORS: Mapping[str, VendorFacts] = {
    NVIDIA: VendorFacts(
        recipe="nvidia-open",
        recipes=("nvidia-open", "nvidia"),
        present=("feature.node.kubernetes.io/pci-10de.present", "nvidia.com/gpu.present"),
    ),
    SIM: VendorFacts(recipe="", recipes=("sim", "nvidia-open", "nvidia")),
}


class DriverChoice(Struct, frozen=True, kw_only=True):
    """The images of a version that a node may run: `recipe` and `flavour` are empty if any is allowed."""

    vendor: str  # of the driver, as in its DriverImage
    recipe: str = ""
    flavour: str = ""


def choose(vendor: str, recipe: str = "", flavour: str = "") -> DriverChoice:
    """The driver of a stack.

    Raises:
        ConfigurationError: vendor, recipe and flavour conflict.
    """
    facts = VENDORS[vendor]
    if recipe and recipe not in facts.recipes:
        raise ConfigurationError(
            f"spec.driver: vendor {vendor} does not run on recipe {recipe}, but on {' or '.join(facts.recipes)}"
        )
    if flavour and not recipe:
        own = [name for name in facts.recipes if RECIPES[name] == Recipe(vendor=vendor, flavour=flavour)]
        if not own:
            raise ConfigurationError(f"spec.driver: vendor {vendor} has no driver of flavour {flavour}: name a recipe")
        recipe = own[0]
    recipe = recipe or facts.recipe
    if not recipe:
        return DriverChoice(vendor=vendor)
    made = RECIPES[recipe]
    if flavour not in {"", made.flavour}:
        raise ConfigurationError(
            f"spec.driver: recipe {recipe} makes {_show_flavour(made.flavour)}, and flavour {flavour} is asked for"
        )
    return DriverChoice(vendor=made.vendor, recipe=recipe, flavour=made.flavour)


def _show_flavour(name: str) -> str:
    return f"flavour {name}" if name else "no flavours"
