"""Python packages for an image: wheels from the lock file, checked by hash, for the Python version of the image."""

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
"""About 1500 modules of which a few are loaded. They are compiled on first use."""


def select_entries(lock: str, names: Collection[str]) -> str:
    """The entries of a lock file for these packages, with their hashes.

    Raises:
        ValueError: the lock file lacks one of the packages.
    """
    entries: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lock.splitlines():
        if match := _NAME.match(line):
            current = entries.setdefault(match[1].lower(), [])
        elif not line.startswith((" ", "\t")):
            current = None
        if current is not None:
            current.append(line)
    missing = sorted(set(names) - set(entries))
    if missing:
        raise ValueError(f"not in the lock file: {', '.join(missing)}")
    return "\n".join("\n".join(entries[name]) for name in sorted(names)) + "\n"


def lock_entries(lock: str, *, without: Sequence[str] = ()) -> str:
    """All entries of a lock file except some, without the options, which belong to the machine that wrote the file.

    Raises:
        ValueError: the lock file lacks one of the packages.
    """
    lines = [line for line in lock.splitlines() if not line.startswith("--")]
    names = [match[1].lower() for line in lines if (match := _NAME.match(line))]
    if not without:
        return "\n".join(lines) + "\n"
    if missing := sorted(set(without) - set(names)):
        raise ValueError(f"not in the lock file: {', '.join(missing)}")
    return select_entries("\n".join(lines), [name for name in names if name not in without])


def install_packages(requirements: Path, target: Path, *, python: tuple[int, int]) -> None:
    """Install packages into a folder by pip, with this machine's pip configuration.

    Raises:
        ProcessError: a wheel is missing or differs from the locked one; the error contains pip's output.
    """
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    words += ["--require-hashes", "--no-deps", "--only-binary=:all:", "--target", str(target)]
    if python != sys.version_info[:2]:
        words += _target_options(python)
    run([*words, "--requirement", requirements], timeout=_SECONDS)
    for folder in ("bin", "share", "include"):
        shutil.rmtree(target / folder, ignore_errors=True)


def compile_all(folder: Path, *, python: tuple[int, int]) -> None:
    """Compile the modules below a folder if this Python has the version of the image. Otherwise the image starts
    slower.
    """
    if python != sys.version_info[:2]:
        return
    words = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    run([*words, "-x", _SLOW_TO_COMPILE, "-s", folder, "-p", "/app", folder], timeout=_SECONDS)


def _target_options(python: tuple[int, int]) -> Sequence[str]:
    major, minor = python
    words = ["--python-version", f"{major}.{minor}", "--implementation", "cp"]
    words += [word for abi in (f"cp{major}{minor}", "abi3", "none") for word in ("--abi", abi)]
    return [*words, *(word for name in _PLATFORMS for word in ("--platform", name))]
