"""What a kernel asks of its modules, read from its headers package: no kernel image is needed."""

import re
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.images.modules.values import Export, Kernel

MACHINES = {"X86_64": "EM_X86_64", "ARM64": "EM_AARCH64"}
"""Option of the kernel's configuration, e_machine of its modules."""

_ARCH_WORD = {"X86_64": "", "ARM64": "aarch64"}
_RELEASE = re.compile(r'#define UTS_RELEASE "([^"]+)"')
_LINE = re.compile(r"0x([0-9a-f]{8})\t(\S+)\t(\S+)\t(EXPORT_\S+)\t?(\S*)")


def read_kernel(headers: Path) -> Kernel:
    """The kernel of an unpacked headers package (/usr/src/linux-headers-RELEASE).

    Raises:
        ConfigurationError: a file of it is missing or not readable as what it is.
    """
    options = _options(_text(headers / ".config"))
    found = _RELEASE.search(_text(headers / "include/generated/utsrelease.h"))
    if found is None:
        raise ConfigurationError(f"{headers}: include/generated/utsrelease.h does not say which kernel this is")
    arch = next((one for one in MACHINES if one in options), None)
    if arch is None or "MODVERSIONS" not in options or options & {"RANDSTRUCT", "RANDSTRUCT_FULL"}:
        raise ConfigurationError(
            f"modules cannot be checked for {found[1]}",
            details="Needed: x86_64 or arm64, symbol versions (CONFIG_MODVERSIONS), no randomised structures.",
            resolution="Use a distribution's kernel of Debian's kind.",
        )
    words = [found[1], *_flags(options), _ARCH_WORD[arch]]
    vermagic = "".join(f"{word} " for word in words if word)
    exports = _exports(headers / "Module.symvers")
    return Kernel(release=found[1], machine=MACHINES[arch], vermagic=vermagic, exports=exports)


def _flags(options: set[str]) -> list[str]:
    """In the order of include/linux/vermagic.h."""
    preempt = "preempt" if "PREEMPT_BUILD" in options else "preempt_rt" if "PREEMPT_RT" in options else ""
    return [
        "SMP" if "SMP" in options else "",
        preempt,
        "mod_unload" if "MODULE_UNLOAD" in options else "",
        "modversions",
    ]


def _exports(file: Path) -> dict[str, Export]:
    exports: dict[str, Export] = {}
    for number, line in enumerate(_text(file).splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if found is None:
            raise ConfigurationError(f"{file}: line {number} is no exported symbol", details=line[:200])
        crc, name, owner, kind, namespace = found.groups()
        exports[name] = Export(
            crc=int(crc, 16) or None, gpl=kind.startswith("EXPORT_SYMBOL_GPL"), namespace=namespace, owner=owner
        )
    return exports


def _options(config: str) -> set[str]:
    """Names of what is built in, without CONFIG_."""
    return {line[7:-2] for line in config.splitlines() if line.startswith("CONFIG_") and line.endswith("=y")}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise ConfigurationError(
            f"{file} cannot be read: is this an unpacked linux-headers package?", details=str(error)
        ) from error
