"""Built images, kept as OCI layouts by the hash of all that went in: the second build of the same is a look-up."""

import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.images.layout import Layout
from upgrader.process.places import Progress, locked

_DIGITS = 16
_RUN = 0o100
"""All that git keeps of a mode."""


def key(parts: Iterable[bytes | str]) -> str:
    """16 hex digits over parts, each with its length, so that no two lists of parts read the same."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()[:_DIGITS]


def contents(folder: Path) -> list[bytes]:
    """Names, contents and whether they can be run of one file or of all below a folder, for `key`.

    Not what Python leaves there, nor what a umask has made of the other bits: a checkout is the same under any.
    """
    found = folder.rglob("*") if folder.is_dir() else [folder]
    parts: list[bytes] = []
    for path in sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts):
        run = b"x" if path.stat().st_mode & _RUN else b""
        parts += [str(path.relative_to(folder)).encode(), run, path.read_bytes()]
    return parts


class Store:
    """Layouts below a folder."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._folder = folder
        self._progress = progress

    def image(self, name: str, digits: str, build: Callable[[Path], None]) -> Layout:
        """The layout of an image, built by `build(layout)` where it is not there yet; one process at a time builds."""
        target = self._folder / f"{name}-{digits}"
        if (layout := _present(target)) is not None:
            return layout
        with locked(self._folder / ".lock", lambda: self._progress(f"image {name}: waiting for another build")):
            if (layout := _present(target)) is not None:
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


def _present(folder: Path) -> Layout | None:
    try:
        return Layout(folder)
    except ConfigurationError:
        return None
