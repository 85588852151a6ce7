"""The sandbox in which drivers are compiled: a root of shared trees, one writable folder, no network, no privileges.

`buildah run` is not used: its chroot isolation cannot disable the network ("cannot set --network other than host"), and
a separate storage per build copies the toolchain each time (6 s for 340 MB, against 0.03 s for the mounts here).
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.errors import ConfigurationError
from upgrader.process import FinishedProgram, run

BUILD_USER = 65534
_ENTERING_MIB = 1024
_ENTERING_SECONDS = 60.0
ENTERED = b"entered\n"
"""Printed by enter.sh when the sandbox is ready, immediately before the program."""

_DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""If this process ends, the first process of the sandbox is killed, and with it all others."""

_NAMESPACES = ("--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child=SIGKILL")


class SandboxError(ConfigurationError):
    """The sandbox does not work on this machine. That is no result about any driver."""


class Sandbox(Struct, frozen=True, kw_only=True):
    """`layers` are trees, the first on top. `build` is /build in the sandbox. `tokens` is the pipe of a BuildBudget."""

    layers: tuple[Path, ...]
    build: Path
    tokens: Path
    memory_mib: int

    def run(self, words: Sequence[str], *, timeout: float) -> FinishedProgram:
        """Run a program with both outputs in `stdout`. All processes that it started end with it.

        Raises:
            ProgramTimeoutError: the program did not end within `timeout` seconds.
            SandboxError: overlayfs does not accept a path, or the sandbox does not work on this machine.
        """
        layers = [str(path.absolute()) for path in self.layers]
        if any(sign in path for path in layers for sign in ":,\\"):
            raise SandboxError(f"a path in {layers} cannot be mounted", resolution="Use a folder without `:,\\`.")
        with _enter_script() as script, tempfile.TemporaryDirectory(prefix="upgrader-root-") as root:
            command: list[str | Path] = [*_DIE_WITH_US, "unshare", *_NAMESPACES, "sh", script, root]
            command += [":".join(layers), self.build, self.tokens]
            finished = run([*command, str(self.memory_mib << 20), *words], timeout=timeout, check=False)
        if not finished.stdout.startswith(ENTERED):
            raise SandboxError(
                "nothing can be compiled on this machine: the sandbox could not be created",
                details=(finished.stderr + finished.stdout).decode(errors="replace").strip(),
                resolution="Namespaces, overlayfs and the programs unshare, mount, setpriv, prlimit, sh are required.",
            )
        return msgspec.structs.replace(finished, stdout=finished.stdout.removeprefix(ENTERED))

    def chown_build(self) -> None:
        """Give the build folder to the build user."""
        run(["chown", "--recursive", f"{BUILD_USER}:{BUILD_USER}", self.build], timeout=120)


def check_sandbox(root: Path, tokens: Path) -> None:
    """Enter a sandbox with a toolchain's tree, as every build does.

    Raises:
        SandboxError: nothing can be compiled on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="upgrader-build-") as place:
        top, build = Path(place) / "top", Path(place) / "build"  # overlayfs does not accept a single layer
        for folder in (top, build):
            folder.mkdir()
            folder.chmod(0o755)
        sandbox = Sandbox(layers=(top, root), build=build, tokens=tokens, memory_mib=_ENTERING_MIB)
        sandbox.run(["true"], timeout=_ENTERING_SECONDS)


@contextmanager
def _enter_script() -> Iterator[Path]:
    with as_file(files("upgrader.images.drivers.builder") / "enter.sh") as path:
        yield path
