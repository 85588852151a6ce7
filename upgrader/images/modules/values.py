"""Modules and kernels as values with the fields that the kernel's loader reads.

Source: kernel/module/main.c and version.c of Linux 6.1 and 6.12.
"""

from collections.abc import Mapping

from msgspec import Struct

LAYOUT = "module_layout"
"""Represents the layout of `struct module` and others: the first CRC that the loader compares."""

SHOWN = 10
"""The most names that a message lists."""


class Export(Struct, frozen=True, kw_only=True):
    """A symbol that a kernel or a module exports.

    `crc` is None if the exporter has none: the loader then accepts any. `gpl`: only for modules with a licence that is
    compatible with the GPL. `namespace` is empty, or must be in the importer's `import_ns`. `owner` is vmlinux, the
    path of an in-tree module without .ko, or the name of a sibling.
    """

    crc: int | None
    gpl: bool
    namespace: str = ""
    owner: str


class SignatureFacts(Struct, frozen=True, kw_only=True):
    """A signature at a module's end: `content` is the number of signed bytes, `pkcs7` the DER of the CMS message."""

    content: int
    pkcs7: bytes


class ModuleFile(Struct, frozen=True, kw_only=True):
    """One .ko file. Names have underscores, as the kernel shows them in /proc/modules.

    `versions` are the CRCs that the module was built against, by symbol, including `module_layout`; empty if it was
    built without CONFIG_MODVERSIONS. `undefined` are all symbols that it does not define, `weak` those of them that may
    be missing. `parameters` are the names of its parameters. `machine` is e_machine as elf.h names it.
    """

    file: str
    name: str
    machine: str
    vermagic: str
    version: str
    srcversion: str
    license: str
    depends: tuple[str, ...]
    import_ns: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    versions: Mapping[str, int]
    undefined: frozenset[str]
    weak: frozenset[str]
    exports: Mapping[str, Export]
    signature: SignatureFacts | None


class KernelInterface(Struct, frozen=True, kw_only=True):
    """What a kernel requires of a module: `vermagic` is its own string, `exports` its Module.symvers by symbol."""

    release: str
    machine: str
    vermagic: str
    exports: Mapping[str, Export]


def underscored_name(name: str) -> str:
    """A module's name as the kernel shows it: `nvidia_uvm` for `nvidia-uvm`."""
    return name.replace("-", "_")
