"""Checks whether a kernel would accept a set of modules, by the kernel's own rules and before a boot. Pure.

Source: kernel/module/main.c (simplify_symbols, resolve_symbol, inherit_taint) and version.c (check_version, same_magic)
of Linux 6.1 and 6.12. The kernel only warns if a module has no CRC for a symbol; this check fails.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.images.modules.values import LAYOUT, SHOWN, Export, KernelInterface, ModuleFile, underscored_name

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


def check_contents(modules: Sequence[ModuleFile], expected: Iterable[str]) -> Verdict:
    """Check that every expected module exists, none twice, and that each follows those that it depends on.

    `expected` is in load order. Names may have dashes or underscores.
    """
    names = [module.name for module in modules]
    order = [underscored_name(name) for name in expected]
    missing = sorted(set(order) - set(names))
    twice = sorted({name for name in names if names.count(name) > 1})
    wrong = [f"{', '.join(missing)} missing"] * bool(missing) + [f"{', '.join(twice)} twice"] * bool(twice)
    depends = {module.name: module.depends for module in modules}
    wrong += [
        f"{name} is loaded before {later}, which it depends on"
        for index, name in enumerate(order)
        for later in depends.get(name, ())
        if later in order[index:] or (later in names and later not in order)
    ]
    return _make_verdict(CheckName.CONTENTS, wrong, f"{len(names)} modules: {', '.join(sorted(names))}")


def check_vermagic(modules: Sequence[ModuleFile], kernel: KernelInterface) -> Verdict:
    """Check machine and version string. For modules with CRCs, the kernel's release in that string does not count."""
    wrong = []
    for module in modules:
        if module.machine != kernel.machine:
            wrong.append(f"{module.file} is for {module.machine}, the kernel for {kernel.machine}")
        elif _compared_vermagic(module.vermagic, module) != _compared_vermagic(kernel.vermagic, module):
            wrong.append(f"{module.file} has {module.vermagic!r}, the kernel {kernel.vermagic!r}")
    return _make_verdict(CheckName.VERMAGIC, wrong, f"as {kernel.vermagic.strip()!r} requires")


def _compared_vermagic(vermagic: str, module: ModuleFile) -> str:
    return vermagic.partition(" ")[2] if module.versions else vermagic


class _Import(NamedTuple):
    """A symbol that a module imports, the export of that name, and whether the importer may use GPL-only symbols."""

    module: ModuleFile
    symbol: str
    export: Export | None
    free: bool

    @property
    def crc(self) -> int | None:
        """The CRC of the export; None if it has none, or there is no export."""
        return self.export.crc if self.export else None

    @property
    def namespace(self) -> str:
        """The namespace that the importer must import; empty if none is needed."""
        return self.export.namespace if self.export else ""


def check_symbols(modules: Sequence[ModuleFile], kernel: KernelInterface) -> Verdict:
    """Check that the kernel or a sibling exports every imported symbol with the same CRC, and to such a module."""
    siblings = {name: export for module in modules for name, export in module.exports.items()}
    free = _gpl_modules(modules, siblings)
    wrong: list[str] = []
    named: list[str] = []
    count = 0
    for module in modules:
        # the kernel compares the layout first, then the undefined symbols
        asked = [LAYOUT, *sorted(module.undefined - {LAYOUT})]
        imports = [
            _Import(module, symbol, kernel.exports.get(symbol) or siblings.get(symbol), module.name in free)
            for symbol in asked
        ]
        count += len(imports)
        for problem, is_refused in _RULES:
            symbols = [needed.symbol for needed in imports if is_refused(needed)]
            if symbols:
                of = f"{len(symbols)} of {len(imports)} imported symbols"
                wrong.append(f"{module.file}: {of} {problem} {kernel.release}: {shorten_list(symbols)}")
                named += symbols
    passed = f"{count} symbols imported by {len(modules)} modules are as {kernel.release} and the siblings export them"
    return _make_verdict(CheckName.CRC, wrong, passed, named)


def _gpl_modules(modules: Sequence[ModuleFile], siblings: Mapping[str, Export]) -> set[str]:
    """Names of the modules that may use GPL-only symbols. A module that imports from a proprietary module may not."""
    free = {module.name for module in modules if module.license in GPL_COMPATIBLE}
    while tainted := {
        module.name
        for module in modules
        if module.name in free
        and any(symbol in siblings and siblings[symbol].owner not in free for symbol in module.undefined)
    }:
        free -= tainted
    return free


_RULES: tuple[tuple[str, Callable[[_Import], bool]], ...] = (
    (
        "have another CRC in",
        lambda needed: None not in {needed.crc, _known_crc(needed)} and needed.crc != _known_crc(needed),
    ),
    (
        "are exported neither by a sibling nor by",
        lambda needed: not needed.export and needed.symbol not in needed.module.weak,
    ),
    (
        "have a CRC, which the module lacks, in",
        lambda needed: needed.crc is not None and _known_crc(needed) is None,
    ),
    ("are only for GPL modules in", lambda needed: needed.export is not None and needed.export.gpl and not needed.free),
    (
        "are of a namespace that the module does not import in",
        lambda needed: needed.namespace not in {"", *needed.module.import_ns},
    ),
)


def _known_crc(needed: _Import) -> int | None:
    return needed.module.versions.get(needed.symbol)


def check_versions(
    driver: str, modules: Sequence[ModuleFile], others: Mapping[str, str], faults: Sequence[str] = ()
) -> Verdict:
    """Check that modules, libraries and firmware have one version. `others` are versions by the file that has them.

    `faults` are those of further files, to be added.
    """
    carried = {module.file: module.version for module in modules} | dict(others)
    wrong = [
        f"{name} has version {version or 'none'}" for name, version in sorted(carried.items()) if version != driver
    ]
    wrong += faults
    return _make_verdict(
        CheckName.VERSIONS, [f"{shorten_list(wrong)}, the driver has {driver}"] * bool(wrong), f"all {driver}"
    )


def shorten_list(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def _make_verdict(check: CheckName, wrong: Sequence[str], passed: str, symbols: Sequence[str] = ()) -> Verdict:
    named = tuple(dict.fromkeys(symbols))[:SHOWN]
    return Verdict(check=check, passed=not wrong, reason="; ".join(wrong) or passed, symbols=named)
