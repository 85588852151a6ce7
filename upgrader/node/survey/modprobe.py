"""The node's configuration of modules: what is loaded at boot, what is blacklisted, and parameters of modules.

Formats: modprobe.d(5), modules-load.d(5), and the kernel's command line (kernel-command-line(7)).
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from upgrader.node.host.host import Host
from upgrader.node.host.text_files import read_optional

MODPROBE = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
LOADED_AT_BOOT = ("/etc/modules-load.d", "/run/modules-load.d", "/usr/lib/modules-load.d")
"""Folders of files with one module in each line; such a module is loaded although it is blacklisted."""
LISTS = ("/etc/modules", "/etc/initramfs-tools/modules")
_BLACKLISTS = ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist")
_NEVER = ("/bin/false", "/bin/true", "/usr/bin/false", "/usr/bin/true")
_MODULE_FILE = re.compile(r"\.ko(\.(gz|xz|zst))?$")


class ModprobeSettings(Struct, frozen=True, kw_only=True):
    """Settings of modprobe; `parameters` are lines `MODULE NAME=VALUE …` with the file that contains them."""

    blacklisted: frozenset[str] = frozenset()
    parameters: tuple[tuple[str, str], ...] = ()


def module_name(text: str) -> str:
    """The name of a module as in /proc/modules, from a name or the path of its file."""
    return _MODULE_FILE.sub("", text.rpartition("/")[2]).replace("-", "_")


def read_modprobe_settings(host: Host, prefix: str) -> ModprobeSettings:
    """The settings for modules whose name begins with `prefix`, and every blacklisted module.

    Raises:
        OSError: a file cannot be read.
    """
    blacklisted, parameters = set[str](), []
    for path, words in _configuration_lines(host, MODPROBE):
        match words:
            case ["blacklist", name, *_]:
                blacklisted.add(module_name(name))
            case ["install", name, program, *_] if program in _NEVER:
                blacklisted.add(module_name(name))
            case ["options", name, *values] if values and module_name(name).startswith(prefix):
                parameters.append((path, f"{module_name(name)} {' '.join(values)}"))
    for word in (host.proc / "cmdline").read_text(encoding="utf-8", errors="replace").split():
        name, equals, value = word.partition("=")
        if equals and name in _BLACKLISTS:
            blacklisted.update(module_name(part) for part in value.split(","))
        module, dot, parameter = module_name(name.partition(".")[0]), *name.partition(".")[1:]
        if equals and dot and module.startswith(prefix):
            parameters.append(("the kernel's command line", f"{module} {parameter}={value}"))
    return ModprobeSettings(blacklisted=frozenset(blacklisted), parameters=tuple(parameters))


def read_boot_modules(host: Host) -> dict[str, str]:
    """Modules that are loaded at each boot by their name, each with the file that lists it."""
    lists = ((path, read_optional(host.path(path)).splitlines()) for path in LISTS)
    lines = [(path, line.split()) for path, text in lists for line in text if not line.strip().startswith("#")]
    lines += _configuration_lines(host, LOADED_AT_BOOT)
    return {module_name(words[0]): path for path, words in lines if words}


def find_claiming_modules(modules: Path, aliases: Iterable[str]) -> frozenset[str]:
    """Modules that a kernel loads by itself for devices.

    Args:
        modules: /lib/modules/KERNEL; a kernel without `modules.alias` claims nothing.
        aliases: the aliases of the devices.
    """
    wanted = [alias for alias in aliases if alias]
    rows = (line.split() for line in read_optional(modules / "modules.alias").splitlines())
    claims = ((words[1], words[2]) for words in rows if len(words) == 3 and words[0] == "alias")
    return frozenset(
        module_name(name)
        for pattern, name in claims
        if pattern.startswith("pci:") and any(fnmatch.fnmatchcase(alias, pattern) for alias in wanted)
    )


def find_module_files(modules: Path, prefix: str) -> dict[str, str]:
    """Modules on the disk whose name begins with `prefix`: their paths below /lib/modules/KERNEL by name."""
    paths = (line.partition(":")[0] for line in read_optional(modules / "modules.dep").splitlines())
    return {module_name(path): path for path in paths if module_name(path).startswith(prefix)}


def _configuration_lines(host: Host, folders: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Words of all lines of the *.conf files in folders, with the path of each; without comments.

    A file hides files of the same name in later folders.
    """
    seen = set[str]()
    for folder in folders:
        place = host.path(folder)
        for file in sorted(place.glob("*.conf")) if place.is_dir() else ():
            if file.name in seen:
                continue
            seen.add(file.name)
            text = read_optional(host.path(f"{folder}/{file.name}")).replace("\\\n", " ")
            for line in text.splitlines():
                words = line.split()
                if words and not words[0].startswith("#"):
                    yield f"{folder}/{file.name}", words
