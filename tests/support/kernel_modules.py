"""Kernel modules of few bytes, made by hand: ELF files with the sections that the kernel's loader looks at."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RELEASE = "6.1.0-50-amd64"
FLAGS = "SMP preempt mod_unload modversions "
LAYOUT = 0xBCE1A965
GLOBAL, WEAK = 1, 2
X86_64, AARCH64 = 62, 183
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ABSOLUTE = 0xFFF1


@dataclass
class Sample:
    """What a module is to say. `imports` are CRCs by symbol, None for one without; `exports` as in Module.symvers:
    name, CRC (None for none), whether for GPL modules only, namespace. `longer` are versions in the newer sections."""

    name: str = "sample"
    release: str = RELEASE
    flags: str = FLAGS
    version: str = "1.0"
    license: str = "GPL"
    depends: Sequence[str] = ()
    import_ns: Sequence[str] = ()
    layout: int | None = LAYOUT
    imports: Mapping[str, int | None] = field(default_factory=dict)
    weak: Sequence[str] = ()
    exports: Sequence[tuple[str, int | None, bool, str]] = ()
    longer: Mapping[str, int] = field(default_factory=dict)
    machine: int = X86_64
    absolute: bool = False
    """CRCs as absolute symbols, as before Linux 5.19."""

    def write(self, folder: Path) -> Path:
        """As NAME.ko in a folder."""
        path = folder / f"{self.name}.ko"
        path.write_bytes(self.encoded())
        return path

    def encoded(self) -> bytes:
        """The ELF file."""
        sections = {
            ".modinfo": (_PROGBITS, self._info(), 0),
            "__versions": (_PROGBITS, self._versions(), 0),
            "__version_ext_crcs": (_PROGBITS, b"".join(struct.pack("<I", one) for one in self.longer.values()), 0),
            "__version_ext_names": (_PROGBITS, b"".join(one.encode() + b"\0" for one in self.longer), 0),
            "__ksymtab": (_PROGBITS, bytes(12), 0),
            "__ksymtab_gpl": (_PROGBITS, bytes(12), 0),
            "__kcrctab": (_PROGBITS, b"".join(struct.pack("<I", crc or 0) for _n, crc, _g, _s in self.exports), 0),
            "__ksymtab_strings": (_PROGBITS, b"".join(one[3].encode() + b"\0" for one in self.exports), 0),
        }
        symbols, names = self._symbols({name: at for at, name in enumerate(sections, start=1)})
        sections[".symtab"] = (_SYMTAB, symbols, len(sections) + 2)
        sections[".strtab"] = (_STRTAB, names, 0)
        return _file(sections, self.machine)

    def _info(self) -> bytes:
        said = [("name", self.name.replace("-", "_")), ("vermagic", f"{self.release} {self.flags}")]
        said += [("version", self.version), ("license", self.license), ("depends", ",".join(self.depends))]
        said += [("import_ns", one) for one in self.import_ns]
        return b"".join(f"{key}={value}".encode() + b"\0" for key, value in said)

    def _versions(self) -> bytes:
        known = {} if self.layout is None else {"module_layout": self.layout}
        known |= {name: crc for name, crc in self.imports.items() if crc is not None}
        return b"".join(struct.pack("<Q56s", crc, name.encode()) for name, crc in known.items())

    def _symbols(self, places: Mapping[str, int]) -> tuple[bytes, bytes]:
        table: list[tuple[str, int, int, int]] = [("", 0, 0, 0), ("_GLOBAL_OFFSET_TABLE_", GLOBAL, 0, 0)]
        table += [(one, GLOBAL, 0, 0) for one in [*self.imports, *self.longer]]
        table += [(one, WEAK, 0, 0) for one in self.weak]
        spaces = 0
        for at, (name, crc, gpl, namespace) in enumerate(self.exports):
            table.append((f"__ksymtab_{name}", 0, places["__ksymtab_gpl" if gpl else "__ksymtab"], 0))
            table.append((f"__kstrtabns_{name}", 0, places["__ksymtab_strings"], spaces))
            spaces += len(namespace) + 1
            if crc is not None:
                place = (_ABSOLUTE, crc) if self.absolute else (places["__kcrctab"], 4 * at)
                table.append((f"__crc_{name}", 0, *place))
        names, packed = b"", b""
        for name, binding, section, value in table:
            packed += struct.pack("<IBBHQQ", len(names), binding << 4, 0, section, value, 0)
            names += name.encode() + b"\0"
        return packed, names


def _file(sections: Mapping[str, tuple[int, bytes, int]], machine: int) -> bytes:
    labels = b"\0" + b"".join(name.encode() + b"\0" for name in [*sections, ".shstrtab"])
    body, headers = b"", [bytes(64)]
    for name, (kind, data, link) in {**sections, ".shstrtab": (_STRTAB, labels, 0)}.items():
        label = labels.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(struct.pack("<IIQQQQIIQQ", label, kind, 0, 0, 64 + len(body), len(data), link, 0, 8, 0))
        body += data
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    count = len(headers)
    head = ident + struct.pack("<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1)
    return head + body + b"".join(headers)


def headers(folder: Path, exports: Sequence[tuple[str, int, str, str, str]] = (), release: str = RELEASE) -> Path:
    """A headers package's folder; `exports` are lines of Module.symvers: name, CRC, owner, kind, namespace."""
    tree = folder / f"linux-headers-{release}"
    (tree / "include/generated").mkdir(parents=True)
    options = ["X86_64", "SMP", "PREEMPT_BUILD", "PREEMPT_DYNAMIC", "MODULE_UNLOAD", "MODVERSIONS", "RANDSTRUCT_NONE"]
    (tree / ".config").write_text("".join(f"CONFIG_{one}=y\n" for one in options) + "# CONFIG_PREEMPT is not set\n")
    (tree / "include/generated/utsrelease.h").write_text(f'#define UTS_RELEASE "{release}"\n')
    lines = [("module_layout", LAYOUT, "vmlinux", "EXPORT_SYMBOL", ""), *exports]
    said = "".join(f"0x{crc:08x}\t{name}\t{owner}\t{kind}\t{space}\n" for name, crc, owner, kind, space in lines)
    (tree / "Module.symvers").write_text(said)
    return tree
