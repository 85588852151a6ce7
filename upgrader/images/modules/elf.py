"""Sections of a relocatable ELF file as views of its bytes. Nothing is copied, and every size is checked first.

pyelftools reads the headers. Its symbols are Python objects, which are too slow for the 100,000 symbols of nvidia.ko.
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
"""Larger numbers have another encoding (SHN_LORESERVE), which no linker uses for a module."""

NAME_AT_MOST = 512
"""KSYM_NAME_LEN of the kernel."""

UNDEFINED = 0
ABSOLUTE = 0xFFF1
WEAK = 2
_NO_DATA = "SHT_NOBITS"
_SYMBOL = struct.Struct("<IBBHQQ")


class ModuleUnreadableError(ConfigurationError):
    """A file that is damaged, or not a module of a 64-bit little-endian kernel."""


class Section(NamedTuple):
    """A section: its contents, and the index of the section that it refers to (the strings of a symbol table)."""

    name: str
    data: memoryview
    link: int


class Symbol(NamedTuple):
    """A symbol. `name` is bytes, since most names are never shown."""

    name: bytes
    binding: int
    section: int
    value: int


class Elf(NamedTuple):
    """A relocatable file."""

    machine: str
    sections: tuple[Section, ...]

    def section_data(self, name: str) -> memoryview:
        """The contents of the first section with that name, as the kernel takes it; empty if there is none."""
        return next((section.data for section in self.sections if section.name == name), memoryview(b""))

    def linked_symbols(self) -> Iterator[Symbol]:
        """Symbols that a loader resolves or exports: undefined symbols, and those whose name begins with two
        underscores.

        Raises:
            ModuleUnreadableError: the table is damaged.
        """
        table = next((section for section in self.sections if section.name == ".symtab"), None)
        if table is None:
            raise ModuleUnreadableError("it has no symbol table")
        names = self._string_table(table.link)
        whole = len(table.data) - len(table.data) % _SYMBOL.size
        for at, info, _other, section, value, _size in _SYMBOL.iter_unpack(table.data[:whole]):
            if (section == UNDEFINED and at) or names[at : at + 2] == b"__":
                yield Symbol(text_at(names, at), info >> 4, section, value)

    def _string_table(self, index: int) -> bytes:
        if not 0 < index < len(self.sections):
            raise ModuleUnreadableError("its symbol table has no names")
        return bytes(self.sections[index].data)


def read_elf(data: bytes) -> Elf:
    """The sections of a module's bytes.

    Raises:
        ModuleUnreadableError: the bytes are not a relocatable 64-bit little-endian ELF file, or are truncated.
    """
    stream = io.BytesIO(data)  # shares the bytes until the first write
    try:
        file = ELFFile(stream)
        return _read_sections(file, stream, memoryview(data))
    except (ELFError, UnicodeDecodeError) as error:
        raise ModuleUnreadableError("it is not an ELF file, or is damaged", details=str(error)) from error


def _read_sections(file: ELFFile, stream: io.BytesIO, data: memoryview) -> Elf:
    header = file.header
    if (file.elfclass, file.little_endian, header["e_type"]) != (64, True, "ET_REL"):
        raise ModuleUnreadableError("it is not a 64-bit little-endian relocatable file")
    start, count, size = header["e_shoff"], header["e_shnum"], header["e_shentsize"]
    if not 0 < count <= SECTIONS_AT_MOST or size != file.structs.Elf_Shdr.sizeof() or start + count * size > len(data):
        raise ModuleUnreadableError("its section headers are outside of the file: it is damaged or truncated")
    headers = [struct_parse(file.structs.Elf_Shdr, stream, start + at * size) for at in range(count)]
    parts = [_section_data(section_header, data) for section_header in headers]
    if header["e_shstrndx"] >= count:
        raise ModuleUnreadableError("its sections have no names: it is damaged")
    names = bytes(parts[header["e_shstrndx"]])
    sections = [
        Section(text_at(names, section_header["sh_name"]).decode("ascii"), part, section_header["sh_link"])
        for section_header, part in zip(headers, parts, strict=True)
    ]
    return Elf(str(header["e_machine"]), tuple(sections))


def _section_data(header: dict[str, int | str], data: memoryview) -> memoryview:
    if header["sh_type"] in {_NO_DATA, "SHT_NULL"}:
        return memoryview(b"")
    start, size = int(header["sh_offset"]), int(header["sh_size"])
    if start + size > len(data):
        raise ModuleUnreadableError("a section is outside of the file: it is damaged or truncated")
    return data[start : start + size]


def text_at(data: bytes, start: int) -> bytes:
    """A name that ends with a zero byte.

    Raises:
        ModuleUnreadableError: no name begins there, or it does not end.
    """
    end = data.find(b"\0", start, start + NAME_AT_MOST)
    if start > len(data) or end < 0:
        raise ModuleUnreadableError("a name in it does not end: it is damaged")
    return data[start:end]
