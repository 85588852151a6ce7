"""The base image's root file system: Debian with Python, by mmdebstrap from the machine's own apt configuration."""

from pathlib import Path

from upgrader.core.errors import ProcessError
from upgrader.process import run

PACKAGES = ("python3-minimal", "libpython3-stdlib")
SECONDS = 600.0
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/var/lib/apt/lists/*", "/var/cache/apt/*")


def bootstrap_argv(suite: str, target: Path) -> list[str | Path]:
    """Arguments of mmdebstrap: unpacked, not configured, so that nothing is run in it."""
    return [
        "mmdebstrap",
        "--quiet",
        "--variant=extract",
        f"--include={','.join(PACKAGES)}",
        *(f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT),
        suite,
        target,
    ]


def bootstrap(target: Path) -> None:
    """Write the root file system as a tar to `target`.

    Raises:
        ProcessError: mmdebstrap is missing or failed; any other image can be named in BASE_IMAGE instead.
    """
    run(bootstrap_argv(suite_of(Path("/etc/os-release").read_text(encoding="utf-8")), target), timeout=SECONDS)


def suite_of(os_release: str) -> str:
    """The suite of this machine, as os-release names it.

    Raises:
        ProcessError: this is no Debian.
    """
    values = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    suite = values.get("VERSION_CODENAME", "").strip('"')
    if not suite:
        raise ProcessError(
            "this machine's Debian suite is not known", resolution="Name an image with Python in BASE_IMAGE."
        )
    return suite
