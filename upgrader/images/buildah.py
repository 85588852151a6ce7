"""buildah's command lines, pure, and a storage of its own in which they are run.

No file that is built here has a RUN step: nothing is run while building, so that it works in a container without many
rights. Where the kernel gives us overlay mounts they are used, and taken down by buildah at the end of each command; a
storage of plain copies (vfs) does the same in ten times the time.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.errors import ConfigurationError
from upgrader.images.layout import Layout
from upgrader.process import run

BUILD_SECONDS = 900.0
OVERLAY = "overlay"
VFS = "vfs"
_NAME = "localhost/upgrader-built"


class Storage(Struct, frozen=True, kw_only=True):
    """Where buildah keeps what it works on, and how: `driver` is overlay or vfs."""

    folder: Path
    driver: str = VFS

    def command(self, *words: str | Path) -> list[str]:
        """A buildah command line on this storage."""
        root = self.folder / self.driver
        places = ["--root", f"{root}/root", "--runroot", f"{root}/run", "--storage-driver", self.driver]
        return ["buildah", *places, *map(str, words)]

    def build(self, *, context: Path, file: Path, labels: Sequence[tuple[str, str]] = ()) -> list[str]:
        """Build `file` over `context`; the same contents give the same digest, whenever and wherever."""
        told = [word for key, value in labels for word in ("--label", f"{key}={value}")]
        fixed = ["--timestamp", "0", "--identity-label=false", "--layers=false", "--format", "oci", "--pull=never"]
        isolation = ["--isolation", "chroot"]
        return self.command("build", "--quiet", *isolation, *fixed, *told, "--tag", _NAME, "--file", file, context)

    def save(self, layout: Path) -> list[str]:
        """Write what was built into an OCI layout; every node unpacks zstd several times faster than gzip."""
        return self.command("push", "--quiet", "--compression-format", "zstd", _NAME, f"oci:{layout}:image")

    def make(self, *, context: Path, file: Path, layout: Path, labels: Sequence[tuple[str, str]] = ()) -> None:
        """Build and save.

        Raises:
            ProcessError: buildah is not there, or refuses; its own words are in the error.
        """
        run(self.build(context=context, file=file, labels=labels), timeout=BUILD_SECONDS)
        run(self.save(layout), timeout=BUILD_SECONDS)
        run(self.command("rmi", "--force", _NAME), timeout=BUILD_SECONDS)

    def take(self, layout: Layout, name: str) -> None:
        """Have an image from a layout under a name, for FROM lines.

        Raises:
            ProcessError: as `make`.
        """
        link = self.folder / "parent"  # buildah makes an image's name of the path, and refuses most paths as names
        link.unlink(missing_ok=True)
        link.symlink_to(layout.folder.resolve())
        pulled = run(self.command("pull", "--quiet", f"oci:{link.name}"), timeout=BUILD_SECONDS, cwd=self.folder)
        run(self.command("tag", pulled.text, name), timeout=BUILD_SECONDS)

    def fetch(self, name: str, layout: Path) -> None:
        """Pull an image by a name that buildah understands, and write it into an OCI layout.

        Raises:
            ConfigurationError: it cannot be pulled, with buildah's own words.
        """
        pulled = run(self.command("pull", "--quiet", name), timeout=BUILD_SECONDS, check=False)
        if pulled.code != 0:
            raise ConfigurationError(
                f"the base image {name} cannot be pulled",
                details=pulled.stderr.decode(errors="replace").strip(),
                resolution="BASE_IMAGE is the folder of an OCI layout, or a name that `buildah pull` understands.",
            )
        run(self.command("push", "--quiet", pulled.text, f"oci:{layout}:image"), timeout=BUILD_SECONDS)


def buildah_version() -> str:
    """Its version, as 1.39.3.

    Raises:
        ProcessError: buildah is not there.
    """
    words = run(["buildah", "--version"], timeout=60).text.split()
    return words[2] if len(words) > 2 else " ".join(words)


def open_storage(folder: Path) -> Storage:
    """A new storage in a folder, with the faster driver that works there.

    Raises:
        ProcessError: buildah is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fast = Storage(folder=folder, driver=OVERLAY)
    works = run(fast.command("images", "--quiet"), timeout=BUILD_SECONDS, check=False).code == 0
    return fast if works else Storage(folder=folder, driver=VFS)
