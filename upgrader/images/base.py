"""The files of the base image: Python and busybox from the Debian archive that the machine uses, unpacked by
mmdebstrap.
"""

import platform
from collections.abc import Sequence
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.images import store
from upgrader.process import ProgramFailedError, run

PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6", "busybox-static")  # grpc is C++
LEFT_OUT = ("./dev", "./etc/apt", "./etc/resolv.conf", "./etc/hostname", "./var/cache", "./var/lib/apt")
APT_LISTS = Path("/var/lib/apt/lists")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_SECONDS = 600.0
_NO_ARCHIVE = "Run `apt-get update`, or set BASE_IMAGE to an image with Python 3.11 or newer and busybox in it."


def apt_sources() -> list[str]:
    """One-line apt sources of the Debian archives that apt on this machine is configured with, the main suite first.

    Raises:
        ConfigurationError: apt is configured with no Debian archive.
    """
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    listed = run([*words, "Created-By: Packages", "Origin: Debian"], timeout=60, check=False)
    lines = [f"deb {_signed_by()}{line}" for line in listed.text.splitlines() if len(line.split()) == 3]
    if listed.code != 0 or not lines:
        raise ConfigurationError("apt on this machine is configured with no Debian archive", resolution=_NO_ARCHIVE)
    return list(dict.fromkeys(lines))


def _signed_by() -> str:
    return f"[signed-by={KEYRING}] " if KEYRING.exists() else ""


def suite_name() -> str:
    """The code name of this machine's release, for example trixie."""
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")


def package_versions(notes: Path, packages: Sequence[str] = PACKAGES) -> str:
    """The versions of `packages` that apt would install, as text that changes when a package changes.

    A query of apt takes a second or more. The result is cached in a file of the folder `notes` until apt's lists
    change.

    Raises:
        ConfigurationError: no configured archive has one of the packages.
    """
    note = notes / f"apt-{_lists_key(packages)}"
    if not note.exists():
        notes.mkdir(parents=True, exist_ok=True)
        note.write_text(_query_versions(packages), encoding="utf-8")
    return note.read_text(encoding="utf-8")


def _lists_key(packages: Sequence[str]) -> str:
    """A key that changes when `apt-get update` changes a list, and with the set of packages."""
    facts = ((path.name, path.stat()) for path in sorted(APT_LISTS.glob("*Packages*")))
    return store.content_key([*packages, *(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in facts)])


def _query_versions(packages: Sequence[str]) -> str:
    depends = run(["apt-cache", "depends", "--important", *packages], timeout=60, check=False).text
    # The interpreter is in packages whose names contain its version.
    carriers = sorted({line.split()[-1] for line in depends.splitlines() if "python3." in line})
    shown = run(["apt-cache", "show", "--no-all-versions", *packages, *carriers], timeout=60, check=False)
    if shown.code != 0:
        raise ConfigurationError(f"apt on this machine does not offer {', '.join(packages)}", resolution=_NO_ARCHIVE)
    return "\n".join(line for line in shown.text.splitlines() if line.startswith(("Package:", "Version:")))


def unpack_base(target: Path, *, trim: Path, work: Path, packages: Sequence[str] = PACKAGES) -> None:
    """Unpack `packages` into the folder `target` and run the script `trim` on it (Containerfiles/base/trim).

    `work` is a folder for temporary files.

    Raises:
        ConfigurationError: mmdebstrap fails; the details contain its output.
    """
    archive = work / "base.tar"
    download_packages(archive, packages, f'--extract-hook={trim} "$1"')
    target.mkdir()
    left_out = [f"--exclude={path}" for path in LEFT_OUT]
    run(["tar", "--extract", "--no-same-owner", "--file", archive, "--directory", target, *left_out], timeout=_SECONDS)
    archive.unlink()


def download_packages(archive: Path, packages: Sequence[str], *options: str) -> None:
    """Unpack `packages` and their dependencies into a tar archive. No maintainer script runs.

    Raises:
        ConfigurationError: mmdebstrap fails; the details contain its output.
    """
    words = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(packages)}", *options]
    try:
        run([*words, suite_name(), archive, *apt_sources()], timeout=_SECONDS, env={"SOURCE_DATE_EPOCH": "0"})
    except ProgramFailedError as error:
        raise ConfigurationError(
            "packages cannot be downloaded from this machine's archive", details=str(error), resolution=_NO_ARCHIVE
        ) from error
