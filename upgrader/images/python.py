"""Python packages for an image: from the lock file with its hashes, wheels only, for the Python that the image has."""

import re
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from upgrader.process import run

_SECONDS = 600.0
_GLIBC = (17, 24, 26, 28, 31, 34)
_PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in _GLIBC), "manylinux2014_x86_64", "any")
_NAME = re.compile(r"^([A-Za-z0-9._-]+)==")
_SLOW_TO_COMPILE = r"/kubernetes/.*/(models|api)/"
"""Fifteen hundred modules of which a handful is ever loaded: compiled where they are used."""


def subset(lock: str, names: Collection[str]) -> str:
    """The entries of a lock file for these packages, with their hashes.

    Raises:
        ValueError: one of them is not in it.
    """
    entries: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lock.splitlines():
        if found := _NAME.match(line):
            current = entries.setdefault(found[1].lower(), [])
        elif not line.startswith((" ", "\t")):
            current = None
        if current is not None:
            current.append(line)
    missing = sorted(set(names) - set(entries))
    if missing:
        raise ValueError(f"not in the lock file: {', '.join(missing)}")
    return "\n".join("\n".join(entries[name]) for name in sorted(names)) + "\n"


def locked(lock: str) -> str:
    """All entries of a lock file, without the options that belong to the machine that wrote it."""
    return "\n".join(line for line in lock.splitlines() if not line.startswith("--")) + "\n"


def install(requirements: Path, target: Path, *, python: tuple[int, int]) -> None:
    """Install into a folder by pip, as this machine's pip is set up.

    Raises:
        ProcessError: a wheel is missing or is not the locked one; pip's words are in the error.
    """
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    words += ["--require-hashes", "--no-deps", "--only-binary=:all:", "--target", str(target)]
    if python != sys.version_info[:2]:
        words += _for_another(python)
    run([*words, "--requirement", requirements], timeout=_SECONDS)
    for folder in ("bin", "share", "include"):
        shutil.rmtree(target / folder, ignore_errors=True)


def compile_all(folder: Path, *, python: tuple[int, int]) -> None:
    """Compile what is below a folder, if this Python can do it for that of the image; else the image starts slower."""
    if python != sys.version_info[:2]:
        return
    words = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    run([*words, "-x", _SLOW_TO_COMPILE, "-s", folder, "-p", "/app", folder], timeout=_SECONDS)


def _for_another(python: tuple[int, int]) -> Sequence[str]:
    major, minor = python
    words = ["--python-version", f"{major}.{minor}", "--implementation", "cp"]
    words += [word for abi in (f"cp{major}{minor}", "abi3", "none") for word in ("--abi", abi)]
    return [*words, *(word for name in _PLATFORMS for word in ("--platform", name))]
