"""The operands of vendors as data: the program of each container, its settings, and its probe. Pure.

NVIDIA's are here. Another distribution adds a vendor by an entry point of the group `gpu_upgrader.vendors`: its name is
the vendor's, its object a `Vendor`. A vendor that cannot be loaded is an error of the stacks that name it, and of no
other. Rules that do not render manifests are in core/model/vendors.py.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from msgspec import Struct

from upgrader.core.errors import ConfigurationError, describe_error
from upgrader.stack.vendors import nvidia
from upgrader.stack.vendors.programs import Mount, OperandProgram, Vendor

__all__ = ["ENTRY_POINTS", "Mount", "OperandProgram", "Vendor", "broken_vendors", "find_vendor", "load_vendors"]

ENTRY_POINTS = "gpu_upgrader.vendors"


class InstalledVendors(Struct, frozen=True, kw_only=True):
    """The vendors that can be used, and why others cannot, by name.

    A name is in both only if a distribution tries to replace a vendor of this package.
    """

    usable: Mapping[str, Vendor]
    broken: Mapping[str, ConfigurationError]


@cache
def read_entry_points() -> InstalledVendors:
    """Load all vendors, once. A vendor that cannot be loaded has no effect on the others."""
    usable = {nvidia.VENDOR.facts.name: nvidia.VENDOR}
    broken = {}
    points: dict[str, list[EntryPoint]] = defaultdict(list)
    for point in entry_points(group=ENTRY_POINTS):
        points[point.name].append(point)
    for name, alike in points.items():
        try:
            usable[name] = _load_vendor(name, alike)
        except ConfigurationError as error:
            broken[name] = error
    return InstalledVendors(usable=usable, broken=broken)


def load_vendors() -> Mapping[str, Vendor]:
    """The vendors that can be used, by name."""
    return read_entry_points().usable


def broken_vendors() -> Mapping[str, ConfigurationError]:
    """Why installed vendors cannot be used, by name."""
    return read_entry_points().broken


def find_vendor(name: str) -> Vendor:
    """A vendor.

    Raises:
        ConfigurationError: there is none of this name, or it cannot be loaded.
    """
    installed = read_entry_points()
    if name in installed.usable:
        return installed.usable[name]
    if name in installed.broken:
        broken = installed.broken[name]
        # A new error for each caller: an error that is raised again keeps the frames of all callers in its traceback.
        raise ConfigurationError(broken.brief, details=broken.details, resolution=broken.resolution)
    raise ConfigurationError(
        f"spec.driver: there is no vendor {name}, but {' and '.join(sorted(installed.usable))}",
        resolution=f"Install the distribution that has its entry point ({ENTRY_POINTS}) beside upgrader.",
    )


def _load_vendor(name: str, points: Sequence[EntryPoint]) -> Vendor:
    """The vendor of the entry points of a name.

    Raises:
        ConfigurationError: several distributions have the name, or its object cannot be loaded or is not this vendor.
    """
    origins = " and ".join(sorted(map(_show_origin, points)))
    if name == nvidia.VENDOR.facts.name:
        raise ConfigurationError(
            f"spec.driver: vendor {name} of {origins} is not used: upgrader has a vendor of this name",
            resolution="Uninstall it, or use another name.",
        )
    if len(points) > 1:
        raise ConfigurationError(
            f"spec.driver: {len(points)} distributions have a vendor {name}: {origins}",
            resolution="Uninstall all but one where the controller is installed, and restart it.",
        )
    vendor, fault = _load_object(name, points[0])
    if vendor is not None:
        return vendor
    raise ConfigurationError(
        f"spec.driver: vendor {name} of {origins} ({points[0].value}) cannot be loaded",
        details=fault,
        resolution=f"Repair or uninstall {origins} where the controller is installed, and restart the controller.",
    )


def _load_object(name: str, point: EntryPoint) -> tuple[Vendor | None, str]:
    """The vendor, or None and the reason."""
    try:
        loaded = point.load()
        if isinstance(loaded, Vendor):
            same = loaded.facts.name == name
            return (loaded, "") if same else (None, f"its object is the vendor {loaded.facts.name}")
    except Exception as error:  # noqa: BLE001 - the module of another distribution may raise any error
        return None, describe_error(error)
    return None, f"its object is a {type(loaded).__name__}, not a Vendor"


def _show_origin(point: EntryPoint) -> str:
    """The distribution of an entry point; metadata without a name gives its object instead."""
    named = point.dist is not None and point.dist.name
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None and named else point.value
