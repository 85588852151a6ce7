"""Reads one .ko file as a value, as the kernel's loader reads it."""

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
from upgrader.images.modules.values import Export, ModuleFile, underscored_name

BYTES_AT_MOST = 1 << 29
"""The largest known module, nvidia.ko with debugging information, has 0.2 GB."""

INFO_AT_MOST = 1 << 20
PLACED_BY_LOADER = frozenset({"_GLOBAL_OFFSET_TABLE_"})
"""Undefined symbols that are never looked up: ignore_undef_symbol() of the kernel."""

_VERSION = struct.Struct("<Q56s")
_CRC = struct.Struct("<I")


def read_module(path: Path) -> ModuleFile:
    """Read a module, plain or compressed by xz.

    Raises:
        ModuleUnreadableError: the file is missing, not a module, or damaged; the error names it.
    """
    try:
        return _parse_module(path.name, module_bytes(path))
    except ModuleUnreadableError as error:
        raise ModuleUnreadableError(f"{path}: {error.brief}", details=error.details) from error


def module_bytes(path: Path) -> bytes:
    """A module's bytes as the kernel reads them.

    Raises:
        ModuleUnreadableError: the file cannot be read, or is larger than any module.
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= BYTES_AT_MOST else None
        if data is not None and path.name.endswith(".xz"):
            unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=BYTES_AT_MOST)
            data = unpacker.decompress(data, max_length=BYTES_AT_MOST)
            if not unpacker.eof:
                raise ModuleUnreadableError("it is truncated, or larger than any module")
    except (OSError, lzma.LZMAError) as error:
        raise ModuleUnreadableError("it cannot be read", details=str(error)) from error
    if data is None:
        raise ModuleUnreadableError(f"it has more than {BYTES_AT_MOST} bytes, more than any module")
    return data


def _parse_module(file: str, data: bytes) -> ModuleFile:
    signature = find_signature(data)
    elf = read_elf(data)
    info = _read_modinfo(elf)
    undefined, weak, exports = _read_symbols(elf)
    return ModuleFile(
        file=file,
        name=underscored_name(_first_value(info, "name")),
        machine=elf.machine,
        vermagic=_first_value(info, "vermagic"),
        version=_first_value(info, "version"),
        srcversion=_first_value(info, "srcversion"),
        license=_first_value(info, "license"),
        depends=tuple(underscored_name(name) for name in _first_value(info, "depends").split(",") if name),
        import_ns=tuple(info.get("import_ns", ())),
        parameters=tuple(sorted({value.partition(":")[0] for value in info.get("parmtype", ())})),
        versions=_read_versions(elf),
        undefined=undefined,
        weak=weak,
        exports={
            name: Export(crc=crc, gpl=gpl, namespace=namespace, owner=underscored_name(_first_value(info, "name")))
            for name, (crc, gpl, namespace) in exports.items()
        },
        signature=signature,
    )


def _read_modinfo(elf: Elf) -> dict[str, list[str]]:
    data = bytes(elf.section_data(".modinfo")[:INFO_AT_MOST])
    info: dict[str, list[str]] = {}
    for field in data.split(b"\0"):
        key, equals, value = field.decode(errors="backslashreplace").partition("=")
        if equals:
            info.setdefault(key, []).append(value)
    if not (info.get("name") and info.get("vermagic")):
        raise ModuleUnreadableError("it is not a kernel module: it does not contain its name and vermagic")
    return info


def _first_value(info: dict[str, list[str]], key: str) -> str:
    """The first value, as in the kernel's get_modinfo()."""
    return info.get(key, [""])[0]


def _read_versions(elf: Elf) -> dict[str, int]:
    """CRCs by symbol: names in 56 bytes, and (since Linux 6.14) names of any length in two parallel sections."""
    table = elf.section_data("__versions")
    if len(table) % _VERSION.size:
        raise ModuleUnreadableError("its symbol versions are truncated")
    crcs, names = elf.section_data("__version_ext_crcs"), bytes(elf.section_data("__version_ext_names"))
    longer = names.split(b"\0")[:-1]
    if len(crcs) != _CRC.size * len(longer) or (names and not names.endswith(b"\0")):
        raise ModuleUnreadableError("its symbol versions are truncated")
    short = {_decode_name(name.partition(b"\0")[0]): crc for crc, name in _VERSION.iter_unpack(table)}
    return short | {_decode_name(name): crc for name, (crc,) in zip(longer, _CRC.iter_unpack(crcs), strict=True)}


def _read_symbols(elf: Elf) -> tuple[frozenset[str], frozenset[str], dict[str, tuple[int | None, bool, str]]]:
    """The undefined symbols, the weak ones of them, and the exports: CRC, GPL-only, namespace."""
    undefined: set[str] = set()
    weak: set[str] = set()
    offered: dict[str, bool] = {}
    crcs: dict[str, int] = {}
    namespaces: dict[str, str] = {}
    for symbol in elf.linked_symbols():
        if symbol.section == UNDEFINED:
            (weak if symbol.binding == WEAK else undefined).add(_decode_name(symbol.name))
        elif symbol.name.startswith(b"__ksymtab_"):
            offered[_decode_name(symbol.name[10:])] = _section_name(elf, symbol).startswith("__ksymtab_gpl")
        elif symbol.name.startswith(b"__crc_"):
            crcs[_decode_name(symbol.name[6:])] = _symbol_crc(elf, symbol)
        elif symbol.name.startswith(b"__kstrtabns_"):
            namespaces[_decode_name(symbol.name[12:])] = _decode_name(
                text_at(_pointed_bytes(elf, symbol, NAME_AT_MOST), 0)
            )
    exports = {name: (crcs.get(name), gpl, namespaces.get(name, "")) for name, gpl in offered.items()}
    return frozenset((undefined | weak) - PLACED_BY_LOADER), frozenset(weak), exports


def _symbol_crc(elf: Elf, symbol: Symbol) -> int:
    """The CRC is the symbol's value (absolute), or the data that the symbol points to (since Linux 5.19)."""
    if symbol.section == ABSOLUTE:
        return symbol.value & 0xFFFFFFFF
    data = _pointed_bytes(elf, symbol, _CRC.size)
    if len(data) < _CRC.size:
        raise ModuleUnreadableError("an exported symbol's version is outside of the file")
    return int.from_bytes(data, "little")


def _pointed_bytes(elf: Elf, symbol: Symbol, size: int) -> bytes:
    """At most `size` bytes from the address of a symbol."""
    if symbol.section >= len(elf.sections):
        raise ModuleUnreadableError("a symbol is in a section that does not exist")
    return bytes(elf.sections[symbol.section].data[symbol.value : symbol.value + size])


def _section_name(elf: Elf, symbol: Symbol) -> str:
    return elf.sections[symbol.section].name if symbol.section < len(elf.sections) else ""


def _decode_name(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
