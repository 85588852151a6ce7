"""The command lines of buildah (pure), and a storage to run them in.

No Containerfile of this repository has a RUN step. A build therefore runs no program and works in a container with few
privileges. If the kernel allows overlay mounts, buildah uses them and removes them at the end of each command.
Otherwise it copies files (vfs), which takes ten times as long.
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
    """A storage folder of buildah and its storage driver: overlay or vfs."""

    folder: Path
    driver: str = VFS

    def buildah_command(self, *words: str | Path) -> list[str]:
        """A buildah command line on this storage."""
        root = self.folder / self.driver
        places = ["--root", f"{root}/root", "--runroot", f"{root}/run", "--storage-driver", self.driver]
        return ["buildah", *places, *map(str, words)]

    def build_command(self, *, context: Path, file: Path, labels: Sequence[tuple[str, str]] = ()) -> list[str]:
        """The command that builds `file` over `context`. The same contents always give the same digest."""
        label_options = [word for key, value in labels for word in ("--label", f"{key}={value}")]
        fixed = ["--timestamp", "0", "--identity-label=false", "--layers=false", "--format", "oci", "--pull=never"]
        isolation = ["--isolation", "chroot"]
        options = ["--quiet", *isolation, *fixed, *label_options]
        return self.buildah_command("build", *options, "--tag", _NAME, "--file", file, context)

    def save_command(self, layout: Path) -> list[str]:
        """The command that writes the built image into an OCI layout. zstd unpacks several times faster than gzip on
        the nodes.
        """
        return self.buildah_command("push", "--quiet", "--compression-format", "zstd", _NAME, f"oci:{layout}:image")

    def build_image(self, *, context: Path, file: Path, layout: Path, labels: Sequence[tuple[str, str]] = ()) -> None:
        """Build an image and write it into a layout.

        Raises:
            ProcessError: buildah is missing or fails; the error contains its output.
        """
        run(self.build_command(context=context, file=file, labels=labels), timeout=BUILD_SECONDS)
        run(self.save_command(layout), timeout=BUILD_SECONDS)
        run(self.buildah_command("rmi", "--force", _NAME), timeout=BUILD_SECONDS)

    def import_layout(self, layout: Layout, name: str) -> None:
        """Import an image from a layout under a name that FROM lines can use.

        Raises:
            ProcessError: as `build_image`.
        """
        link = self.folder / "parent"  # buildah derives the image's name from the path and rejects most paths
        link.unlink(missing_ok=True)
        link.symlink_to(layout.folder.resolve())
        pull = self.buildah_command("pull", "--quiet", f"oci:{link.name}")
        pulled = run(pull, timeout=BUILD_SECONDS, cwd=self.folder)
        run(self.buildah_command("tag", pulled.text, name), timeout=BUILD_SECONDS)

    def pull_image(self, name: str, layout: Path) -> None:
        """Pull an image by a name that buildah accepts, and write it into an OCI layout.

        Raises:
            ConfigurationError: the pull fails; the details contain buildah's output.
        """
        pulled = run(self.buildah_command("pull", "--quiet", name), timeout=BUILD_SECONDS, check=False)
        if pulled.code != 0:
            raise ConfigurationError(
                f"the base image {name} cannot be pulled",
                details=pulled.stderr.decode(errors="replace").strip(),
                resolution="BASE_IMAGE is the folder of an OCI layout, or a name that `buildah pull` accepts.",
            )
        run(self.buildah_command("push", "--quiet", pulled.text, f"oci:{layout}:image"), timeout=BUILD_SECONDS)


def buildah_version() -> str:
    """The version of buildah, for example 1.39.3.

    Raises:
        ProcessError: buildah is missing.
    """
    words = run(["buildah", "--version"], timeout=60).text.split()
    return words[2] if len(words) > 2 else " ".join(words)


def open_storage(folder: Path) -> Storage:
    """A new storage in a folder, with overlay if it works there, else with vfs.

    Raises:
        ProcessError: buildah is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fast = Storage(folder=folder, driver=OVERLAY)
    works = run(fast.buildah_command("images", "--quiet"), timeout=BUILD_SECONDS, check=False).code == 0
    return fast if works else Storage(folder=folder, driver=VFS)
