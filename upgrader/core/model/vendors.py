"""Facts on vendors and driver recipes, as far as rules use them; stack/vendors renders a vendor's operands. Pure.

A stack names a vendor, whose operands run on its nodes, and optionally a recipe, whose driver is loaded. They are
independent: the operands of one vendor may run on the driver of another.
"""

from collections.abc import Mapping

from msgspec import Struct

from upgrader.core.errors import ConfigurationError


class RecipeDriver(Struct, frozen=True, kw_only=True):
    """The driver of a recipe (a folder of driver-images/): its vendor, and the flavour of its modules."""

    vendor: str
    flavour: str = ""


class VendorFacts(Struct, frozen=True, kw_only=True):
    """Facts on a vendor, for any source of its operands.

    Args:
        name: as in `spec.driver.vendor` of a stack.
        recipes: recipes whose driver its operands run on, by name.
        recipe: recipe of a stack that names neither recipe nor flavour. Empty: any image of the vendor's own driver.
        present: labels of node and GPU feature discovery with value `true` on nodes that have its devices.
        partitions: whether its devices can be partitioned (`spec.devicePlugin.sharing.migStrategy`).
        mps: whether its devices can be shared by MPS.
        workload: whether a workload of the stack (`spec.validation.workloadImage`) can use its devices; otherwise
            upgrader-node has a program that uses them.
        notice: sentence in each forecast of a stack of this vendor. Empty: none.
    """

    name: str
    recipes: Mapping[str, RecipeDriver]
    recipe: str = ""
    present: tuple[str, ...] = ()
    partitions: bool = False
    mps: bool = False
    workload: bool = True
    notice: str = ""


NVIDIA = VendorFacts(
    name="nvidia",
    recipes={
        "nvidia-open": RecipeDriver(vendor="nvidia", flavour="open"),
        "nvidia": RecipeDriver(vendor="nvidia", flavour="proprietary"),
    },
    recipe="nvidia-open",
    present=("feature.node.kubernetes.io/pci-10de.present", "nvidia.com/gpu.present"),
    partitions=True,
    mps=True,
)


class DriverChoice(Struct, frozen=True, kw_only=True):
    """The images of a version that a node may run: `recipe` and `flavour` are empty if any is allowed."""

    vendor: str  # of the driver, as in its DriverImage
    recipe: str = ""
    flavour: str = ""


def choose_driver(facts: VendorFacts, recipe: str = "", flavour: str = "") -> DriverChoice:
    """The driver of a stack.

    Raises:
        ConfigurationError: vendor, recipe and flavour conflict.
    """
    if recipe and recipe not in facts.recipes:
        raise ConfigurationError(
            f"spec.driver: vendor {facts.name} does not support recipe {recipe}; it supports "
            f"{' or '.join(facts.recipes)}"
        )
    if flavour and not recipe:
        wanted = RecipeDriver(vendor=facts.name, flavour=flavour)
        own = [name for name, made in facts.recipes.items() if made == wanted]
        if not own:
            raise ConfigurationError(
                f"spec.driver: vendor {facts.name} has no driver of flavour {flavour}: name a recipe"
            )
        recipe = own[0]
    recipe = recipe or facts.recipe
    if not recipe:
        return DriverChoice(vendor=facts.name)
    made = facts.recipes[recipe]
    if flavour not in {"", made.flavour}:
        raise ConfigurationError(
            f"spec.driver: recipe {recipe} builds {_show_flavour(made.flavour)}, but flavour {flavour} is specified"
        )
    return DriverChoice(vendor=made.vendor, recipe=recipe, flavour=made.flavour)


def _show_flavour(name: str) -> str:
    return f"flavour {name}" if name else "no flavours"
