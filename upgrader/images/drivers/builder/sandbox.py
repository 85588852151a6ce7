"""Where a driver is compiled: a root of shared trees, one folder to write to, no network, no rights.

Not `buildah run`: buildah's chroot isolation cannot cut the network off ("cannot set --network other than host"), and a
storage of its own per build copies the toolchain each time (6 s for 340 MB, against 0.03 s for the mounts here).
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.errors import ConfigurationError
from upgrader.process import Finished, run

BUILD_USER = 65534
_ENTERING_MIB = 1024
_ENTERING_SECONDS = 60.0
ENTERED = b"entered\n"
"""Said by enter.sh when all is in place, right before the program."""

_DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""However we end, nobody goes on compiling: the first process of the sandbox dies with us, and all others with it."""

_NAMESPACES = ("--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child=SIGKILL")


class SandboxError(ConfigurationError):
    """No root of its own can be made on this machine: that says nothing about any driver."""


class Sandbox(Struct, frozen=True, kw_only=True):
    """`layers` are trees, the first on top; `build` is /build inside; `tokens` is a pipe of a Budget."""

    layers: tuple[Path, ...]
    build: Path
    tokens: Path
    memory_mib: int

    def run(self, words: Sequence[str], *, timeout: float) -> Finished:
        """Run a program; its two outputs are one, `stdout`. Whatever it started ends with it.

        Raises:
            ProgramTimeoutError: it did not end within `timeout` seconds.
            SandboxError: a path that overlayfs cannot be given, or this machine makes no such root.
        """
        layers = [str(path.absolute()) for path in self.layers]
        if any(sign in path for path in layers for sign in ":,\\"):
            raise SandboxError(f"a path in {layers} cannot be mounted", resolution="Use a folder without `:,\\`.")
        with _script() as script, tempfile.TemporaryDirectory(prefix="upgrader-root-") as root:
            command: list[str | Path] = [*_DIE_WITH_US, "unshare", *_NAMESPACES, "sh", script, root]
            command += [":".join(layers), self.build, self.tokens]
            finished = run([*command, str(self.memory_mib << 20), *words], timeout=timeout, check=False)
        if not finished.stdout.startswith(ENTERED):
            raise SandboxError(
                "nothing can be compiled on this machine: no root of its own could be made",
                details=(finished.stderr + finished.stdout).decode(errors="replace").strip(),
                resolution="Namespaces, overlayfs and the programs unshare, mount, setpriv, prlimit and sh are needed.",
            )
        return msgspec.structs.replace(finished, stdout=finished.stdout.removeprefix(ENTERED))

    def own(self) -> None:
        """Give the folder that is built in to the build user."""
        run(["chown", "--recursive", f"{BUILD_USER}:{BUILD_USER}", self.build], timeout=120)


def check_sandbox(root: Path, tokens: Path) -> None:
    """Enter one over a toolchain's tree, as every build does.

    Raises:
        SandboxError: nothing can be compiled on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="upgrader-build-") as place:
        top, build = Path(place) / "top", Path(place) / "build"  # overlayfs takes no single layer
        for folder in (top, build):
            folder.mkdir()
            folder.chmod(0o755)
        sandbox = Sandbox(layers=(top, root), build=build, tokens=tokens, memory_mib=_ENTERING_MIB)
        sandbox.run(["true"], timeout=_ENTERING_SECONDS)


@contextmanager
def _script() -> Iterator[Path]:
    with as_file(files("upgrader.images.drivers.builder") / "enter.sh") as path:
        yield path
