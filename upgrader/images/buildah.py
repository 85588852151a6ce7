"""buildah, by subprocess: arguments are pure, runs go through upgrader.process.

Storage is vfs in a folder of our own, and no step runs a program inside an image: nothing is mounted, and no right
beyond root's is needed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from upgrader.process import run

EPOCH = 1_700_000_000
"""Files of an image get this time, so that the same inputs give the same digest."""

BUILD_SECONDS, PUSH_SECONDS = 900.0, 300.0


class Buildah:
    """buildah with a storage of its own."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage

    def build(self, context: Path, containerfile: Path, tag: str, arguments: Mapping[str, str]) -> None:
        """Build an image under a local tag.

        Raises:
            ProcessError: buildah failed; its output is in the error.
        """
        run([*self._base(), *build_argv(context, containerfile, tag, arguments)], timeout=BUILD_SECONDS)

    def push(self, tag: str, destination: str, digest_file: Path) -> str:
        """Push a local image to a registry that speaks plain HTTP; its digest."""
        run([*self._base(), *push_argv(tag, destination, digest_file)], timeout=PUSH_SECONDS)
        return digest_file.read_text(encoding="ascii").strip()

    def has(self, tag: str) -> bool:
        """Whether there is a local image of this tag."""
        listed = run([*self._base(), "images", "--quiet", "--filter", f"reference={tag}"], timeout=60, check=False)
        return bool(listed.stdout.strip())

    def save(self, tag: str, archive: Path) -> None:
        """Write a local image as an OCI archive."""
        run([*self._base(), "push", "--quiet", tag, f"oci-archive:{archive}"], timeout=PUSH_SECONDS)

    def _base(self) -> list[str | Path]:
        root, state = self._storage / "root", self._storage / "run"
        return ["buildah", "--root", root, "--runroot", state, "--storage-driver", "vfs"]


def build_argv(context: Path, containerfile: Path, tag: str, arguments: Mapping[str, str]) -> list[str | Path]:
    """Arguments of a reproducible build."""
    values = [word for key, value in sorted(arguments.items()) for word in ("--build-arg", f"{key}={value}")]
    return [
        "build",
        "--quiet",
        "--pull-never",
        "--format",
        "oci",
        "--isolation",
        "chroot",
        "--timestamp",
        str(EPOCH),
        *values,
        "--tag",
        tag,
        "--file",
        containerfile,
        context,
    ]


def push_argv(tag: str, destination: str, digest_file: Path) -> Sequence[str | Path]:
    """Arguments of a push over plain HTTP."""
    return [
        "push",
        "--quiet",
        "--tls-verify=false",
        "--compression-format",
        "zstd",
        "--compression-level",
        "3",
        "--digestfile",
        digest_file,
        tag,
        f"docker://{destination}",
    ]
