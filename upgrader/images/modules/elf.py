"""Sections of a relocatable ELF file as views into its bytes: nothing is copied, and every size is checked first.

pyelftools reads the headers; its symbols are Python objects, too slow for the 100,000 of an nvidia.ko.
"""

import io
import struct
from collections.abc import Iterator
from typing import NamedTuple

from elftools.common.exceptions import ELFError
from elftools.common.utils import struct_parse
from elftools.elf.elffile import ELFFile

from upgrader.core.errors import ConfigurationError

SECTIONS_AT_MOST = 0xFEFF
"""More are counted in another way (SHN_LORESERVE), which no linker uses for a module."""

NAME_AT_MOST = 512
"""KSYM_NAME_LEN of the kernel."""

UNDEFINED = 0
ABSOLUTE = 0xFFF1
WEAK = 2
_NO_DATA = "SHT_NOBITS"
_SYMBOL = struct.Struct("<IBBHQQ")


class ModuleUnreadableError(ConfigurationError):
    """A file that is no module of a 64-bit little-endian kernel, or a damaged one."""


class Section(NamedTuple):
    """One section: its contents, and the index of the section that it refers to (a symbol table's strings)."""

    name: str
    data: memoryview
    link: int


class Symbol(NamedTuple):
    """One symbol; `name` is bytes, as most are never shown."""

    name: bytes
    binding: int
    section: int
    value: int


class Elf(NamedTuple):
    """A relocatable file."""

    machine: str
    sections: tuple[Section, ...]

    def section(self, name: str) -> memoryview:
        """The contents of the first section of that name, as the kernel takes it; empty where there is none."""
        return next((one.data for one in self.sections if one.name == name), memoryview(b""))

    def symbols(self) -> Iterator[Symbol]:
        """Symbols that a loader resolves or exports: undefined ones and those whose name begins with two underscores.

        Raises:
            ModuleUnreadableError: the table is damaged.
        """
        table = next((one for one in self.sections if one.name == ".symtab"), None)
        if table is None:
            raise ModuleUnreadableError("it has no symbol table")
        names = self._strings(table.link)
        whole = len(table.data) - len(table.data) % _SYMBOL.size
        for at, info, _other, section, value, _size in _SYMBOL.iter_unpack(table.data[:whole]):
            if (section == UNDEFINED and at) or names[at : at + 2] == b"__":
                yield Symbol(text_at(names, at), info >> 4, section, value)

    def _strings(self, index: int) -> bytes:
        if not 0 < index < len(self.sections):
            raise ModuleUnreadableError("its symbol table has no names")
        return bytes(self.sections[index].data)


def read_elf(data: bytes) -> Elf:
    """The sections of a module's bytes.

    Raises:
        ModuleUnreadableError: it is no relocatable 64-bit little-endian ELF file, or its headers point outside of it.
    """
    stream = io.BytesIO(data)  # shares the bytes until somebody writes
    try:
        file = ELFFile(stream)
        return _read(file, stream, memoryview(data))
    except (ELFError, UnicodeDecodeError) as error:
        raise ModuleUnreadableError("it is no ELF file, or a damaged one", details=str(error)) from error


def _read(file: ELFFile, stream: io.BytesIO, data: memoryview) -> Elf:
    header = file.header
    if (file.elfclass, file.little_endian, header["e_type"]) != (64, True, "ET_REL"):
        raise ModuleUnreadableError("it is no 64-bit little-endian relocatable file")
    start, count, size = header["e_shoff"], header["e_shnum"], header["e_shentsize"]
    if not 0 < count <= SECTIONS_AT_MOST or size != file.structs.Elf_Shdr.sizeof() or start + count * size > len(data):
        raise ModuleUnreadableError("its section headers are not in the file: it is damaged or cut off")
    headers = [struct_parse(file.structs.Elf_Shdr, stream, start + at * size) for at in range(count)]
    parts = [_part(one, data) for one in headers]
    if header["e_shstrndx"] >= count:
        raise ModuleUnreadableError("its sections have no names: it is damaged")
    names = bytes(parts[header["e_shstrndx"]])
    sections = [
        Section(text_at(names, one["sh_name"]).decode("ascii"), part, one["sh_link"])
        for one, part in zip(headers, parts, strict=True)
    ]
    return Elf(str(header["e_machine"]), tuple(sections))


def _part(header: dict[str, int | str], data: memoryview) -> memoryview:
    if header["sh_type"] in {_NO_DATA, "SHT_NULL"}:
        return memoryview(b"")
    start, size = int(header["sh_offset"]), int(header["sh_size"])
    if start + size > len(data):
        raise ModuleUnreadableError("a section lies outside of the file: it is damaged or cut off")
    return data[start : start + size]


def text_at(data: bytes, start: int) -> bytes:
    """A name that ends with a zero byte.

    Raises:
        ModuleUnreadableError: none begins there, or it does not end.
    """
    end = data.find(b"\0", start, start + NAME_AT_MOST)
    if start > len(data) or end < 0:
        raise ModuleUnreadableError("a name in it does not end: it is damaged")
    return data[start:end]
