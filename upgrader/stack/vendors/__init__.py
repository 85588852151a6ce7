"""The operands of vendors as data: the program of each container, its settings, and its probe. Pure.

NVIDIA's are here. Another distribution adds a vendor by an entry point of the group `gpu_upgrader.vendors`: its name is
the vendor's, its object a `Vendor`. Rules that do not render manifests are in core/model/vendors.py.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from upgrader.core.errors import ConfigurationError
from upgrader.stack.vendors import nvidia
from upgrader.stack.vendors.programs import Mount, Program, Vendor

__all__ = ["ENTRY_POINTS", "Mount", "Program", "Vendor", "find_vendor", "load_vendors"]

ENTRY_POINTS = "gpu_upgrader.vendors"


@cache
def load_vendors() -> Mapping[str, Vendor]:
    """All vendors by name, read once.

    Raises:
        ConfigurationError: an entry point cannot be imported, is not a vendor, or has another name than its vendor.
    """
    vendors = {nvidia.VENDOR.facts.name: nvidia.VENDOR}
    for point in entry_points(group=ENTRY_POINTS):
        origin = f"vendor {point.name} ({point.value})"
        try:
            vendor = point.load()
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(f"{origin} cannot be imported: {error}", resolution=_RESOLUTION) from error
        if not isinstance(vendor, Vendor) or vendor.facts.name != point.name or point.name in vendors:
            raise ConfigurationError(
                f"{origin} is not a Vendor of this name, or another distribution has one", resolution=_RESOLUTION
            )
        vendors[point.name] = vendor
    return vendors


def find_vendor(name: str) -> Vendor:
    """A vendor.

    Raises:
        ConfigurationError: there is none of this name.
    """
    vendors = load_vendors()
    if name not in vendors:
        raise ConfigurationError(
            f"spec.driver: there is no vendor {name}, but {' and '.join(sorted(vendors))}",
            resolution=f"Install the distribution that has its entry point ({ENTRY_POINTS}) beside upgrader.",
        )
    return vendors[name]


_RESOLUTION = "Repair or uninstall the distribution that has this entry point."
