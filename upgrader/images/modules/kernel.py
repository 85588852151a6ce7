"""What a kernel requires of its modules, read from its headers package. No kernel image is needed."""

import re
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.images.modules.values import Export, KernelInterface

MACHINES = {"X86_64": "EM_X86_64", "ARM64": "EM_AARCH64"}
"""Option of the kernel's configuration, and e_machine of its modules."""

_ARCH_WORD = {"X86_64": "", "ARM64": "aarch64"}
_RELEASE = re.compile(r'#define UTS_RELEASE "([^"]+)"')
_LINE = re.compile(r"0x([0-9a-f]{8})\t(\S+)\t(\S+)\t(EXPORT_\S+)\t?(\S*)")


def read_kernel(headers: Path) -> KernelInterface:
    """The kernel of an unpacked headers package (/usr/src/linux-headers-RELEASE).

    Raises:
        ConfigurationError: a file of the package is missing or invalid.
    """
    options = _enabled_options(_read_text(headers / ".config"))
    release = _RELEASE.search(_read_text(headers / "include/generated/utsrelease.h"))
    if release is None:
        raise ConfigurationError(f"{headers}: include/generated/utsrelease.h does not contain the kernel's release")
    arch = next((option for option in MACHINES if option in options), None)
    if arch is None or "MODVERSIONS" not in options or options & {"RANDSTRUCT", "RANDSTRUCT_FULL"}:
        raise ConfigurationError(
            f"modules cannot be checked for {release[1]}",
            details="Required: x86_64 or arm64, symbol versions (CONFIG_MODVERSIONS), no randomised structures.",
            resolution="Use a distribution's kernel such as Debian's.",
        )
    words = [release[1], *_vermagic_flags(options), _ARCH_WORD[arch]]
    vermagic = "".join(f"{word} " for word in words if word)
    exports = _read_exports(headers / "Module.symvers")
    return KernelInterface(release=release[1], machine=MACHINES[arch], vermagic=vermagic, exports=exports)


def _vermagic_flags(options: set[str]) -> list[str]:
    """The flags in the order of include/linux/vermagic.h."""
    preempt = "preempt" if "PREEMPT_BUILD" in options else "preempt_rt" if "PREEMPT_RT" in options else ""
    return [
        "SMP" if "SMP" in options else "",
        preempt,
        "mod_unload" if "MODULE_UNLOAD" in options else "",
        "modversions",
    ]


def _read_exports(file: Path) -> dict[str, Export]:
    exports: dict[str, Export] = {}
    for number, line in enumerate(_read_text(file).splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigurationError(f"{file}: line {number} is not an exported symbol", details=line[:200])
        crc, name, owner, kind, namespace = match.groups()
        exports[name] = Export(
            crc=int(crc, 16) or None, gpl=kind.startswith("EXPORT_SYMBOL_GPL"), namespace=namespace, owner=owner
        )
    return exports


def _enabled_options(config: str) -> set[str]:
    """Names of the built-in options, without CONFIG_."""
    return {line[7:-2] for line in config.splitlines() if line.startswith("CONFIG_") and line.endswith("=y")}


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise ConfigurationError(
            f"{file} cannot be read: is this an unpacked linux-headers package?", details=str(error)
        ) from error
