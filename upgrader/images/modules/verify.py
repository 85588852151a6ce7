"""All checks of a driver's modules that need no boot: one verdict per check."""

import re
from collections.abc import Sequence
from pathlib import Path

from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.images.modules import checks
from upgrader.images.modules.elf import ModuleUnreadableError
from upgrader.images.modules.kernel import read_kernel
from upgrader.images.modules.reading import read_module
from upgrader.images.modules.signing import check_signatures

_LIBRARY = re.compile(r"lib[\w.+-]+\.so\.(\d{3,}(?:\.\d+)+)")
_CHECKS = (CheckName.CONTENTS, CheckName.VERMAGIC, CheckName.CRC, CheckName.VERSIONS, CheckName.SIGNATURE)


def verify_modules(
    paths: Sequence[Path],
    *,
    headers: Path | None,
    driver: str,
    expected: Sequence[str],
    tree: Path | None = None,
    faults: Sequence[str] = (),
    certificate: Path | None = None,
) -> tuple[Verdict, ...]:
    """Check contents, vermagic, CRCs, versions and signatures of the modules of one image, in this order.

    Args:
        paths: the .ko files as they will be shipped.
        headers: an unpacked linux-headers package (/usr/src/linux-headers-RELEASE); without it, vermagic
            and CRCs are not checked.
        driver: the version that modules, libraries and firmware must have.
        expected: names of modules that must exist; further modules are allowed.
        tree: the folder with libraries (lib*.so.VERSION) and firmware (firmware/nvidia/VERSION) of the same image.
        faults: of the versions of other files of the image.
        certificate: the modules must have its signatures; without it, signatures are not checked.

    Raises:
        ConfigurationError: the headers or the certificate are invalid. A problem of a module is a verdict.
    """
    kernel = read_kernel(headers) if headers else None
    try:
        modules = [read_module(path) for path in paths]
    except ModuleUnreadableError as error:
        reason = f"a module cannot be read: {error}"
        unread = Verdict(check=CheckName.CONTENTS, passed=False, reason=reason.replace("\n", ": "))
        rest = "not checked: a module cannot be read"
        return (unread, *(Verdict(check=check, passed=None, reason=rest) for check in _CHECKS[1:]))
    return (
        checks.check_contents(modules, expected),
        checks.check_vermagic(modules, kernel) if kernel else _unchecked_verdict(CheckName.VERMAGIC),
        checks.check_symbols(modules, kernel) if kernel else _unchecked_verdict(CheckName.CRC),
        checks.check_versions(driver, modules, versions_in(tree) if tree else {}, faults),
        check_signatures(paths, certificate),
    )


def _unchecked_verdict(check: CheckName) -> Verdict:
    return Verdict(check=check, passed=None, reason="not checked: the kernel's headers are not available")


def versions_in(tree: Path) -> dict[str, str]:
    """Versions in the names of files below a folder: a driver's libraries, and the folders of its firmware.

    A library of another project has a small number (libnvidia-egl-wayland.so.1.1.10); a driver's has three digits.

    Raises:
        ConfigurationError: the folder does not exist.
    """
    if not tree.is_dir():
        raise ConfigurationError(f"{tree} is not a folder: libraries and firmware cannot be checked")
    versions: dict[str, str] = {}
    for path in sorted(tree.rglob("*")):
        named = str(path.relative_to(tree))
        library = _LIBRARY.fullmatch(path.name)
        if library and path.is_file() and not path.is_symlink():
            versions[named] = library[1]
        elif path.is_dir() and path.parts[-3:-1] == ("firmware", "nvidia") and path.name[:1].isdigit():
            versions[named] = path.name
    return versions
