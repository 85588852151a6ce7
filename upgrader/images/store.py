"""Built images as OCI layouts, named by a hash of all inputs. A second build of the same inputs is a look-up."""

import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.images.layout import Layout
from upgrader.process.places import Progress, hold_lock

_DIGITS = 16
_RUN = 0o100
"""The only mode bit that git stores."""


def content_key(parts: Iterable[bytes | str]) -> str:
    """A key of 16 hex digits over parts. Each part is hashed with its length, so that no two lists of parts give one
    input.
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()[:_DIGITS]


def folder_contents(folder: Path) -> list[bytes]:
    """Names, executable bits and contents of a file, or of all files below a folder, for `content_key`.

    Python's caches and the other mode bits, which depend on the umask, are left out.
    """
    paths = folder.rglob("*") if folder.is_dir() else [folder]
    parts: list[bytes] = []
    for path in sorted(path for path in paths if path.is_file() and "__pycache__" not in path.parts):
        run = b"x" if path.stat().st_mode & _RUN else b""
        parts += [str(path.relative_to(folder)).encode(), run, path.read_bytes()]
    return parts


class Store:
    """OCI layouts below a folder."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._folder = folder
        self._progress = progress

    def build_once(self, name: str, digits: str, build: Callable[[Path], None]) -> Layout:
        """The layout of an image. If it is missing, `build(layout)` creates it; only one process builds at a time."""
        target = self._folder / f"{name}-{digits}"
        if (layout := _open_layout(target)) is not None:
            return layout
        with hold_lock(self._folder / ".lock", lambda: self._progress(f"image {name}: waiting for another build")):
            if (layout := _open_layout(target)) is not None:
                return layout
            beside = target.with_name(f".{target.name}.new")
            shutil.rmtree(beside, ignore_errors=True)
            self._progress(f"image {name}: building")
            build(beside)
            shutil.rmtree(target, ignore_errors=True)
            beside.rename(target)
            built = Layout(target)
            self._progress(f"image {name}: {built.size / 1e6:.1f} MB compressed")
            return built


def _open_layout(folder: Path) -> Layout | None:
    try:
        return Layout(folder)
    except ConfigurationError:
        return None
