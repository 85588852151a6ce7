"""One .ko file as a value, read as the kernel's loader reads it."""

import lzma
import struct
from pathlib import Path

from upgrader.images.modules.elf import (
    ABSOLUTE,
    NAME_AT_MOST,
    UNDEFINED,
    WEAK,
    Elf,
    ModuleUnreadableError,
    Symbol,
    read_elf,
    text_at,
)
from upgrader.images.modules.trailer import find_signature
from upgrader.images.modules.values import Export, Module, underscored

BYTES_AT_MOST = 1 << 29
"""The largest module that is known, nvidia.ko with all that a debugger wants, has 0.2 GB."""

INFO_AT_MOST = 1 << 20
PLACED_BY_LOADER = frozenset({"_GLOBAL_OFFSET_TABLE_"})
"""Undefined, and never looked up: ignore_undef_symbol() of the kernel."""

_VERSION = struct.Struct("<Q56s")
_CRC = struct.Struct("<I")


def read_module(path: Path) -> Module:
    """Read a module, plain or compressed by xz.

    Raises:
        ModuleUnreadableError: it is not there, is no module, or is damaged; says which file.
    """
    try:
        return _module(path.name, module_bytes(path))
    except ModuleUnreadableError as error:
        raise ModuleUnreadableError(f"{path}: {error.brief}", details=error.details) from error


def module_bytes(path: Path) -> bytes:
    """A module's bytes as the kernel sees them.

    Raises:
        ModuleUnreadableError: it cannot be read, or is larger than any module.
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= BYTES_AT_MOST else None
        if data is not None and path.name.endswith(".xz"):
            unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=BYTES_AT_MOST)
            data = unpacker.decompress(data, max_length=BYTES_AT_MOST)
            if not unpacker.eof:
                raise ModuleUnreadableError("it is cut off, or larger than any module")
    except (OSError, lzma.LZMAError) as error:
        raise ModuleUnreadableError("it cannot be read", details=str(error)) from error
    if data is None:
        raise ModuleUnreadableError(f"it has more than {BYTES_AT_MOST} bytes, as no module has")
    return data


def _module(file: str, data: bytes) -> Module:
    signature = find_signature(data)
    elf = read_elf(data)
    info = _info(elf)
    undefined, weak, exports = _symbols(elf)
    return Module(
        file=file,
        name=underscored(_one(info, "name")),
        machine=elf.machine,
        vermagic=_one(info, "vermagic"),
        version=_one(info, "version"),
        srcversion=_one(info, "srcversion"),
        license=_one(info, "license"),
        depends=tuple(underscored(one) for one in _one(info, "depends").split(",") if one),
        import_ns=tuple(info.get("import_ns", ())),
        versions=_versions(elf),
        undefined=undefined,
        weak=weak,
        exports={
            name: Export(crc=crc, gpl=gpl, namespace=namespace, owner=underscored(_one(info, "name")))
            for name, (crc, gpl, namespace) in exports.items()
        },
        signature=signature,
    )


def _info(elf: Elf) -> dict[str, list[str]]:
    data = bytes(elf.section(".modinfo")[:INFO_AT_MOST])
    found: dict[str, list[str]] = {}
    for one in data.split(b"\0"):
        key, equals, value = one.decode(errors="backslashreplace").partition("=")
        if equals:
            found.setdefault(key, []).append(value)
    if not (found.get("name") and found.get("vermagic")):
        raise ModuleUnreadableError("it is no kernel module: it does not say its name and vermagic")
    return found


def _one(info: dict[str, list[str]], key: str) -> str:
    """The first value, as the kernel's get_modinfo() takes it."""
    return info.get(key, [""])[0]


def _versions(elf: Elf) -> dict[str, int]:
    """CRCs by symbol: names in 56 bytes, and (since Linux 6.14) of any length in two sections beside each other."""
    table = elf.section("__versions")
    if len(table) % _VERSION.size:
        raise ModuleUnreadableError("its symbol versions are cut off")
    crcs, names = elf.section("__version_ext_crcs"), bytes(elf.section("__version_ext_names"))
    longer = names.split(b"\0")[:-1]
    if len(crcs) != _CRC.size * len(longer) or (names and not names.endswith(b"\0")):
        raise ModuleUnreadableError("its symbol versions are cut off")
    short = {_plain(name.partition(b"\0")[0]): crc for crc, name in _VERSION.iter_unpack(table)}
    return short | {_plain(name): crc for name, (crc,) in zip(longer, _CRC.iter_unpack(crcs), strict=True)}


def _symbols(elf: Elf) -> tuple[frozenset[str], frozenset[str], dict[str, tuple[int | None, bool, str]]]:
    """What is undefined, what of it is weak, and what is exported: CRC, only for GPL, namespace."""
    undefined: set[str] = set()
    weak: set[str] = set()
    offered: dict[str, bool] = {}
    crcs: dict[str, int] = {}
    namespaces: dict[str, str] = {}
    for symbol in elf.symbols():
        if symbol.section == UNDEFINED:
            (weak if symbol.binding == WEAK else undefined).add(_plain(symbol.name))
        elif symbol.name.startswith(b"__ksymtab_"):
            offered[_plain(symbol.name[10:])] = _section_name(elf, symbol).startswith("__ksymtab_gpl")
        elif symbol.name.startswith(b"__crc_"):
            crcs[_plain(symbol.name[6:])] = _crc(elf, symbol)
        elif symbol.name.startswith(b"__kstrtabns_"):
            namespaces[_plain(symbol.name[12:])] = _plain(text_at(_pointed(elf, symbol, NAME_AT_MOST), 0))
    exports = {name: (crcs.get(name), gpl, namespaces.get(name, "")) for name, gpl in offered.items()}
    return frozenset((undefined | weak) - PLACED_BY_LOADER), frozenset(weak), exports


def _crc(elf: Elf, symbol: Symbol) -> int:
    """The CRC is the symbol's value (absolute), or stands where the symbol points (since Linux 5.19)."""
    if symbol.section == ABSOLUTE:
        return symbol.value & 0xFFFFFFFF
    data = _pointed(elf, symbol, _CRC.size)
    if len(data) < _CRC.size:
        raise ModuleUnreadableError("an exported symbol's version lies outside of the file")
    return int.from_bytes(data, "little")


def _pointed(elf: Elf, symbol: Symbol, size: int) -> bytes:
    """At most `size` bytes from where a symbol points."""
    if symbol.section >= len(elf.sections):
        raise ModuleUnreadableError("a symbol is in a section that is not there")
    return bytes(elf.sections[symbol.section].data[symbol.value : symbol.value + size])


def _section_name(elf: Elf, symbol: Symbol) -> str:
    return elf.sections[symbol.section].name if symbol.section < len(elf.sections) else ""


def _plain(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
