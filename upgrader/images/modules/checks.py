"""Whether a kernel would take a set of modules: its own rules, before anything is booted. Pure.

Source: kernel/module/main.c (simplify_symbols, resolve_symbol, inherit_taint) and version.c (check_version, same_magic)
of Linux 6.1 and 6.12. Where the kernel only warns, for want of a CRC in the module, this refuses: doubt holds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.images.modules.values import LAYOUT, SHOWN, Export, Kernel, Module, underscored

GPL_COMPATIBLE = frozenset(
    {
        "GPL",
        "GPL v2",
        "GPL and additional rights",
        "Dual BSD/GPL",
        "Dual MIT/GPL",
        "Dual MPL/GPL",
    }
)
"""license_is_gpl_compatible() of the kernel."""


def check_contents(modules: Sequence[Module], expected: Iterable[str]) -> Verdict:
    """Every expected module is there, and none twice. Names with dashes or underscores."""
    names = [module.name for module in modules]
    missing = sorted({underscored(one) for one in expected} - set(names))
    twice = sorted({one for one in names if names.count(one) > 1})
    wrong = [f"{', '.join(missing)} missing"] * bool(missing) + [f"{', '.join(twice)} twice"] * bool(twice)
    return _verdict(CheckName.CONTENTS, wrong, f"{len(names)} modules: {', '.join(sorted(names))}")


def check_vermagic(modules: Sequence[Module], kernel: Kernel) -> Verdict:
    """Machine and version string. Where a module has CRCs, the kernel's release in that string does not count."""
    wrong = []
    for module in modules:
        if module.machine != kernel.machine:
            wrong.append(f"{module.file} is for {module.machine}, the kernel for {kernel.machine}")
        elif _compared(module.vermagic, module) != _compared(kernel.vermagic, module):
            wrong.append(f"{module.file} has {module.vermagic!r}, the kernel {kernel.vermagic!r}")
    return _verdict(CheckName.VERMAGIC, wrong, f"as {kernel.vermagic.strip()!r} asks")


def _compared(vermagic: str, module: Module) -> str:
    return vermagic.partition(" ")[2] if module.versions else vermagic


class _Import(NamedTuple):
    """One symbol that a module asks for: what is offered under that name, and whether the asker counts as free."""

    module: Module
    symbol: str
    export: Export | None
    free: bool

    @property
    def crc(self) -> int | None:
        """What the offered one has; None where there is none, or nothing is offered."""
        return self.export.crc if self.export else None

    @property
    def namespace(self) -> str:
        """Which the asker has to import; empty where it need not."""
        return self.export.namespace if self.export else ""


def check_symbols(modules: Sequence[Module], kernel: Kernel) -> Verdict:
    """Every imported symbol is offered by the kernel or by a sibling, with the same CRC, to such a module."""
    siblings = {name: export for module in modules for name, export in module.exports.items()}
    free = _free(modules, siblings)
    wrong: list[str] = []
    named: list[str] = []
    count = 0
    for module in modules:
        # the kernel compares the layout first, then what is undefined
        asked = [LAYOUT, *sorted(module.undefined - {LAYOUT})]
        imports = [
            _Import(module, one, kernel.exports.get(one) or siblings.get(one), module.name in free) for one in asked
        ]
        count += len(imports)
        for told, refused in _RULES:
            symbols = [one.symbol for one in imports if refused(one)]
            if symbols:
                of = f"{len(symbols)} of {len(imports)} imported symbols"
                wrong.append(f"{module.file}: {of} {told} {kernel.release}: {listed(symbols)}")
                named += symbols
    passed = f"{count} symbols imported by {len(modules)} modules are as {kernel.release} and the siblings offer them"
    return _verdict(CheckName.CRC, wrong, passed, named)


def _free(modules: Sequence[Module], siblings: Mapping[str, Export]) -> set[str]:
    """Names of the modules that may use symbols for the GPL only: who imports from a proprietary one may not either."""
    free = {module.name for module in modules if module.license in GPL_COMPATIBLE}
    while tainted := {
        module.name
        for module in modules
        if module.name in free and any(one in siblings and siblings[one].owner not in free for one in module.undefined)
    }:
        free -= tainted
    return free


_RULES: tuple[tuple[str, Callable[[_Import], bool]], ...] = (
    ("have another CRC in", lambda one: None not in {one.crc, _known(one)} and one.crc != _known(one)),
    ("are offered neither by a sibling nor by", lambda one: not one.export and one.symbol not in one.module.weak),
    ("have a CRC, which the module does not know, in", lambda one: one.crc is not None and _known(one) is None),
    ("are only for GPL modules in", lambda one: one.export is not None and one.export.gpl and not one.free),
    (
        "are of a namespace that the module does not import in",
        lambda one: one.namespace not in {"", *one.module.import_ns},
    ),
)


def _known(one: _Import) -> int | None:
    return one.module.versions.get(one.symbol)


def check_versions(driver: str, modules: Sequence[Module], others: Mapping[str, str]) -> Verdict:
    """Modules, libraries and firmware are of one version; `others` are versions by what carries them."""
    carried = {module.file: module.version for module in modules} | dict(others)
    wrong = [f"{name} is of version {found or 'none'}" for name, found in sorted(carried.items()) if found != driver]
    return _verdict(CheckName.VERSIONS, [f"{listed(wrong)}, the driver of {driver}"] * bool(wrong), f"all {driver}")


def listed(names: Sequence[str]) -> str:
    """The first names, and how many there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _verdict(check: CheckName, wrong: Sequence[str], passed: str, symbols: Sequence[str] = ()) -> Verdict:
    named = tuple(dict.fromkeys(symbols))[:SHOWN]
    return Verdict(check=check, passed=not wrong, reason="; ".join(wrong) or passed, symbols=named)
