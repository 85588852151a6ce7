"""The base image's files: Python and busybox from the Debian archive that the machine itself uses, by mmdebstrap."""

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


def sources() -> list[str]:
    """One-line apt sources of the Debian archives that this machine's apt is set up with, the main suite first.

    Raises:
        ConfigurationError: apt knows of none.
    """
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    listed = run([*words, "Created-By: Packages", "Origin: Debian"], timeout=60, check=False)
    lines = [f"deb {_signed()}{line}" for line in listed.text.splitlines() if len(line.split()) == 3]
    if listed.code != 0 or not lines:
        raise ConfigurationError("apt on this machine knows of no Debian archive", resolution=_NO_ARCHIVE)
    return list(dict.fromkeys(lines))


def _signed() -> str:
    return f"[signed-by={KEYRING}] " if KEYRING.exists() else ""


def suite() -> str:
    """The code name of this machine's release, as trixie."""
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")


def versions(notes: Path, packages: Sequence[str] = PACKAGES) -> str:
    """What apt would install of `packages`, as text that changes when a package does.

    Asking apt takes a second or more, so the answer is noted in a file of the folder `notes` for as long as apt's lists
    stay as they are.

    Raises:
        ConfigurationError: a package is in no archive that apt knows of.
    """
    note = notes / f"apt-{_lists(packages)}"
    if not note.exists():
        notes.mkdir(parents=True, exist_ok=True)
        note.write_text(_ask_versions(packages), encoding="utf-8")
    return note.read_text(encoding="utf-8")


def _lists(packages: Sequence[str]) -> str:
    """Changes whenever `apt-get update` brought something, or other packages are asked for."""
    facts = ((path.name, path.stat()) for path in sorted(APT_LISTS.glob("*Packages*")))
    return store.key([*packages, *(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in facts)])


def _ask_versions(packages: Sequence[str]) -> str:
    depends = run(["apt-cache", "depends", "--important", *packages], timeout=60, check=False).text
    # The interpreter itself is in packages with a version in their name.
    carriers = sorted({line.split()[-1] for line in depends.splitlines() if "python3." in line})
    shown = run(["apt-cache", "show", "--no-all-versions", *packages, *carriers], timeout=60, check=False)
    if shown.code != 0:
        raise ConfigurationError(f"apt on this machine does not offer {', '.join(packages)}", resolution=_NO_ARCHIVE)
    return "\n".join(line for line in shown.text.splitlines() if line.startswith(("Package:", "Version:")))


def unpack(target: Path, *, trim: Path, work: Path, packages: Sequence[str] = PACKAGES) -> None:
    """Make the tree of `packages` at `target`; `trim` is run on it, as Containerfiles/base/trim; `work` is a folder for
    a while.

    Raises:
        ConfigurationError: mmdebstrap could not, with its own words.
    """
    archive = work / "base.tar"
    download(archive, packages, f'--extract-hook={trim} "$1"')
    target.mkdir()
    left_out = [f"--exclude={path}" for path in LEFT_OUT]
    run(["tar", "--extract", "--no-same-owner", "--file", archive, "--directory", target, *left_out], timeout=_SECONDS)
    archive.unlink()


def download(archive: Path, packages: Sequence[str], *options: str) -> None:
    """Unpack `packages` and all that they depend on into a tar archive; none of their scripts is run.

    Raises:
        ConfigurationError: mmdebstrap could not, with its own words.
    """
    words = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(packages)}", *options]
    try:
        run([*words, suite(), archive, *sources()], timeout=_SECONDS, env={"SOURCE_DATE_EPOCH": "0"})
    except ProgramFailedError as error:
        raise ConfigurationError(
            "packages cannot be had from this machine's archive", details=str(error), resolution=_NO_ARCHIVE
        ) from error
