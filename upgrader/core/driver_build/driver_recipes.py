"""Recipes of drivers: their source, their modules, and their packages. Checked when they are created."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from upgrader.core.node_protocol.driver_services import DriverService

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_FOLDER = re.compile(r"(?:etc|usr/share)(?:/[A-Za-z0-9][A-Za-z0-9._+-]*)+")
_SERVICES_OF = "nvidia"
KNOWN_PLACEHOLDERS = frozenset({"kernel", "modules", "version"})


class RecipeModule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel module by the name of its file without .ko.

    `needs`: modules of the recipe that are loaded first. `optional`: GPUs work without it, so that a node on which the
    kernel rejects it still gets the driver, and reports the rejection.
    """

    name: str
    needs: tuple[str, ...] = ()
    optional: bool = False

    def __post_init__(self) -> None:
        _check_match(_NAME, "the name of a module", self.name)


class RecipeService(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service beside the driver.

    `package`: the Debian package with it, in a version that fits the driver. `program`: the name of its executable
    file. `data`: folders of the package, such as usr/share/nvidia/nvswitch, that the program reads.
    """

    name: DriverService
    package: str
    program: str
    data: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_match(_PACKAGE, "the name of a Debian package", self.package)
        _check_match(_FILE, "the name of a program", self.program)
        for folder in self.data:
            _check_match(_FOLDER, "a folder of a package", folder)


class Patch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A patch (-p1) in the recipe's folder, for kernels and drivers that fully match the regular expressions."""

    file: str
    kernels: str
    drivers: str = ".*"

    def __post_init__(self) -> None:
        _check_match(_FILE, "a file of the recipe's folder", self.file)
        _check_expressions(self.kernels, self.drivers)

    def is_applicable(self, kernel: str, driver: str) -> bool:
        """Whether it applies to this kernel and driver."""
        return bool(re.fullmatch(self.kernels, kernel) and re.fullmatch(self.drivers, driver))


class UnsupportedKernels(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kernels that fully match a regular expression, for which the driver is not built; `reason` is a sentence."""

    kernels: str
    reason: str

    def __post_init__(self) -> None:
        _check_expressions(self.kernels)


class Recipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver's recipe, the contents of recipe.toml.

    Args:
        vendor: as in a GpuStack.
        flavour: of the modules, if one driver has several.
        package: Debian package whose /usr/src contains the source with a dkms.conf. Either this or `version`.
        version: of the driver whose source is in the recipe's own folder; several if it is built in several.
        modules: all of them, in the order in which they are loaded.
        make: arguments of make, run in the source's folder /build; `{kernel}`, `{modules}`, `{version}` are filled in.
        devices: that the driver simulates. The image's programs are then those of the recipe's own folder, and they
            do not load a module.
        user_space: Debian packages of the driver's own version: libraries and tools.
        firmware: Debian packages of the driver's own version.
        services: programs that run beside the driver while it is loaded.
        patches: applied to the source before the compilation.
        unsupported: kernels that are not tried. Exclusions of dkms.conf need not be repeated.
        memory_mib: the most that one process of the build may use; a build counts with this in the memory budget.
        minutes: the longest that the compilation may take.

    Raises:
        ValueError: it contradicts itself, or a name is invalid.
    """

    vendor: str
    flavour: str = ""
    package: str = ""
    version: str | tuple[str, ...] = ""
    modules: tuple[RecipeModule, ...]
    make: tuple[str, ...]
    devices: int = 0
    user_space: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    services: tuple[RecipeService, ...] = ()
    patches: tuple[Patch, ...] = ()
    unsupported: tuple[UnsupportedKernels, ...] = ()
    memory_mib: int = 2048
    minutes: int = 30

    def __post_init__(self) -> None:
        for name in (self.vendor, *([self.flavour] if self.flavour else [])):
            _check_match(_NAME, "a name", name)
        for package in self.packages:
            _check_match(_PACKAGE, "the name of a Debian package", package)
        if bool(self.package) is bool(self.version):
            raise ValueError("a recipe has either a `package` with the source, or a `version` of the source beside it")
        if not self.modules:
            raise ValueError("a recipe has at least one module")
        _check_order(self.modules)
        _check_services(self.vendor, self.services)
        for word in self.make:
            _check_placeholders(word)
        if self.memory_mib < 1 or self.minutes < 1 or self.devices < 0:
            raise ValueError("`memory_mib` and `minutes` are at least 1, and `devices` are not less than none")

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions of the driver whose source is in the recipe's own folder; none if a package contains it."""
        return self.version if isinstance(self.version, tuple) else (self.version,) * bool(self.version)

    @property
    def packages(self) -> tuple[str, ...]:
        """Every Debian package that it names."""
        own = (*([self.package] if self.package else []), *self.user_space, *self.firmware)
        return (*own, *(service.package for service in self.services))

    def load_order(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """The wanted modules and those that they need, in load order; all of them if none is named.

        Raises:
            ValueError: a module that the recipe does not have.
        """
        known = {module.name: module for module in self.modules}
        unknown = sorted(set(wanted) - known.keys())
        if unknown:
            raise ValueError(f"no module {', '.join(unknown)}; this recipe has {', '.join(known)}")
        taken = set(wanted or known)
        for module in reversed(self.modules):
            if module.name in taken:
                taken.update(module.needs)
        return tuple(module.name for module in self.modules if module.name in taken)

    def is_optional(self, name: str) -> bool:
        """Whether the driver is loaded without a module if the kernel rejects it."""
        return any(module.optional for module in self.modules if module.name == name)

    def make_arguments(self, *, kernel: str, modules: Sequence[str], version: str) -> tuple[str, ...]:
        """The arguments of make, with the placeholders filled in."""
        values: Mapping[str, str] = {"kernel": kernel, "modules": " ".join(modules), "version": version}
        return tuple(_PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in self.make)

    def explain_refusal(self, kernel: str) -> str:
        """Why the driver is not built for this kernel; empty if the recipe does not exclude it."""
        return next((rule.reason for rule in self.unsupported if re.fullmatch(rule.kernels, kernel)), "")


def _check_order(modules: Sequence[RecipeModule]) -> None:
    before: dict[str, RecipeModule] = {}
    for module in modules:
        if module.name in before:
            raise ValueError(f"module {module.name} is listed twice")
        if missing := sorted(set(module.needs) - before.keys()):
            raise ValueError(f"module {module.name} needs {', '.join(missing)}, which must precede it")
        optional = [name for name in module.needs if before[name].optional]
        if optional and not module.optional:
            raise ValueError(f"module {module.name} is required and needs {', '.join(optional)}, which is optional")
        before[module.name] = module


def _check_services(vendor: str, services: Sequence[RecipeService]) -> None:
    names = [service.name for service in services]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"service {twice[0]} is listed twice")
    if names and vendor != _SERVICES_OF:
        raise ValueError(f"service {names[0]} belongs to the driver of {_SERVICES_OF}, not of {vendor}")


def _check_placeholders(word: str) -> None:
    unknown = sorted(set(_PLACEHOLDER.findall(word)) - KNOWN_PLACEHOLDERS)
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in sorted(KNOWN_PLACEHOLDERS))
        raise ValueError(f"`make` may use {known}, not {{{unknown[0]}}}")


def _check_match(pattern: re.Pattern[str], what: str, text: str) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(f"{text!r} is not {what}: allowed is {pattern.pattern}")


def _check_expressions(*expressions: str) -> None:
    for expression in expressions:
        try:
            re.compile(expression)
        except re.error as error:
            raise ValueError(f"{expression!r} is no regular expression: {error}") from error
